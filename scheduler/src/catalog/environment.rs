//! Environment strings of job types and templates, read as ClusterFuzz's Python reads them.
//!
//! Pure text: which variables matter is for the reader of the result. Nothing here can fail, since
//! a line that is no definition counts for nothing upstream; only a value that must be a size can
//! be wrong.

use std::collections::BTreeMap;

/// Variables by name.
pub type Environment = BTreeMap<String, String>;

/// Reads one environment string.
///
/// Lines end where Python's `str.splitlines` ends them. A line that starts with `#` or is blank is
/// skipped. `KEY = value` matches from the line's first character: one or more characters that are
/// neither a space nor `=`, white space, `=`, the rest; both are stripped. Later `=` and `#` belong
/// to the value, and the last definition of a key wins.
pub fn parse(text: &str) -> Environment {
    let mut environment = Environment::new();
    extend(&mut environment, text);
    environment
}

/// Lays several environment strings over one another: templates in order, then the job's own.
pub fn layered<'a>(layers: impl IntoIterator<Item = &'a str>) -> Environment {
    let mut environment = Environment::new();
    for text in layers {
        extend(&mut environment, text);
    }
    environment
}

fn extend(environment: &mut Environment, text: &str) {
    for line in text.split(is_line_end) {
        if line.starts_with('#') {
            continue;
        }
        // `\r\n` gives one blank line more, which counts for nothing, as does any blank line.
        let Some((key, value)) = definition(line) else { continue };
        environment.insert(key.to_owned(), value.to_owned());
    }
}

fn definition(line: &str) -> Option<(&str, &str)> {
    let end = line.find([' ', '='])?;
    let (key, rest) = line.split_at(end);
    let value = rest.trim_start_matches(is_space).strip_prefix('=')?;
    (!key.is_empty()).then(|| (key.trim_matches(is_space), value.trim_matches(is_space)))
}

/// Where Python's `str.splitlines` ends a line.
fn is_line_end(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// What Python's `str.strip` strips: Unicode white space and the four ASCII separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// Why a value is no disk size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no disk size; write a whole number of GB, such as 200, or None for the mapping's"
)]
pub struct BadSize(String);

/// A disk size in GB, read as the Python literal that upstream takes it for (`200`, `0x10`, `2_00`,
/// `"200"`, `200.0`, a comment after it). `None`, 0, False, an empty text and an empty container
/// mean that none is set.
///
/// # Errors
/// [`BadSize`]: no literal, negative, or no whole number.
pub fn disk_size_gb(text: &str) -> Result<Option<u64>, BadSize> {
    let bad = || BadSize(text.chars().take(80).collect());
    if text.is_empty() {
        return Ok(None);
    }
    let size = match literal(text) {
        Some(Literal::Nothing) => 0,
        Some(Literal::Whole(size)) => size,
        Some(Literal::Text(inside)) => match inside.trim_matches(is_space) {
            "" if inside.is_empty() => 0,
            digits => decimal(digits.strip_prefix('+').unwrap_or(digits), true).ok_or_else(bad)?,
        },
        None => return Err(bad()),
    };
    Ok((size > 0).then_some(size))
}

enum Literal<'a> {
    Nothing,
    Whole(u64),
    Text(&'a str),
}

/// A Python literal with nothing after it but a comment.
fn literal(text: &str) -> Option<Literal<'_>> {
    let text = text.trim_matches(is_space);
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        let (inside, after) = text.get(1..)?.split_once(quote)?;
        // An escape, or more text after this one: nobody writes a size so.
        return (!inside.contains('\\') && is_rest(after)).then_some(Literal::Text(inside));
    }
    let word = text.split('#').next().unwrap_or(text).trim_matches(is_space);
    if let Some(inside) = word.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        let empty = inside.trim_matches(is_space).is_empty();
        return if empty { Some(Literal::Nothing) } else { number(inside.trim_matches(is_space)) };
    }
    match word {
        "None" | "False" | "[]" | "{}" => Some(Literal::Nothing),
        _ => number(word),
    }
}

fn is_rest(after: &str) -> bool {
    let after = after.trim_start_matches(is_space);
    after.is_empty() || after.starts_with('#')
}

fn number(word: &str) -> Option<Literal<'_>> {
    let digits = word.strip_prefix('+').unwrap_or(word).trim_start_matches(is_space);
    let negative_zero =
        digits.strip_prefix('-').is_some_and(|rest| decimal(rest, false) == Some(0));
    if negative_zero {
        return Some(Literal::Nothing);
    }
    let based = |prefixes: [&str; 2], radix| {
        let rest = prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix))?;
        // Python takes one underscore right after the prefix.
        of_radix(rest.strip_prefix('_').unwrap_or(rest), radix)
    };
    based(["0x", "0X"], 16)
        .or_else(|| based(["0o", "0O"], 8))
        .or_else(|| based(["0b", "0B"], 2))
        .or_else(|| decimal(digits, false))
        .or_else(|| whole_float(digits))
        .map(Literal::Whole)
}

