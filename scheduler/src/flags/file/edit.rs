//! One flag changed in a file's text, and nothing else: comments, order and layout stay.
//!
//! Pure. Values are replaced where they stand, missing ones put in. Whatever comes out is read
//! again, and counts only if it says exactly what was wanted: an unusual layout is refused, never
//! harmed.

use std::ops::Range;
use std::path::Path;

use super::{KIND, parse};
use crate::flags::change::{Change, ChangeError};
use crate::flags::{Flag, FlagSet};
use crate::located::entities::{is_json_lines, yaml_pieces};
use crate::located::spans::{Spot, Spots};

/// The text with the flag `name` as `after`, which `change` made of what is there.
///
/// # Errors
/// [`ChangeError`]: the text can't be read, or can't be changed without rewriting it.
pub fn edit(
    path: &Path,
    text: &str,
    name: &str,
    change: &Change,
    after: &Flag,
) -> Result<String, ChangeError> {
    let mut wanted = parse(path, text)?;
    let there = wanted.0.insert(name.to_owned(), after.clone()).is_some();
    let edited = if there {
        changed(path, text, name, &literals(change, after, false))
    } else {
        Some(added(path, text, name, &literals(change, after, true)))
    };
    match edited {
        Some(edited) if says(path, &edited, &wanted) => Ok(edited),
        _ => Err(ChangeError::Write(format!(
            "{} is laid out in a way that can't be changed in place; change `{name}` there by hand",
            path.display()
        ))),
    }
}

/// Whether a text says so. `NaN` is like itself here.
fn says(path: &Path, text: &str, wanted: &FlagSet) -> bool {
    parse(path, text).is_ok_and(|got| format!("{got:?}") == format!("{wanted:?}"))
}

/// A property's new value, as JSON, which is YAML too.
struct Literal {
    name: &'static str,
    kind: &'static str,
    json: String,
}

fn literals(change: &Change, after: &Flag, all: bool) -> Vec<Literal> {
    let mut literals = Vec::new();
    if all || change.enabled.is_some() {
        let json = after.enabled.to_string();
        literals.push(Literal { name: "enabled", kind: "booleanValue", json });
    }
    if change.value.is_some() {
        // `1.0`, not `1`: ClusterFuzz takes a weight only where Python reads a float.
        let (kind, json) = match after.value {
            Some(value) => ("doubleValue", format!("{value:?}")),
            None => ("nullValue", "null".to_owned()),
        };
        literals.push(Literal { name: "value", kind, json });
    }
    if change.string_value.is_some() {
        let json = quoted(after.string_value.as_deref().unwrap_or_default());
        literals.push(Literal { name: "string_value", kind: "stringValue", json });
    }
    literals
}

fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// The parts of a file that are documents: where each begins, and its text.
fn pieces<'a>(path: &Path, text: &'a str) -> Vec<(usize, &'a str)> {
    if !is_json_lines(path, text.trim_start_matches('\u{feff}')) {
        return yaml_pieces(text).into_iter().map(|piece| (piece.start, piece.text)).collect();
    }
    let mut start = 0;
    let place = |line: &'a str| {
        let at = start;
        start += line.len();
        (at, line)
    };
    text.split_inclusive('\n').map(place).collect()
}

fn changed(path: &Path, text: &str, name: &str, literals: &[Literal]) -> Option<String> {
    // A flag that stands there twice is the last one.
    let mut found = None;
    for (start, piece) in pieces(path, text) {
        let Some(root) = Spot::parse(piece) else { continue };
        if let Some(flag) = find(&root, name) {
            let edits: Option<Vec<_>> =
                literals.iter().map(|literal| put(piece, flag, literal)).collect();
            found = Some((start, edits));
        }
    }
    let (start, edits) = found?;
    let mut edits = edits?;
    // From the end, so that the places before stay where they are.
    edits.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = text.to_owned();
    for (span, new) in edits {
        let span = start + span.start..start + span.end;
        text.get(span.clone())?;
        text.replace_range(span, &new);
    }
    Some(text)
}

/// The properties of the flag, in any of the forms that flags are read in.
fn find<'a>(root: &'a Spot, name: &str) -> Option<&'a Spot> {
    match &root.value {
        Spots::List(items) => items.iter().rev().find_map(|item| entity(item, name)),
        Spots::Map(_) => entity(root, name).or_else(|| root.get(name)),
        Spots::Scalar(_) => None,
    }
}

