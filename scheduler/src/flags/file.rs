//! Flags from files: `FeatureFlag` entities in YAML or JSON lines, or a plain mapping of names.
//!
//! The files, of this machine or in Cloud Storage, are read anew each time, as they are small; one
//! that can't be read in full is an error, never fewer flags. Whether a number makes sense as a weight is for the gate to say.

mod edit;
mod replace;

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::change::{Change, ChangeError};
use super::store::Changed;
use super::{Flag, FlagSet, FlagSource, FlagsError};
use crate::config::files::{Files, remote_address};
use crate::located::entities::{Entity, Fault, documents, read};
use crate::located::problem::nearest;
use crate::located::tree::{Entry, Node, Value};

/// The kind of the entities that are flags.
const KIND: &str = "FeatureFlag";

/// Flags in files. Without any file there are no flags.
#[derive(Debug, Clone)]
pub struct FileFlags {
    at: Files,
    files: Vec<PathBuf>,
}

impl FileFlags {
    /// Flags from all of `files` of the file system; a flag that stands in several is the last
    /// one's.
    pub fn new(files: Vec<PathBuf>) -> Self {
        Self::read_in(Files::default(), files)
    }

    /// As [`new`](Self::new), from wherever `at` reads them.
    pub fn read_in(at: Files, files: Vec<PathBuf>) -> Self {
        Self { at, files }
    }

    /// Changes one flag where it stands last, or puts a new one into the last file; everything
    /// else in the file stays as it is, to the byte. The file is replaced as a whole, and not where
    /// somebody else has changed it since it was read. Waits for the file system, or what else has
    /// the file.
    ///
    /// # Errors
    /// [`ChangeError`]; the file is as it was then.
    pub fn set(&self, name: &str, change: &Change) -> Result<Changed, ChangeError> {
        let mut all = FlagSet::default();
        let mut at = None;
        for file in &self.files {
            let text = self.text(file)?;
            let flags = parse(file, &text)?;
            if at.is_none() || flags.0.contains_key(name) || !all.0.contains_key(name) {
                at = Some((file, text));
            }
            all.0.extend(flags.0);
        }
        let Some((file, text)) = at else {
            let hint = "no flags are configured; write `flags: {file: flags.yaml}`";
            return Err(ChangeError::Write(hint.into()));
        };
        let before = all.0.get(name).cloned();
        let after = change.apply(name, before.as_ref()).map_err(|error| error.with_near(&all))?;
        let edited = edit::edit(file, &text, name, change, &after)?;
        let replaced = match remote_address(file) {
            None => replace::replace(file, &text, &edited),
            Some(address) => self
                .at
                .remote(address)
                .and_then(|remote| remote.replace(address, text.as_bytes(), edited.as_bytes())),
        };
        replaced.map_err(|error| ChangeError::Write(format!("{}: {error}", file.display())))?;
        Ok(Changed { before, after, place: file.display().to_string() })
    }

    fn all(&self) -> Result<FlagSet, FlagsError> {
        let mut flags = FlagSet::default();
        for file in &self.files {
            flags.0.extend(parse(file, &self.text(file)?)?.0);
        }
        Ok(flags)
    }

    fn text(&self, file: &Path) -> Result<String, FlagsError> {
        self.at.read_text(file).map_err(|error| FlagsError(format!("{}: {error}", file.display())))
    }
}

#[async_trait]
impl FlagSource for FileFlags {
    async fn read(&self) -> Result<FlagSet, FlagsError> {
        // Off the threads that must not wait.
        let flags = self.clone();
        let read = tokio::task::spawn_blocking(move || flags.all()).await;
        read.unwrap_or_else(|panic| Err(FlagsError(panic.to_string())))
    }
}

/// Reads the text of the file at `path`.
///
/// # Errors
/// With file and line, when any flag can't be read.
pub fn parse(path: &Path, text: &str) -> Result<FlagSet, FlagsError> {
    let fault = |fault: Fault| FlagsError(format!("{}:{fault}", path.display()));
    let mut flags = FlagSet::default();
    if let [Ok(node)] = documents(path, text).as_slice()
        && let Some(entries) = shorthand(node)
    {
        for (name, node) in entries {
            known_keys(node).map_err(fault)?;
            let entity = Entity::of_kind(KIND, node.clone()).map_err(fault)?;
            flags.0.insert(name.to_owned(), flag(&entity).map_err(fault)?);
        }
        return Ok(flags);
    }
    for entity in read(path, text) {
        let entity = entity.map_err(fault)?;
        if entity.kind == KIND {
            let name = name(&entity).map_err(fault)?;
            flags.0.insert(name, flag(&entity).map_err(fault)?);
        }
    }
    Ok(flags)
}

/// A mapping of flags by name, when it is no entity itself.
fn shorthand(node: &Node) -> Option<Vec<(&str, &Node)>> {
    let Value::Map(entries) = &node.value else { return None };
    let is_entity = entries.iter().any(|entry| {
        entry.key == "kind" && entry.value.as_text().is_some()
            || matches!(entry.key.as_str(), "key" | "entity")
                && entry.value.get("enabled").is_none()
    });
    (!is_entity).then(|| entries.iter().map(|e| (e.key.as_str(), &e.value)).collect())
}

