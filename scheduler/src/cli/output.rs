//! How commands print: rows as a table, JSON or YAML on stdout, everything else on stderr.
//!
//! stdout is data: complete, in a stable order, and nothing else. Leaves out what the rows are.

use std::io::{self, Write};

use serde::Serialize;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns, for reading.
    #[default]
    Table,
    /// One JSON array.
    Json,
    /// One YAML sequence.
    Yaml,
}

/// How a command ended, as the process's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// All was done: 0.
    Done,
    /// Nothing, or not all that was asked, was done: 1.
    Failed,
    /// Some items were bad and are reported; all others were done: 3.
    Partly,
}

impl Exit {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Partly => 3,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Something that is printed as one row of a table, or as one object.
pub trait Row: Serialize {
    /// The table's headings.
    const HEADINGS: &'static [&'static str];

    /// One cell for each heading.
    fn cells(&self) -> Vec<String>;
}

/// Prints rows. An empty table says on `err` that there are no `things`; JSON and YAML have an
/// empty array for it.
///
/// # Errors
/// What writing gives.
pub fn print_rows<R: Row>(
    format: Format,
    rows: &[R],
    things: &str,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table if rows.is_empty() => writeln!(err, "no {things}"),
        Format::Table => print_table(rows, out),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, rows)?;
            writeln!(out)
        }
        Format::Yaml => write!(out, "{}", yaml(&rows)?),
    }?;
    out.flush()
}

/// `value` as YAML, ended by a line break.
///
/// # Errors
/// `value` can't be serialized.
pub fn yaml(value: &impl Serialize) -> io::Result<String> {
    // Every string in quotes: none can be taken for a number, a boolean or null by any reader.
    let mut options = serde_saphyr::SerializerOptions::default();
    options.quote_all = true;
    options.prefer_block_scalars = false;
    let mut text =
        serde_saphyr::to_string_with_options(value, options).map_err(io::Error::other)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn print_table<R: Row>(rows: &[R], out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| row.cells().iter().map(|cell| printable(cell)).collect()).collect();
    let widths: Vec<usize> = R::HEADINGS
        .iter()
        .enumerate()
        .map(|(column, heading)| {
            let cells = cells.iter().filter_map(|row| row.get(column));
            let width = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            width.max(heading.chars().count())
        })
        .collect();
    print_line(R::HEADINGS.iter().copied(), &widths, out)?;
    cells.iter().try_for_each(|row| print_line(row.iter().map(String::as_str), &widths, out))
}

fn print_line<'a>(
    cells: impl Iterator<Item = &'a str>,
    widths: &[usize],
    out: &mut dyn Write,
) -> io::Result<()> {
    let padded: Vec<String> =
        cells.zip(widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
    writeln!(out, "{}", padded.join("  ").trim_end())
}

/// Control characters escaped: a name from outside must neither break the table nor steer the
/// terminal. Empty cells show as `-`, so that columns can be cut.
fn printable(cell: &str) -> String {
    if cell.is_empty() {
        return "-".to_owned();
    }
    let mut out = String::with_capacity(cell.len());
    for c in cell.chars() {
        // Bidirectional overrides reorder what is read; they are no control characters by name.
        if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Writes an error, and what to do about it, as every command does.
///
/// # Errors
/// What writing gives.
pub fn print_error(
    err: &mut dyn Write,
    error: &dyn std::fmt::Display,
    hint: Option<&str>,
) -> io::Result<()> {
    writeln!(err, "error: {error}")?;
    hint.map_or(Ok(()), |hint| writeln!(err, "hint: {hint}"))
}

/// How a command ends whose printing failed: a reader that has seen enough (`| head`) is no
/// failure.
pub fn after_printing(printed: io::Result<()>, exit: Exit, err: &mut dyn Write) -> Exit {
    match printed {
        Ok(()) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => {
            // stderr is the last place left to tell; if it is gone too, the exit code tells.
            let _ = print_error(err, &format_args!("can't write the output: {error}"), None);
            Exit::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pair {
        name: String,
        value: Option<u32>,
    }

    impl Row for Pair {
        const HEADINGS: &'static [&'static str] = &["NAME", "VALUE"];

        fn cells(&self) -> Vec<String> {
            vec![self.name.clone(), self.value.map(|v| v.to_string()).unwrap_or_default()]
        }
    }

    fn pair(name: &str, value: Option<u32>) -> Pair {
        Pair { name: name.to_owned(), value }
    }

    fn print(format: Format, rows: &[Pair]) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        print_rows(format, rows, "pairs", &mut out, &mut err).expect("printed");
        (String::from_utf8(out).expect("text"), String::from_utf8(err).expect("text"))
    }

    #[test]
    fn a_table_is_aligned_complete_and_one_line_a_row() {
        let long = "x".repeat(300);
        let rows = [pair("a\u{1b}[31m\nb", None), pair("é", Some(7)), pair(&long, Some(1))];
        let (out, err) = print(Format::Table, &rows);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with(r"a\u{1b}[31m\u{a}b") && lines[1].ends_with(" -"));
        assert!(lines[3].contains(&long));
        let column = |line: &str, value: &str| line.chars().count() - value.len();
        assert_eq!(column(lines[2], "7"), column(lines[3], "1"));
        assert!(lines.iter().all(|line| !line.ends_with(' ')));
        assert_eq!(err, "");
    }

    #[test]
    fn nothing_is_said_on_stderr_by_a_table_and_on_stdout_by_the_others() {
        assert_eq!(print(Format::Table, &[]), (String::new(), "no pairs\n".into()));
        assert_eq!(print(Format::Json, &[]), ("[]\n".into(), String::new()));
        let (yaml, err) = print(Format::Yaml, &[]);
        assert_eq!((yaml.trim(), err.as_str()), ("[]", ""));
    }

    #[test]
    fn strings_stay_strings_in_json_and_yaml() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Read {
            name: String,
            value: Option<u32>,
        }
        let names = [
            "no",
            "007",
            "1e3",
            "null",
            "~",
            "",
            " x ",
            "# x",
            "a: b",
            "- a",
            "a\nb\n",
            "a\r\nb",
            "\u{1b}[0m",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "'\"\\",
            "é😀",
            "{{ x }}",
            "%",
        ];
        let rows: Vec<Pair> = names.iter().map(|name| pair(name, None)).collect();
        for format in [Format::Json, Format::Yaml] {
            let (out, _) = print(format, &rows);
            let read: Vec<Read> = match format {
                Format::Yaml => serde_saphyr::from_str(&out).expect("YAML"),
                _ => serde_json::from_str(&out).expect("JSON"),
            };
            assert!(read.iter().map(|r| r.name.as_str()).eq(names), "{out}");
        }
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        let mut err = Vec::new();
        let pipe = Err(io::ErrorKind::BrokenPipe.into());
        assert_eq!(after_printing(pipe, Exit::Done, &mut err), Exit::Done);
        let full = Err(io::ErrorKind::StorageFull.into());
        assert_eq!(after_printing(full, Exit::Done, &mut err), Exit::Failed);
        assert!(String::from_utf8_lossy(&err).starts_with("error: "));
    }
}