/// Decimal digits; a literal has no zeros in front, `int("007")` takes them.
fn decimal(digits: &str, leading_zeros: bool) -> Option<u64> {
    let zeros = digits.bytes().all(|b| matches!(b, b'0' | b'_'));
    if digits.starts_with('0') && !zeros && !leading_zeros {
        return None;
    }
    of_radix(digits, 10)
}

/// Digits with single underscores between them.
fn of_radix(digits: &str, radix: u32) -> Option<u64> {
    let misplaced = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if misplaced || digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(&digits.replace('_', ""), radix).ok()
}

/// `200.0` and `2e2`, below 2^53, where every whole number is exact.
fn whole_float(digits: &str) -> Option<u64> {
    let begins = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if !begins || !digits.contains(['.', 'e', 'E']) {
        return None;
    }
    let value: f64 = digits.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = (value >= 0.0 && value.fract() == 0.0 && value < 9e15).then_some(value as u64);
    whole
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[(&str, &str)]) {
        let expect: Environment =
            expect.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(parse(text), expect, "{text:?}");
    }

    #[test]
    fn keys_and_values_are_what_python_reads() {
        check("A = 1\nB=2", &[("A", "1"), ("B", "2")]);
        check("A = x = y # z", &[("A", "x = y # z")]);
        check("A = 1\nA = 2", &[("A", "2")]);
        check("# A = 1\n\n   \nA =", &[("A", "")]);
        check(" A = 1", &[]);
        check("A B = 1", &[]);
        check("= 1", &[]);
        check("A", &[]);
        check(" # A = 1", &[]);
        check("\tA\t=\t1\t", &[("A", "1")]);
        check("A\u{a0} = \u{3000}1\u{1f}", &[("A", "1")]);
        check("ключ = значение", &[("ключ", "значение")]);
    }

    #[test]
    fn lines_end_where_pythons_splitlines_ends_them() {
        for end in [
            "\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}",
            "\u{2028}", "\u{2029}",
        ] {
            check(&format!("A = 1{end}B = 2"), &[("A", "1"), ("B", "2")]);
        }
        check("A = 1\u{1f}B = 2", &[("A", "1\u{1f}B = 2")]);
    }

    #[test]
    fn templates_come_first_and_the_job_wins() {
        let environment = layered(["A = 1\nB = 1", "B = 2\nC = 2", "C = 3"]);
        assert_eq!(environment, parse("A = 1\nB = 2\nC = 3"));
    }

    #[test]
    fn a_disk_size_is_a_python_literal_and_falsy_ones_are_none() {
        for (text, expect) in [
            ("200", Some(200)),
            ("200 # c", Some(200)),
            ("\"200\"", Some(200)),
            ("'200' # c", Some(200)),
            ("' 007 '", Some(7)),
            ("0x10", Some(16)),
            ("0o17", Some(15)),
            ("0b101", Some(5)),
            ("0x_1F", Some(31)),
            ("2_00", Some(200)),
            ("+200", Some(200)),
            ("200.0", Some(200)),
            ("2e2", Some(200)),
            ("(200)", Some(200)),
            ("None", None),
            ("None # as the pool's", None),
            ("0", None),
            ("00", None),
            ("0.0", None),
            ("-0", None),
            ("False", None),
            ("", None),
            ("\"\"", None),
            ("[]", None),
            ("()", None),
        ] {
            assert_eq!(disk_size_gb(text), Ok(expect), "{text}");
        }
        for text in [
            "200GB",
            "-1",
            "-200",
            "True",
            "0200",
            "2__00",
            "_200",
            "200_",
            "1.5",
            "nan",
            "inf",
            "\"200GB\"",
            "\"-1\"",
            "\" \"",
            "[1]",
            "none",
            "# 200",
            "200 300",
            "'1' '2'",
            "2 00",
            "99999999999999999999",
            "0x",
            "'\\x31'",
            "\"1",
            "++1",
        ] {
            assert!(disk_size_gb(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text in any::<String>()) {
            let environment = parse(&text);
            for (key, value) in environment {
                prop_assert!(!key.contains(['=', '\n']));
                prop_assert_eq!(value.trim(), &value);
                let _ = disk_size_gb(&value);
            }
            let _ = disk_size_gb(&text);
        }

        #[test]
        fn what_is_written_plainly_is_read_back(
            pairs in proptest::collection::btree_map("[A-Z_]{1,12}", "[!-~]{0,20}", 0..8)
        ) {
            let text: String = pairs.iter().map(|(k, v)| format!("{k} = {v}\n")).collect();
            prop_assert_eq!(parse(&text), pairs);
        }
    }
}
