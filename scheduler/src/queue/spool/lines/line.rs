//! One JSON line → one message.
//!
//! Only flat objects are allowed, so the object is split here and each value read by serde_json:
//! that keeps numbers as they are written, finds keys given twice, and lets errors name the key
//! without showing a value.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::queue::spool::record::NewMessage;

/// The longest message id, in bytes.
const MAX_ID: usize = 1_024;

/// What is wrong with a line. Never says what the line says, but for known keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Over [`MAX_LINE`](super::MAX_LINE).
    #[error("is longer than {} bytes", super::MAX_LINE)]
    TooLong,
    /// Not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
    /// Not JSON, or no object.
    #[error("is not a JSON object ({problem} at column {column})")]
    NotObject {
        /// What was found or missed.
        problem: &'static str,
        /// The byte, from 1.
        column: usize,
    },
    /// A value that is null, an array or an object.
    #[error(
        "the value of key {key} (counted from 1) is {kind}; it must be a string, number or boolean"
    )]
    Nested {
        /// Which key of the line, from 1.
        key: usize,
        /// `null`, `an array` or `an object`.
        kind: &'static str,
    },
    /// A key given twice, by another name of it too.
    #[error("key {key} (counted from 1) was given before{}", .alias.map(|a| format!(" (as `{a}` too)")).unwrap_or_default())]
    Twice {
        /// Which key of the line, from 1.
        key: usize,
        /// The known name that two keys of the line mean.
        alias: Option<&'static str>,
    },
    /// A key that must be there is not, or is empty.
    #[error("`{0}` is missing or empty")]
    Missing(&'static str),
    /// A known key's value is not what it must be.
    #[error("`{name}` must be {expected}")]
    Invalid {
        /// The key.
        name: &'static str,
        /// What would be right.
        expected: &'static str,
    },
}

/// Reads one line: `command`, `job` (or `job_type`) and `argument` (or `input_url`, `url`) must be
/// there; `id`, `attempts`, `not_before` and `timeout` are the spool's own; all other keys are
/// attributes.
///
/// # Errors
/// [`BadLine`] says what is wrong.
pub fn parse(text: &str) -> Result<NewMessage, BadLine> {
    let mut attributes = flat_object(text)?;
    for name in ["command", "job", "argument"] {
        if attributes.get(name).is_none_or(|value| value.trim().is_empty()) {
            return Err(BadLine::Missing(name));
        }
    }
    let mut take = |name| attributes.remove(name);
    let id = take("id").map(id).transpose()?;
    let attempts = take("attempts").map(|text| attempts(&text)).transpose()?;
    let not_before = take("not_before").map(|text| not_before(&text)).transpose()?;
    let timeout = take("timeout").map(|text| timeout(&text)).transpose()?;
    Ok(NewMessage { id, attributes, attempts, not_before, timeout })
}

fn id(text: String) -> Result<String, BadLine> {
    let right = !text.is_empty() && text.len() <= MAX_ID && !text.contains(char::is_control);
    right.then_some(text).ok_or(BadLine::Invalid {
        name: "id",
        expected: "1 to 1,024 bytes of text without control characters",
    })
}

fn attempts(text: &str) -> Result<u32, BadLine> {
    let expected = "a whole number above 0";
    text.parse().ok().filter(|n| *n > 0).ok_or(BadLine::Invalid { name: "attempts", expected })
}

fn not_before(text: &str) -> Result<Timestamp, BadLine> {
    let seconds = || {
        let seconds = text.parse::<f64>().ok().filter(|s| s.is_finite())?;
        // Microseconds are what the spool keeps; a float of today's date holds them.
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and jiff checks")]
        Timestamp::from_microsecond((seconds * 1e6) as i64).ok()
    };
    text.parse().ok().or_else(seconds).ok_or(BadLine::Invalid {
        name: "not_before",
        expected: "a time such as 2026-03-01T00:00:00Z, or a number of Unix seconds",
    })
}

