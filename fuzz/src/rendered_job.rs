//! Rendered text becomes a Job that says exactly what the text says, or an error.

use k8s_openapi::api::batch::v1::Job;
use katabatch::render::parse_strict;

/// Reads `data` as what a template rendered.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(job) = parse_strict(&text) else { return };
    let written = escaped(&serde_json::to_string(&job).expect("a Job can be written"));
    // JSON is YAML, but for what YAML does not take unescaped: what was read is read again, the same.
    let again: Job = parse_strict(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(again, job);
}

fn escaped(json: &str) -> String {
    let escape = |c: char| match c {
        ' '..='~' => c.to_string(),
        c => format!("\\U{:08X}", u32::from(c)),
    };
    json.chars().map(escape).collect()
}