/// The mapping is written by hand: a misspelt `enabled` would turn a backend off unseen.
fn known_keys(node: &Node) -> Result<(), Fault> {
    const KNOWN: [&str; 4] = ["enabled", "value", "string_value", "description"];
    let Value::Map(entries) = &node.value else { return Ok(()) };
    match entries.iter().find(|entry| !KNOWN.contains(&entry.key.as_str())) {
        None => Ok(()),
        Some(Entry { key, line, .. }) => {
            let hint = match nearest(key, KNOWN) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys here: {}", KNOWN.join(", ")),
            };
            let problem = format!("`{key}` is not a known key of a flag; {hint}");
            Err(Fault { line: *line, problem })
        }
    }
}

/// Its key's name in Datastore, the property `name` in files written by hand.
fn name(entity: &Entity) -> Result<String, Fault> {
    let name = match &entity.key_name {
        Some(name) => Some(name.clone()),
        None => entity.text("name")?,
    };
    name.ok_or_else(|| Fault { line: entity.line, problem: "the flag has no name".into() })
}

fn flag(entity: &Entity) -> Result<Flag, Fault> {
    let number = entity.number("value")?;
    Ok(Flag {
        enabled: entity.boolean("enabled")?.unwrap_or(false),
        value: number.map(|number| number.value),
        integer: number.is_some_and(|number| number.integer),
        string_value: entity.text("string_value")?,
        // Nothing depends on it: whatever else it is, no flag fails for it.
        description: entity.text("description").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(name: &str, text: &str) -> FlagSet {
        parse(Path::new(name), text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn an_integer_weight_is_a_number_in_every_form() {
        for (name, integer, text) in [
            ("f.yaml", true, "w: {enabled: true, value: 1}"),
            ("f.yaml", false, "w: {enabled: true, value: 1.0}"),
            (
                "f.yaml",
                true,
                "- {kind: FeatureFlag, name: w, enabled: true, value: 1}\n- {kind: Job}",
            ),
            (
                "f.jsonl",
                true,
                r#"{"key": {"path": [{"kind": "FeatureFlag", "name": "w"}]}, "properties": {"enabled": {"booleanValue": true}, "value": {"integerValue": "1"}, "string_value": {"nullValue": null}}}"#,
            ),
        ] {
            let expect = Flag { enabled: true, value: Some(1.0), integer, ..Flag::default() };
            assert_eq!(flags(name, text).0.get("w"), Some(&expect), "{text}");
        }
    }

    #[test]
    fn odd_numbers_are_kept_for_the_gate_to_judge() {
        let set =
            flags("f.yaml", "a: {value: .nan}\nb: {value: -1}\nc: {enabled: true, value: }\n");
        let value = |name: &str| set.0.get(name).and_then(|flag| flag.value);
        assert!(value("a").is_some_and(f64::is_nan));
        assert_eq!((value("b"), value("c")), (Some(-1.0), None));
        assert_eq!(set.0.get("b").map(|flag| flag.enabled), Some(false));
    }

    #[test]
    fn a_flag_that_cannot_be_read_is_an_error_with_its_line() {
        for (text, expect) in [
            ("a: {enabled: true}\nb: {enabled: maybe}", "f.yaml:2: `enabled` is text"),
            ("a: {value: '1'}", "f.yaml:1: `value` is text, a number is wanted"),
            ("a: 1", "f.yaml:1: is a whole number, no entity"),
            ("a: [", "f.yaml:"),
            ("a: {enabld: true}", "f.yaml:1: `enabld` is not a known key of a flag; did you mean"),
            ("- {kind: FeatureFlag, enabled: true}", "the flag has no name"),
        ] {
            let error = parse(Path::new("f.yaml"), text).expect_err(text).to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn a_remote_file_is_read_and_changed_like_one_of_this_machine() {
        use crate::config::files::testing::InMemory;
        let remote = std::sync::Arc::new(InMemory::default());
        remote.put("gs://b/f.yaml", "w: {enabled: true, value: 1} # mine\n");
        let flags = FileFlags::read_in(Files::with(remote.clone()), vec!["gs://b/f.yaml".into()]);
        let change = Change { value: Some(Some(0.5)), ..Change::default() };
        let changed = flags.set("w", &change).expect("set");
        assert_eq!(changed.before.and_then(|flag| flag.value), Some(1.0));
        assert_eq!(changed.place, "gs://b/f.yaml");
        let read = flags.read().await.expect("read");
        assert_eq!(read.0.get("w").and_then(|flag| flag.value), Some(0.5));
        remote.set_away(true);
        assert_eq!(
            flags.read().await.expect_err("away").to_string(),
            "the flags can't be read: gs://b/f.yaml: the remote is away"
        );
    }

    #[tokio::test]
    async fn an_unreadable_file_is_an_error_and_no_file_is_no_flags() {
        assert_eq!(FileFlags::new(Vec::new()).read().await, Ok(FlagSet::default()));
        assert!(FileFlags::new(vec!["/nowhere/f.yaml".into()]).read().await.is_err());
    }
}
