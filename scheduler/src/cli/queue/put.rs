//! `katabatch queue put`: JSON lines into the spool, with progress.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::output::{Exit, after_printing, print_error};
use super::{PutArgs, failed};
use crate::queue::spool::Spool;
use crate::queue::spool::lines::line::BadLine;
use crate::queue::spool::lines::{LineCount, LinesError, Report, put_lines};

/// Bad lines told one by one: a file of another format must not drown its first, telling error.
const MAX_TOLD: u64 = 100;

/// Puts the file's lines; bad ones are told and left out.
pub(super) async fn put(spool: &Spool, args: &PutArgs, err: &mut dyn Write) -> Exit {
    let path = &args.file;
    if path == Path::new("-") {
        let mut stdin = BufReader::new(io::stdin());
        return put_from(spool, &mut stdin, 0, err).await;
    }
    match File::open(path) {
        Ok(file) => {
            let size = file.metadata().map_or(0, |found| found.len());
            put_from(spool, &mut BufReader::with_capacity(1 << 16, file), size, err).await
        }
        Err(error) => {
            let hint = Some("-f takes a file of JSON lines, or - for stdin");
            let error = format_args!("{}: {error}", path.display());
            after_printing(print_error(err, &error, hint), Exit::Failed, err)
        }
    }
}

/// Puts the lines of `input`, which is `size` bytes long (0: not known).
pub(super) async fn put_from(
    spool: &Spool,
    input: &mut dyn BufRead,
    size: u64,
    err: &mut dyn Write,
) -> Exit {
    let bar = bar(size);
    let mut count = LineCount::default();
    let mut told = 0;
    let mut report = |report: Report<'_>| match report {
        Report::Bad(line, why) => {
            told += 1;
            bar.suspend(|| tell(told, line, why, err));
        }
        Report::Progress(count) => {
            bar.set_position(count.bytes);
            bar.set_message(format!("{} put", count.messages.put));
        }
    };
    let put = put_lines(spool, input, &mut count, &mut report).await;
    bar.finish_and_clear();
    let told = summary(&count, err);
    match put {
        Ok(()) if count.bad > 0 => after_printing(told, Exit::Partly, err),
        Ok(()) => after_printing(told, Exit::Done, err),
        Err(LinesError::Queue(error)) => failed(&error, err),
        Err(error @ LinesError::Read(_)) => {
            let hint = "what is counted above is in the spool; lines with an `id` can be put again";
            after_printing(print_error(err, &error, Some(hint)), Exit::Failed, err)
        }
    }
}

/// Tells of a bad line. That stderr is gone must not stop the put.
fn tell(told: u64, line: u64, why: &BadLine, err: &mut dyn Write) {
    if told <= MAX_TOLD {
        let _ = writeln!(err, "line {line}: {why}");
    }
    if told == MAX_TOLD {
        let _ = writeln!(err, "further bad lines are counted only");
    }
}

fn summary(count: &LineCount, err: &mut dyn Write) -> io::Result<()> {
    write!(err, "{} put", count.messages.put)?;
    if count.messages.already_there > 0 {
        write!(err, ", {} there already", count.messages.already_there)?;
    }
    if count.bad > 0 {
        write!(err, ", {} bad lines left out", count.bad)?;
    }
    writeln!(err)
}

fn bar(size: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match size {
        0 => (ProgressBar::new_spinner(), "{spinner} {decimal_bytes} {msg}"),
        size => (ProgressBar::new(size), "{wide_bar} {percent}% {msg}, {eta} left"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
