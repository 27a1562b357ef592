//! Every form of an entity is the same entity.

use super::*;

fn one(name: &str, text: &str) -> Entity {
    let mut entities = read(Path::new(name), text);
    assert_eq!(entities.len(), 1, "{text}");
    entities.remove(0).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

#[test]
fn every_form_of_an_entity_is_the_same_entity() {
    for (name, text) in [
        ("a.yaml", "kind: Job\nname: x\ntemplates: [t]\nvalue: 1\nproject:\non: true\n"),
        ("a.yaml", "- {kind: Job, name: x, templates: [t], value: 1.0, project: null, on: true}\n"),
        (
            "a.json",
            "[{\"kind\": \"Job\", \"name\": \"x\", \"templates\": [\"t\"], \"value\": 1, \"on\": true}]",
        ),
        (
            "a.jsonl",
            r#"{"kind": "Job", "properties": {"name": "x", "templates": ["t"], "value": 1, "on": true}}"#,
        ),
        (
            "a.jsonl",
            r#"{"kind": "Job", "properties": {"name": {"stringValue": "x", "excludeFromIndexes": true}, "templates": {"arrayValue": {"values": [{"stringValue": "t"}]}}, "value": {"integerValue": "1"}, "project": {"nullValue": null}, "on": {"booleanValue": true}}}"#,
        ),
        (
            "a.json",
            r#"{"entity": {"key": {"partitionId": {}, "path": [{"kind": "Job", "id": "5"}]}, "properties": {"name": {"stringValue": "x"}, "templates": {"arrayValue": {"values": [{"stringValue": "t"}]}}, "value": {"doubleValue": 1}, "on": {"booleanValue": true}}}}"#,
        ),
    ] {
        let entity = one(name, text);
        assert_eq!(entity.kind, "Job", "{text}");
        assert_eq!(entity.text("name"), Ok(Some("x".into())), "{text}");
        assert_eq!(entity.texts("templates"), Ok(vec!["t".into()]), "{text}");
        assert!(entity.number("value").is_ok_and(|v| v.is_some_and(|v| v.value == 1.0)), "{text}");
        assert_eq!(entity.text("project"), Ok(None), "{text}");
        assert_eq!(entity.boolean("on"), Ok(Some(true)), "{text}");
    }
}

#[test]
fn names_that_look_like_other_things_stay_text() {
    for name in ["no", "007", "1e3", "5", "0x10", "1_0"] {
        let entity = one("a.yaml", &format!("{{kind: Job, name: {name}}}"));
        assert_eq!(entity.text("name"), Ok(Some(name.into())), "{name}");
    }
    for name in ["null", "~", "true"] {
        let entity = one("a.yaml", &format!("{{kind: Job, name: '{name}'}}"));
        assert_eq!(entity.text("name"), Ok(Some(name.into())), "{name}");
    }
}

#[test]
fn doubles_that_json_has_no_number_for_are_numbers() {
    let entity = one("a.jsonl", r#"{"kind": "F", "value": {"doubleValue": "NaN"}}"#);
    assert!(entity.number("value").is_ok_and(|v| v.is_some_and(|v| v.value.is_nan())));
}

#[test]
fn a_broken_line_or_document_harms_no_other_and_has_its_line() {
    let lines = read(
        Path::new("a.jsonl"),
        "{\"kind\":\"Job\",\"name\":\"a\"}\n\n{\"kind\":\n{\"name\":\"b\"}\n7\n{\"kind\":\"Job\"}\n",
    );
    let shown: Vec<_> =
        lines.iter().map(|e| e.as_ref().map(|e| e.line).map_err(|fault| fault.line)).collect();
    assert_eq!(shown, [Ok(1), Err(3), Err(4), Err(5), Ok(6)]);

    let text = "# first\n%YAML 1.2\n---\nkind: Job\nname: a\n---\nkind: [\n--- \n- kind: Job\n  name: |\n    ---\n- 7\n";
    let documents = read(Path::new("a.yaml"), text);
    let shown: Vec<_> =
        documents.iter().map(|e| e.as_ref().map(|e| e.line).map_err(|fault| fault.line)).collect();
    assert_eq!(shown.first(), Some(&Ok(4)));
    assert!(matches!(shown.get(1), Some(Err(6..=8))), "{shown:?}");
    assert_eq!(shown.get(2..), Some([Ok(9), Err(12)].as_slice()));
}

#[test]
fn a_property_of_another_type_is_named_with_its_line() {
    let entity = one("a.yaml", "kind: Job\nname: [a]\ntemplates: t\nother: [1]\n");
    let line = |result: Result<(), Fault>| result.map_err(|fault| fault.to_string());
    assert_eq!(
        line(entity.text("name").map(drop)),
        Err("2: `name` is a list, text is wanted".into())
    );
    assert_eq!(
        line(entity.texts("templates").map(drop)),
        Err("3: `templates` is text, a list is wanted".into())
    );
    assert!(entity.texts("other").is_err());
}
