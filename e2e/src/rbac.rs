//! The ServiceAccount, Role and RoleBinding that we ship, as they are and with a right taken away.

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

/// The manifests, as they are in the repository.
///
/// # Errors
/// When the file can't be read.
pub fn rbac() -> Result<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/rbac.yaml");
    std::fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// The documents of the manifests.
///
/// # Errors
/// When they can't be read.
pub fn documents() -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(&rbac()?).map_err(|error| anyhow!("rbac.yaml isn't YAML: {error}"))
}

/// The texts of a list.
pub fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The manifests less one right.
///
/// # Errors
/// When they can't be read, or don't give that right once.
pub fn without(verb: &str, resource: &str) -> Result<String> {
    let mut documents = documents()?;
    let mut removed = 0;
    for document in &mut documents {
        let rules = document.get_mut("rules").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            let applies = texts(&rule["resources"]).any(|of| of == resource);
            if let Some(verbs) = rule["verbs"].as_array_mut().filter(|_| applies) {
                let before = verbs.len();
                verbs.retain(|of| of != verb);
                removed += before - verbs.len();
            }
        }
    }
    ensure!(removed == 1, "the Role has no right to {verb} {resource}");
    let texts: Vec<_> = documents.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}