fn entity<'a>(spot: &'a Spot, name: &str) -> Option<&'a Spot> {
    let spot = spot.get("entity").unwrap_or(spot);
    let last = spot.get("key").and_then(|key| key.get("path")).and_then(|path| match &path.value {
        Spots::List(items) => items.last(),
        _ => None,
    });
    let properties = spot.get("properties").unwrap_or(spot);
    let part = |key: &str| last.and_then(|part| part.get(key)).and_then(Spot::text);
    let kind = spot.get("kind").and_then(Spot::text).or_else(|| part("kind"));
    let own = || {
        let own = properties.get("name")?;
        own.text().or_else(|| own.get("stringValue").and_then(Spot::text))
    };
    (kind == Some(KIND) && part("name").or_else(own) == Some(name)).then_some(properties)
}

/// The edit that gives a property its value.
fn put(piece: &str, flag: &Spot, literal: &Literal) -> Option<(Range<usize>, String)> {
    let Some((_, key, value)) = flag.entries().iter().rev().find(|(key, ..)| key == literal.name)
    else {
        return insert(piece, flag, literal.name, &literal.json);
    };
    match &value.value {
        Spots::Scalar(_) if value.span.is_empty() => {
            let colon = key.end + piece.get(key.end..)?.find(':')? + 1;
            Some((colon..colon, format!(" {}", literal.json)))
        }
        Spots::Scalar(_) => Some((value.span.clone(), literal.json.clone())),
        // Datastore's typed form: the type changes with the value.
        Spots::Map(entries) => {
            let is_typed = |(key, ..): &&(String, Range<usize>, Spot)| key.ends_with("Value");
            let (_, at, typed) = entries.iter().find(is_typed)?;
            let ends = matches!(typed.value, Spots::Scalar(_)) && !typed.span.is_empty();
            let new = format!("\"{}\": {}", literal.kind, literal.json);
            ends.then_some((at.start..typed.span.end, new))
        }
        Spots::List(_) => None,
    }
}

/// Puts a key in before the first one of a mapping, in its layout.
fn insert(piece: &str, map: &Spot, key: &str, json: &str) -> Option<(Range<usize>, String)> {
    let (_, first, _) = map.entries().iter().min_by_key(|(_, at, _)| at.start)?;
    let before = piece.get(..first.start)?;
    let at = first.start..first.start;
    if before.trim_end().ends_with('{') {
        return Some((at, format!("\"{key}\": {json}, ")));
    }
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let indent = " ".repeat(before.get(line..)?.chars().count());
    Some((at, format!("{key}: {json}\n{indent}")))
}

/// A new flag, in the file's own form.
fn added(path: &Path, text: &str, name: &str, literals: &[Literal]) -> String {
    let json = is_json_lines(path, text);
    let properties: Vec<String> = literals
        .iter()
        .map(|l| {
            if json {
                format!("\"{}\": {}", l.name, l.json)
            } else {
                format!("{}: {}", l.name, l.json)
            }
        })
        .collect();
    let properties = properties.join(", ");
    let pieces = pieces(path, text);
    let root = pieces.last().and_then(|(_, piece)| Spot::parse(piece));
    let line = match root.map(|root| root.value) {
        _ if json => {
            format!("{{\"kind\": \"{KIND}\", \"name\": {}, {properties}}}", quoted(name))
        }
        Some(Spots::List(items)) => {
            let indent = pieces.last().map(|(_, piece)| indent_of_list(piece, &items));
            let indent = indent.unwrap_or_default();
            format!("{indent}- {{kind: {KIND}, name: {}, {properties}}}", quoted(name))
        }
        Some(Spots::Map(entries)) if entries.iter().any(|(key, ..)| key == "kind") => {
            format!("---\nkind: {KIND}\nname: {}\n{}", quoted(name), properties.replace(", ", "\n"))
        }
        _ => format!("{}: {{{properties}}}", plain_or_quoted(name)),
    };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{line}\n")
}

fn indent_of_list(piece: &str, items: &[Spot]) -> String {
    let first =
        items.first().and_then(|item| item.entries().first()).map_or(0, |(_, at, _)| at.start);
    let before = piece.get(..first).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    before.get(line..).unwrap_or_default().chars().take_while(|c| *c == ' ').collect()
}

/// A name that can't be taken for anything else stands without quotes.
fn plain_or_quoted(name: &str) -> String {
    let is_plain = name.contains('_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if is_plain { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests;