fn timeout(text: &str) -> Result<Duration, BadLine> {
    let seconds = text.parse::<u32>().ok().filter(|s| *s > 0);
    seconds
        .map(|s| Duration::from_secs(s.into()))
        .ok_or(BadLine::Invalid { name: "timeout", expected: "a whole number of seconds above 0" })
}

/// The name that ClusterFuzz's messages use for what a key means.
fn canonical(key: &str) -> Option<&'static str> {
    match key {
        "job" | "job_type" => Some("job"),
        "argument" | "input_url" | "url" => Some("argument"),
        _ => None,
    }
}

fn flat_object(text: &str) -> Result<BTreeMap<String, String>, BadLine> {
    let mut rest = Scanner { text, at: 0 };
    let mut attributes = BTreeMap::new();
    rest.expect('{', "`{` is missing")?;
    if !rest.take('}') {
        for key in 1.. {
            let name = rest.string("a key in quotes is missing")?;
            rest.expect(':', "`:` is missing")?;
            let value = rest.scalar(key)?;
            let alias = canonical(&name);
            let name = alias.map_or(name, str::to_owned);
            if attributes.insert(name, value).is_some() {
                return Err(BadLine::Twice { key, alias });
            }
            if rest.take('}') {
                break;
            }
            rest.expect(',', "`,` or `}` is missing")?;
        }
    }
    if rest.left().is_empty() {
        Ok(attributes)
    } else {
        Err(rest.bad("something follows the object"))
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// What is left, without white space before it (as JSON has it).
    fn left(&mut self) -> &'a str {
        let left = self.text.get(self.at..).unwrap_or_default();
        let trimmed = left.trim_start_matches([' ', '\t', '\r', '\n']);
        self.at = self.text.len() - trimmed.len();
        trimmed
    }

    fn bad(&self, problem: &'static str) -> BadLine {
        BadLine::NotObject { problem, column: self.at + 1 }
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.left().starts_with(mark);
        self.at += if found { mark.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, mark: char, problem: &'static str) -> Result<(), BadLine> {
        if self.take(mark) { Ok(()) } else { Err(self.bad(problem)) }
    }

    fn string(&mut self, missing: &'static str) -> Result<String, BadLine> {
        let left = self.left();
        if !left.starts_with('"') {
            return Err(self.bad(missing));
        }
        let mut escaped = false;
        let end = left.bytes().skip(1).position(|byte| match byte {
            _ if escaped => {
                escaped = false;
                false
            }
            b'\\' => {
                escaped = true;
                false
            }
            byte => byte == b'"',
        });
        let quoted = end.and_then(|end| left.get(..end + 2));
        let quoted = quoted.ok_or_else(|| self.bad("a string has no end"))?;
        let value =
            serde_json::from_str(quoted).map_err(|_| self.bad("a string has a bad escape"))?;
        self.at += quoted.len();
        Ok(value)
    }

    /// A string, number or boolean as text; the latter two as they are written.
    fn scalar(&mut self, key: usize) -> Result<String, BadLine> {
        let left = self.left();
        let nested = |kind| Err(BadLine::Nested { key, kind });
        match left.bytes().next() {
            Some(b'"') => return self.string("a value is missing"),
            Some(b'{') => return nested("an object"),
            Some(b'[') => return nested("an array"),
            _ => {}
        }
        let end = left.find([' ', '\t', '\r', '\n', ',', '}', ']', ':']).unwrap_or(left.len());
        let word = left.get(..end).unwrap_or_default();
        match word {
            "null" => return nested("null"),
            "true" | "false" => {}
            number if serde_json::from_str::<serde_json::Number>(number).is_ok() => {}
            _ => return Err(self.bad("a value is missing or is no JSON value")),
        }
        self.at += end;
        Ok(word.to_owned())
    }
}

#[cfg(test)]
mod tests;
