//! Edits in place: what changes, what stays, and what is refused.

use proptest::prelude::*;

use super::*;

fn change(value: Option<f64>) -> Change {
    Change { value: Some(value), ..Change::default() }
}

fn edit_with(file: &str, text: &str, name: &str, change: &Change) -> Result<String, ChangeError> {
    let path = Path::new(file);
    let flags = parse(path, text)?;
    let after = change.apply(name, flags.0.get(name))?;
    edit(path, text, name, change, &after)
}

#[track_caller]
fn check(file: &str, text: &str, change: &Change, expect: &str) {
    let got = edit_with(file, text, "w", change).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(got, expect);
}

#[test]
fn only_the_value_changes_and_comments_stay() {
    for (text, expect) in [
        (
            "# weights\nv: {value: 1}\nw: {enabled: true, value: 1} # half\n",
            "# weights\nv: {value: 1}\nw: {enabled: true, value: 0.5} # half\n",
        ),
        (
            "w:\n  # on\n  enabled: true\n  value: 1 # all of it\nv: {value: 1}\n",
            "w:\n  # on\n  enabled: true\n  value: 0.5 # all of it\nv: {value: 1}\n",
        ),
        ("w:\n  value:\n  enabled: true\n", "w:\n  value: 0.5\n  enabled: true\n"),
        ("w: {value: , enabled: true}\n", "w: {value: 0.5 , enabled: true}\n"),
        ("w: {value: ~}\n", "w: {value: 0.5}\n"),
        ("w: {enabled: true}\n", "w: {\"value\": 0.5, enabled: true}\n"),
        ("\"w\":\n    enabled: true\n", "\"w\":\n    value: 0.5\n    enabled: true\n"),
        (
            "- kind: FeatureFlag\n  name: w # x\n  value: 1\n- kind: Job\n  name: w\n",
            "- kind: FeatureFlag\n  name: w # x\n  value: 0.5\n- kind: Job\n  name: w\n",
        ),
        (
            "- kind: FeatureFlag\n  name: w\n  enabled: true\n",
            "- value: 0.5\n  kind: FeatureFlag\n  name: w\n  enabled: true\n",
        ),
        (
            "kind: Job\nname: w\n---\nkind: FeatureFlag\nname: w\nvalue: 3\n",
            "kind: Job\nname: w\n---\nkind: FeatureFlag\nname: w\nvalue: 0.5\n",
        ),
        (
            "- {kind: FeatureFlag, name: w, value: 1}\n- {kind: FeatureFlag, name: w, value: 2}\n",
            "- {kind: FeatureFlag, name: w, value: 1}\n- {kind: FeatureFlag, name: w, value: 0.5}\n",
        ),
        ("é: {value: 1}\nw: {value: 1}\n", "é: {value: 1}\nw: {value: 0.5}\n"),
        ("w: {value: 1}\r\nv: {value: 1}\r\n", "w: {value: 0.5}\r\nv: {value: 1}\r\n"),
        ("a: {value: .nan}\nw: {value: .inf}\n", "a: {value: .nan}\nw: {value: 0.5}\n"),
    ] {
        check("f.yaml", text, &change(Some(0.5)), expect);
    }
}

#[test]
fn an_exports_line_keeps_its_form_and_the_others_their_bytes() {
    let line = |value: &str| {
        format!(
            r#"{{"key": {{"path": [{{"kind": "FeatureFlag", "name": "w"}}]}}, "properties": {{"enabled": {{"booleanValue": true}}, "value": {{{value}}}, "description": {{"stringValue": "d"}}}}}}"#
        )
    };
    let other = r#"{"kind":"Job",  "name":"w"}"#;
    let text = |value| format!("{other}\n{}\n{other}\n", line(value));
    for (before, value, after) in [
        (r#""integerValue": "1""#, Some(0.5), r#""doubleValue": 0.5"#),
        (r#""doubleValue": 1.5"#, Some(0.0), r#""doubleValue": 0.0"#),
        (r#""nullValue": null"#, Some(2.0), r#""doubleValue": 2.0"#),
        (r#""doubleValue": 1.5"#, None, r#""nullValue": null"#),
    ] {
        check("f.jsonl", &text(before), &change(value), &text(after));
    }
}

#[test]
fn a_new_flag_is_added_in_the_files_own_form() {
    let made = Change { enabled: Some(true), ..change(Some(1.0)) };
    for (file, text, expect) in [
        ("f.yaml", "", "w: {enabled: true, value: 1.0}\n"),
        ("f.yaml", "# none yet", "# none yet\nw: {enabled: true, value: 1.0}\n"),
        ("f.yaml", "a: {value: 1}\n", "a: {value: 1}\nw: {enabled: true, value: 1.0}\n"),
        (
            "f.yaml",
            "- {kind: Job, name: a}",
            "- {kind: Job, name: a}\n- {kind: FeatureFlag, name: \"w\", enabled: true, value: 1.0}\n",
        ),
        (
            "f.yaml",
            "kind: Job\nname: a\n",
            "kind: Job\nname: a\n---\nkind: FeatureFlag\nname: \"w\"\nenabled: true\nvalue: 1.0\n",
        ),
        (
            "f.jsonl",
            "{\"kind\": \"Job\"}\n",
            "{\"kind\": \"Job\"}\n{\"kind\": \"FeatureFlag\", \"name\": \"w\", \"enabled\": true, \"value\": 1.0}\n",
        ),
    ] {
        let expect = expect.replacen("w: {", "\"w\": {", 1);
        check(file, text, &made, &expect);
    }
}

#[test]
fn several_properties_change_at_once_and_text_is_quoted() {
    let all = Change {
        enabled: Some(false),
        value: Some(None),
        string_value: Some("a: \"b\" # é\n{{ x }}".into()),
    };
    check(
        "f.yaml",
        "w: {enabled: true, value: 1}\n",
        &all,
        "w: {\"string_value\": \"a: \\\"b\\\" # é\\n{{ x }}\", enabled: false, value: null}\n",
    );
}

#[test]
fn a_layout_that_cannot_be_changed_in_place_is_refused_with_the_way_out() {
    for text in [
        "base: &b {enabled: true, value: 1}\nw: *b\n",
        "base: &b {enabled: true, value: 1}\nw:\n  <<: *b\n",
        "w: {enabled: true, value: !!float 1}\nv: {value: [}",
        "{a: {value: 1}}\n",
    ] {
        let made = Change { enabled: Some(true), ..change(Some(0.5)) };
        let error = edit_with("f.yaml", text, "w", &made).expect_err(text).to_string();
        assert!(error.contains("by hand") || error.contains("f.yaml:"), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn whatever_is_set_is_read_back_and_nothing_else_changes(
        value in proptest::option::of(-1e9..1e9_f64),
        text in proptest::option::of("[ -~éЖ]{0,20}"),
        enabled: bool,
        block: bool,
    ) {
        let before = if block {
            "a: {value: 1} # a\nw:\n  enabled: true # b\n  value: 1\n  string_value: 'x' # c\nz: {}\n"
        } else {
            "a: {value: 1} # a\nw: {enabled: true, value: 1, string_value: \"x\"} # b\nz: {}\n"
        };
        let change =
            Change { enabled: Some(enabled), value: Some(value), string_value: text };
        // `edit` itself compares what it wrote with what was wanted.
        let after = edit_with("f.yaml", before, "w", &change).expect("an edit");
        for kept in before.split(['\n', '{', '}', ',']).filter(|part| part.contains('#')) {
            let comment = kept.split('#').nth(1).unwrap_or_default();
            prop_assert!(after.contains(&format!("#{comment}")), "{}", after);
        }
    }
}
