//! Good and bad lines.

use super::*;

const TASK: &str = r#""command":"fuzz","job":"j","argument":"https://h/o?sig=SECRET""#;

fn message(text: &str) -> NewMessage {
    parse(text).unwrap_or_else(|bad| panic!("{text}: {bad}"))
}

#[track_caller]
fn value(json: &str, expect: &str) {
    let message = message(&format!("{{{TASK},\"x\":{json}}}"));
    assert_eq!(message.attributes.get("x").map(String::as_str), Some(expect));
}

#[track_caller]
fn bad(text: &str, expect: &str) {
    let why = parse(text).map(drop).expect_err("a bad line").to_string();
    assert!(why.contains(expect), "{why}");
    assert!(!why.contains("SECRET"), "{why}");
}

#[test]
fn scalars_become_text_as_they_are_written() {
    value(r#""a \"b\" \\ \u00e9 \ud83d\ude00 }""#, "a \"b\" \\ é 😀 }");
    value("1e3", "1e3");
    value("1.0", "1.0");
    value("-0", "-0");
    value("123456789012345678901234567890", "123456789012345678901234567890");
    value("true", "true");
    value("\"null\"", "null");
    value("\"007\"", "007");
    value("\"\"", "");
    value("\"a\\u0000b\"", "a\0b");
}

#[test]
fn other_names_of_job_and_argument_are_taken() {
    for (job, argument) in [("job", "argument"), ("job_type", "input_url"), ("job_type", "url")] {
        let text = format!(r#" {{ "command" : "fuzz" , "{job}":"j","{argument}":"gs://b/o" }} "#);
        let attributes = message(&text).attributes;
        let expect = [("argument", "gs://b/o"), ("command", "fuzz"), ("job", "j")];
        assert!(attributes.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expect));
    }
}

#[test]
fn the_spools_own_keys_are_no_attributes() {
    let text = format!(
        r#"{{{TASK},"id":7,"attempts":3,"not_before":"2026-03-01T00:00:00Z","timeout":"60"}}"#
    );
    let got = message(&text);
    assert_eq!(got.id.as_deref(), Some("7"));
    assert_eq!(got.attempts, Some(3));
    assert_eq!(got.not_before.map(|t| t.as_second()), Some(1_772_323_200));
    assert_eq!(got.timeout, Some(Duration::from_secs(60)));
    assert_eq!(got.attributes.len(), 3);
    let unix = message(&format!(r#"{{{TASK},"not_before":1772323200.5}}"#));
    assert_eq!(unix.not_before.map(|t| t.as_millisecond()), Some(1_772_323_200_500));
}

#[test]
fn what_is_no_flat_object_says_so_without_showing_it() {
    bad("SECRET", "not a JSON object");
    bad("[\"SECRET\"]", "`{` is missing");
    bad("{}", "`command`");
    bad(&format!("{{{TASK}"), "`,` or `}`");
    bad(&format!("{{{TASK}}} SECRET"), "follows");
    bad(&format!("{{{TASK},}}"), "key in quotes");
    bad(&format!("{{{TASK},\"SECRET\":null}}"), "key 4 (counted from 1) is null");
    bad(&format!("{{{TASK},\"SECRET\":{{\"SECRET\":1}}}}"), "an object");
    bad(&format!("{{{TASK},\"x\":[\"SECRET\"]}}"), "an array");
    bad(&format!("{{{TASK},\"x\":SECRET}}"), "no JSON value");
    bad(&format!("{{{TASK},\"x\":007}}"), "no JSON value");
    bad(&format!("{{{TASK},\"x\":}}"), "value is missing");
    bad(&format!("{{{TASK},\"x\":\"SECRET"), "no end");
    bad(&format!("{{{TASK},\"x\":\"\\xSECRET\"}}"), "bad escape");
    bad(&format!("{{{TASK},\"x\":\"\\\"}}"), "no end");
}

#[test]
fn a_key_given_twice_is_an_error_by_any_of_its_names() {
    bad(&format!("{{{TASK},\"SECRET\":1,\"SECRET\":2}}"), "key 5");
    bad(&format!("{{{TASK},\"url\":\"SECRET\"}}"), "`argument`");
    bad(&format!("{{{TASK},\"job_type\":\"SECRET\"}}"), "`job`");
}

#[test]
fn known_keys_say_what_would_be_right() {
    bad(r#"{"command":"fuzz","job":" ","argument":"SECRET"}"#, "`job` is missing");
    for (key, value) in [
        ("id", "\"\""),
        ("id", "\"a\\nSECRET\""),
        ("attempts", "0"),
        ("attempts", "\"SECRET\""),
        ("attempts", "1.5"),
        ("not_before", "\"SECRET\""),
        ("not_before", "1e300"),
        ("not_before", "\"NaN\""),
        ("timeout", "-1"),
        ("timeout", "true"),
    ] {
        bad(&format!("{{{TASK},\"{key}\":{value}}}"), &format!("`{key}` must be"));
    }
}
