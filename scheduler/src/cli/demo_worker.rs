//! `katabatch demo-worker`: what a demo's tasks run on this machine. Hidden: not for farms.
//!
//! It reads the input that `UWORKER_INPUT_DOWNLOAD_URL` names and fuzzes a toy parser with it. It
//! fetches nothing: what is no file is fuzzed by its name.

use std::io::{self, Write};
use std::time::Duration;

use url::Url;

use crate::clock::{Clock as _, SystemClock};
use crate::demo::toy::{self, Kind};
use crate::domain::input_url::InputUrl;

/// How long an input is fuzzed.
const BUDGET: Duration = Duration::from_millis(80);

/// The exit code when there is no input that could be read.
const NO_INPUT: u8 = 2;

/// How much a lavish input makes the worker use and print, in bytes.
const LAVISH: usize = 64 << 20;
const PRINTED: usize = 1 << 20;

/// Does the work; answers the exit code: 0, [`toy::CRASH_EXIT`], or 2 without an input.
pub fn run() -> u8 {
    let out = &mut io::stdout().lock();
    let said = match std::env::var("UWORKER_INPUT_DOWNLOAD_URL") {
        Ok(url) => work(&url, out),
        Err(_) => writeln!(out, "UWORKER_INPUT_DOWNLOAD_URL names no input").map(|()| NO_INPUT),
    };
    // An output that nobody reads any more is not the work's failure.
    said.unwrap_or(0)
}

fn work(url: &str, out: &mut dyn Write) -> io::Result<u8> {
    let input = match input(url) {
        Ok(input) => input,
        Err(problem) => return writeln!(out, "the input {problem}").map(|()| NO_INPUT),
    };
    writeln!(out, "fuzzing a toy parser from an input of {} bytes", input.len())?;
    match Kind::of(&input) {
        Kind::Endless => endless(),
        Kind::Lavish => lavish(out)?,
        Kind::Plain | Kind::Buggy => {}
    }
    let start = SystemClock.mono();
    let report = toy::fuzz(&input, |_| SystemClock.mono() - start < BUDGET);
    writeln!(out, "{} executions, {} paths", report.runs, report.paths)?;
    let Some(crash) = report.crash else {
        writeln!(out, "no crash")?;
        return Ok(0);
    };
    writeln!(out, "the parser crashed on {}", crash.escape_ascii())?;
    Ok(toy::CRASH_EXIT)
}

fn input(text: &str) -> Result<Vec<u8>, String> {
    let input = InputUrl::parse(text).map_err(|e| e.to_string())?;
    if !text.starts_with("file:") {
        return Ok(input.redacted().into_bytes());
    }
    let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
    let path = path.ok_or("is no file of this machine")?;
    std::fs::read(&path).map_err(|e| format!("can't be read: {e}"))
}

/// What a parser that hangs does; the deadline ends it.
fn endless() {
    loop {
        std::thread::park();
    }
}

fn lavish(out: &mut dyn Write) -> io::Result<()> {
    let held = vec![1_u8; LAVISH];
    let line = format!("{} bytes in use\n", held.iter().map(|&b| usize::from(b)).sum::<usize>());
    for _ in 0..PRINTED / line.len() {
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(url: &str) -> (u8, String) {
        let mut out = Vec::new();
        let code = work(url, &mut out).expect("written");
        (code, String::from_utf8(out).expect("text"))
    }

    fn run_file(name: &str, bytes: &[u8]) -> (u8, String) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        run(Url::from_file_path(path).expect("a URL").as_str())
    }

    #[test]
    fn the_exit_code_says_what_was_found() {
        let plain = [&Kind::Plain.header()[..], b"S\x04boom"].concat();
        assert_eq!(run_file("a b%20c", &plain).0, 0);
        let buggy = [&Kind::Buggy.header()[..], b"S\x04boom"].concat();
        let (code, said) = run_file("x", &buggy);
        assert_eq!(code, toy::CRASH_EXIT);
        assert!(said.contains("the parser crashed on KB2"), "{said}");
        assert_eq!(run("file:///no/such/file").0, NO_INPUT);
        assert_eq!(run("not a URL").0, NO_INPUT);
    }

    #[test]
    fn a_lavish_input_prints_much_and_nothing_shows_a_signature() {
        let (code, said) = run_file("x", &Kind::Lavish.header());
        assert_eq!(code, 0);
        assert!(said.len() > PRINTED / 2, "{}", said.len());
        let (code, said) = run("https://storage.googleapis.com/b/o?X-Goog-Signature=SECRET");
        assert_eq!(code, 0);
        assert!(!said.contains("SECRET"), "{said}");
    }
}
