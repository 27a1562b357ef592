//! Makes each inserted value one whole YAML scalar, and proves after the parse that it stayed one.
//!
//! A value is written as a JSON string, which is YAML too, and carries a mark at both ends. A mark
//! that is not at the end of a parsed scalar shows a value that was glued to other text, put into
//! quotes or cut by a comment. Where Kubernetes would expand `$` is `expansion`'s to say.

use std::io::{self, Write};

/// Opens an inserted value: private-use characters, so that no schema and no template needs them.
const OPEN: char = '\u{E000}';
/// Closes it.
const CLOSE: char = '\u{E001}';
/// Stands before a letter for a mark that the value itself holds.
const SHIFT: char = '\u{E002}';

/// Whether `c` is one of the characters that mark values; a template must not hold them.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c, OPEN | CLOSE | SHIFT)
}

/// Writes `text` as a marked, double-quoted scalar. Everything that YAML or a reader of it could
/// take for more than a character is written as `\u`: controls, line breaks of any kind, byte-order
/// marks and noncharacters.
pub(super) fn write_scalar(text: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "\"{OPEN}")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            OPEN => write!(out, "{SHIFT}a")?,
            CLOSE => write!(out, "{SHIFT}b")?,
            SHIFT => write!(out, "{SHIFT}c")?,
            c if is_plain(c) => write!(out, "{c}")?,
            c => write!(out, "\\u{:04x}", u32::from(c))?,
        }
    }
    write!(out, "{CLOSE}\"")
}

/// Characters that stand for themselves in a double-quoted YAML scalar (YAML 1.2, `nb-json` and
/// `c-printable`). What is left out lies below U+10000, so that four digits always do.
fn is_plain(c: char) -> bool {
    match c {
        '\u{2028}' | '\u{2029}' | '\u{FEFF}' => false,
        ' '..='~' | '\u{A0}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' => true,
        c => c >= '\u{10000}',
    }
}

/// A scalar as it was parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    /// The template's own text.
    Literal,
    /// One inserted value, marks taken off.
    Inserted(String),
    /// An inserted value with something around it.
    Mixed,
}

/// Tells what a parsed scalar is made of.
pub(super) fn read_scalar(text: &str) -> Scalar {
    if !text.contains(is_mark) {
        return Scalar::Literal;
    }
    let Some(inner) = text.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)) else {
        return Scalar::Mixed;
    };
    let mut value = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match (c, if c == SHIFT { chars.next() } else { None }) {
            (SHIFT, Some('a')) => value.push(OPEN),
            (SHIFT, Some('b')) => value.push(CLOSE),
            (SHIFT, Some('c')) => value.push(SHIFT),
            (OPEN | CLOSE | SHIFT, _) => return Scalar::Mixed,
            (c, _) => value.push(c),
        }
    }
    Scalar::Inserted(value)
}

/// The first line (from 1) of a rendered text that holds an inserted value with something else
/// around it than what structures YAML.
pub(super) fn misplaced_line(text: &str) -> Option<usize> {
    let whole = |line: &str| {
        let mut parts = line.split(OPEN);
        let before = parts.next().unwrap_or_default().trim_end_matches('"').trim();
        let opens_well = before.is_empty() || before.ends_with([':', '-', ',', '[', '{', '?']);
        let quoted = line.matches(OPEN).count() == line.matches(&format!("\"{OPEN}")).count();
        opens_well
            && quoted
            && parts.all(|part| {
                let after = part.rsplit(CLOSE).next().unwrap_or_default();
                after.strip_prefix('"').is_some_and(|rest| {
                    let rest = rest.trim_end();
                    rest.is_empty()
                        || rest == ":"
                        || rest.starts_with(": ")
                        || rest.trim_start().starts_with([',', ']', '}'])
                        || rest.starts_with(" #")
                })
            })
    };
    text.lines().position(|line| line.contains(OPEN) && !whole(line)).map(|index| index + 1)
}

/// A rendered line as a person should see it: without marks.
pub(super) fn shown(line: &str) -> String {
    line.chars().filter(|c| !is_mark(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(text: &str) -> String {
        let mut out = Vec::new();
        write_scalar(text, &mut out).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[track_caller]
    fn survives(text: &str) {
        let yaml = format!("key: {}\n", scalar(text));
        let parsed: std::collections::BTreeMap<String, serde_json::Value> =
            serde_saphyr::from_str(&yaml).expect("valid YAML");
        let parsed = parsed["key"].as_str().expect("a string");
        assert_eq!(read_scalar(parsed), Scalar::Inserted(text.to_owned()));
    }

    #[test]
    fn every_character_survives_the_round_trip() {
        for start in (0..=0x10_FFFF_u32).step_by(0x400) {
            // Astral planes are all alike: a few blocks of each do.
            if start < 0x1_1000 || start % 0x1_0000 >= 0xFC00 {
                let block: String = (start..start + 0x400).filter_map(char::from_u32).collect();
                survives(&block);
            }
        }
    }

    #[test]
    fn look_alikes_stay_strings() {
        for text in ["no", "007", "1e3", "null", "~", "true", "", " ", "- a", "a: b", "# c", "*a"] {
            survives(text);
        }
    }

    #[test]
    fn a_value_with_company_is_mixed() {
        let value = scalar("v");
        for yaml in [format!("gcr.io/{value}"), format!("'{value}'"), format!("a {value} b")] {
            let parsed: serde_json::Value = serde_saphyr::from_str(&yaml).expect("valid YAML");
            assert_eq!(read_scalar(parsed.as_str().expect("a string")), Scalar::Mixed, "{yaml}");
            assert_eq!(misplaced_line(&format!("a: b\nk: {yaml}\n")), Some(2), "{yaml}");
        }
        assert_eq!(read_scalar("plain"), Scalar::Literal);
        assert_eq!(misplaced_line(&format!("a: {value}\n- {value}\n{value}: {value}\n")), None);
    }
}
