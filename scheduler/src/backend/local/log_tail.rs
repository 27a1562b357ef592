//! The last of what a task printed: kept in a file of bounded size, read back as whole characters.
//!
//! The file holds bytes as they came (it is 0600); credentials are taken out when it is shown.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::record::{LOG, Record, private_file};
use crate::domain::redact::redact;

/// How many bytes of a task's output are kept.
pub const TAIL_BYTES: usize = 64 * 1024;

/// One byte more than is shown, so that a reader can tell that something was cut away before.
const KEPT_BYTES: usize = TAIL_BYTES + 1;

/// Writes a log file that never holds more than twice [`TAIL_BYTES`].
pub(super) struct TailWriter {
    file: File,
    written: usize,
    tail: Vec<u8>,
}

impl TailWriter {
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        let file = private_file().truncate(true).open(dir.join(LOG))?;
        Ok(Self { file, written: 0, tail: Vec::new() })
    }

    /// Appends; when the file has grown to its bound it starts again with the kept tail.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > KEPT_BYTES {
            self.tail.drain(..self.tail.len() - KEPT_BYTES);
        }
        if self.written.saturating_add(bytes.len()) > 2 * TAIL_BYTES {
            self.file.set_len(0)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&self.tail)?;
            self.written = self.tail.len();
        } else {
            self.file.write_all(bytes)?;
            self.written += bytes.len();
        }
        Ok(())
    }
}

/// The last [`TAIL_BYTES`] of what was printed, as text, credentials taken out. Empty where there
/// is none. `record` is the task's, whose own URL is hidden whatever it looks like.
pub(super) fn read(dir: &Path, record: &Record) -> String {
    let bytes = last_bytes(&dir.join(LOG)).unwrap_or_default();
    let shown = if bytes.len() > TAIL_BYTES { after_cut(&bytes) } else { &bytes };
    redact(&record.hide_input(&String::from_utf8_lossy(shown))).into_owned()
}

fn last_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(KEPT_BYTES as u64)))?;
    let mut bytes = Vec::new();
    file.take(KEPT_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What may be shown of a text whose beginning is cut away: from the next line on, or from the next
/// word. What stands before could be the rest of a signed URL, which nothing can tell as one; and
/// the cut may be inside a character.
fn after_cut(bytes: &[u8]) -> &[u8] {
    let line = bytes.iter().position(|&b| b == b'\n');
    let start = line.or_else(|| bytes.iter().position(u8::is_ascii_whitespace));
    start.and_then(|at| bytes.get(at + 1..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const URL: &str = "https://storage.googleapis.com/b/o?odd=\"x y&X-Other=hidden";

    fn record() -> Record {
        Record {
            version: 1,
            task: "00".repeat(32),
            command: "fuzz".into(),
            job_type: "j".into(),
            input: URL.into(),
            claimed_at: jiff::Timestamp::UNIX_EPOCH,
            argv: vec!["/bin/true".into()],
            env: BTreeMap::new(),
            deadline_ms: 1,
            grace_ms: 1,
            memory: None,
        }
    }

    fn shown(parts: &[&[u8]]) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let mut writer = TailWriter::create(dir.path()).expect("a log");
        for part in parts {
            writer.push(part).expect("written");
            let size = std::fs::metadata(dir.path().join(LOG)).expect("a file").len();
            assert!(size <= 2 * TAIL_BYTES as u64, "{size}");
        }
        read(dir.path(), &record())
    }

    #[test]
    fn the_file_stays_bounded_and_the_end_is_kept() {
        let line = [b'x'; 99].iter().copied().chain(*b"\n").collect::<Vec<u8>>();
        let parts: Vec<&[u8]> =
            std::iter::repeat_n(line.as_slice(), 5_000).chain([&b"last"[..]]).collect();
        let tail = shown(&parts);
        assert!(tail.len() <= TAIL_BYTES && tail.len() > TAIL_BYTES - 200, "{}", tail.len());
        assert!(tail.starts_with('x') && tail.ends_with("x\nlast"));
        let huge = vec![b'\n'; 10 * TAIL_BYTES];
        assert_eq!(shown(&[&huge]).len(), TAIL_BYTES);
    }

    #[test]
    fn characters_stay_whole_at_the_cut() {
        let text = format!("{} end", "ü ".repeat(TAIL_BYTES));
        let tail = shown(&[text.as_bytes()]);
        assert!(!tail.contains('\u{fffd}') && tail.ends_with("ü  end"));
        assert_eq!(shown(&["a\u{e9}".as_bytes(), b"\xff"]), "a\u{e9}\u{fffd}");
    }

    #[test]
    fn no_credential_is_shown_even_where_the_cut_went_through_its_url() {
        assert_eq!(
            shown(&[b"get ", URL.as_bytes(), b" now"]),
            "get https://storage.googleapis.com/b/o?REDACTED now"
        );
        let cut = format!("https://h/o?X-Goog-Signature={} tail", "a".repeat(TAIL_BYTES));
        assert_eq!(shown(&[cut.as_bytes()]), "tail");
        assert_eq!(shown(&["b".repeat(TAIL_BYTES + 1).as_bytes()]), "");
    }
}
