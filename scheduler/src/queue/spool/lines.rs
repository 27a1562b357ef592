//! Puts messages from JSON lines, one object a line, any number of them in flat memory.
//!
//! A bad line is reported with its number and what is wrong, never with what it says, and the
//! others go on. What one line means is [`line`]'s.

pub mod line;

use std::io::{self, BufRead};

use self::line::BadLine;
use super::Spool;
use super::record::{NewMessage, PutCount};
use crate::queue::QueueError;

/// The most messages put in one transaction: a put of a million lines holds others up, and is
/// itself held up by the disk, for some milliseconds at a time.
pub const CHUNK: usize = 5_000;

/// The most bytes of lines put in one transaction.
const CHUNK_BYTES: usize = 8 << 20;

/// The longest line, in bytes: several times what the longest input URL takes.
pub const MAX_LINE: usize = 1 << 20;

/// How far a put of lines has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCount {
    /// Bytes read.
    pub bytes: u64,
    /// Lines read, blank ones included.
    pub lines: u64,
    /// What became of the good lines: durably put, or ignored.
    pub messages: PutCount,
    /// Bad lines.
    pub bad: u64,
}

/// Why a put of lines stopped before the end.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// The lines can't be read.
    #[error("the lines can't be read: {0}")]
    Read(#[from] io::Error),
    /// The spool did not take them.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// What is told while lines are put.
pub enum Report<'a> {
    /// This line (from 1) is bad; the others go on.
    Bad(u64, &'a BadLine),
    /// All good lines so far are durable.
    Progress(&'a LineCount),
}

/// Puts every good line of `input`. `count` says how far it came, after an error too: what it
/// counts as put is durable.
///
/// # Errors
/// [`LinesError`]: the input can't be read, or the spool refused a chunk.
pub async fn put_lines(
    spool: &Spool,
    input: &mut dyn BufRead,
    count: &mut LineCount,
    report: &mut dyn FnMut(Report<'_>),
) -> Result<(), LinesError> {
    let mut lines = Lines { input, line: Vec::new(), over: false };
    loop {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while chunk.len() < CHUNK && bytes < CHUNK_BYTES {
            let read = lines.next()?;
            if read == 0 {
                break;
            }
            bytes += lines.line.len();
            count.bytes += read;
            count.lines += 1;
            match lines.message(count.lines == 1) {
                Ok(message) => chunk.extend(message),
                Err(bad) => {
                    count.bad += 1;
                    report(Report::Bad(count.lines, &bad));
                }
            }
        }
        if chunk.is_empty() && bytes == 0 {
            return Ok(());
        }
        count.messages += spool.put(chunk).await?;
        report(Report::Progress(count));
    }
}

/// Reads lines of bounded length.
struct Lines<'a> {
    input: &'a mut dyn BufRead,
    line: Vec<u8>,
    over: bool,
}

impl Lines<'_> {
    /// Reads the next line; says how many bytes it took, 0 at the end. Of a line that is too long
    /// nothing is kept.
    fn next(&mut self) -> io::Result<u64> {
        self.line.clear();
        self.over = false;
        let mut read = 0;
        loop {
            let part = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                part => part?,
            };
            let end = part.iter().position(|&b| b == b'\n');
            let (part, taken) = match end {
                Some(end) => (part.get(..end).unwrap_or(part), end + 1),
                None => (part, part.len()),
            };
            if self.line.len() + part.len() > MAX_LINE {
                self.over = true;
                self.line.clear();
            } else if !self.over {
                self.line.extend_from_slice(part);
            }
            self.input.consume(taken);
            read += taken as u64;
            if end.is_some() || taken == 0 {
                return Ok(read);
            }
        }
    }

    /// What the line says; `None` if it is blank.
    fn message(&self, first: bool) -> Result<Option<NewMessage>, BadLine> {
        if self.over {
            return Err(BadLine::TooLong);
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| BadLine::NotText)?;
        // Some editors begin a file with a byte order mark.
        let text = if first { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        match text.trim() {
            "" => Ok(None),
            text => line::parse(text).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::super::tests::{TestClock, spool};
    use super::*;

    async fn put(input: &[u8]) -> (u64, LineCount, Vec<(u64, String)>) {
        let (_folder, spool) = spool(&TestClock::new());
        let mut count = LineCount::default();
        let mut bad = Vec::new();
        let mut report = |report: Report<'_>| {
            if let Report::Bad(line, why) = report {
                bad.push((line, why.to_string()));
            }
        };
        // A small buffer, so that lines span several.
        let mut input = BufReader::with_capacity(16, input);
        put_lines(&spool, &mut input, &mut count, &mut report).await.expect("put");
        (spool.counts().await.expect("counts").ready, count, bad)
    }

    #[tokio::test]
    async fn a_bad_line_is_reported_by_number_and_others_go_on() {
        let good = r#"{"command":"fuzz","job":"a","argument":"https://h/o?sig=SECRET1"}"#;
        let text = format!(
            "\u{feff}{good}\r\n\nnot json SECRET2\n{}\n{good}",
            good.replace("\"a\"", "{\"SECRET3\":1}")
        );
        let (ready, count, bad) = put(text.as_bytes()).await;
        assert_eq!(count.messages, PutCount { put: 2, already_there: 0 });
        assert_eq!((count.lines, count.bad, count.bytes), (5, 2, text.len() as u64));
        assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 4]);
        assert!(!format!("{bad:?}").contains("SECRET"), "{bad:?}");
        assert_eq!(ready, 2);
    }

    #[tokio::test]
    async fn a_line_without_end_takes_no_memory_and_stops_no_other() {
        let good = r#"{"command":"fuzz","job":"a","argument":"gs://b/o"}"#;
        let text = format!("{}\n{good}\n\u{0}\n", "x".repeat(3 * MAX_LINE));
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(b"\xff\xfe\n");
        let (_, count, bad) = put(&bytes).await;
        assert_eq!((count.messages.put, count.bad), (1, 3));
        assert!(bad.first().is_some_and(|(line, why)| *line == 1 && why.contains("long")));
    }

    #[tokio::test]
    async fn putting_the_same_ids_again_puts_nothing_twice() {
        let lines: String = (0..12_000)
            .map(|i| format!("{{\"id\":{},\"command\":\"fuzz\",\"job\":\"j\",\"argument\":\"gs://b/{i}\"}}\n", i % 11_000))
            .collect();
        let (_folder, spool) = spool(&TestClock::new());
        for expect in [(11_000, 1_000), (0, 12_000)] {
            let mut count = LineCount::default();
            let mut progress = 0;
            put_lines(&spool, &mut lines.as_bytes(), &mut count, &mut |_| progress += 1)
                .await
                .expect("put");
            assert_eq!((count.messages.put, count.messages.already_there), expect);
            assert_eq!(progress, 3);
        }
    }
}
