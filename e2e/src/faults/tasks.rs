//! The tasks of a run: messages, and what must become of each. Puts nothing.

use anyhow::{Context, Result};
use jiff::Timestamp;
use katabatch::domain::task::Task;
use katabatch::queue::spool::record::NewMessage;

use super::judge::Asked;
use super::plan::must_run;
use crate::farm;

/// The job types whose pods do well, which share most tasks.
pub const WELL: [&str; 3] = ["libfuzzer_asan_one", "libfuzzer_asan_two", "afl_asan_three"];
/// The job type whose pods fail, each time.
pub const FAILING: &str = "libfuzzer_asan_failing";
/// The job type whose pods are evicted, each time.
pub const EVICTED: &str = "libfuzzer_asan_evicted";
/// So many tasks fail by themselves: with one more that fails quickly the workload's breaker opens,
/// and the run would wait for it rather than for the faults.
const FAILURES: usize = 4;

/// The n-th task, signed by a clock that is off by so many seconds, as of now.
///
/// One task in ten doesn't get to its end and is run again: the first few fail, with a command whose
/// failures are run again, and the others are evicted.
///
/// # Errors
/// When there is no such date.
pub fn message(n: usize, by: Option<i64>) -> Result<NewMessage> {
    let (command, job_type) = match by {
        None if n % 10 == 9 && n / 10 < FAILURES => ("minimize", FAILING),
        None if n % 10 == 9 => ("fuzz", EVICTED),
        _ => ("fuzz", WELL[n % WELL.len()]),
    };
    let at = Timestamp::now().as_second() + by.unwrap_or(0);
    let at = Timestamp::from_second(at).context("a date")?.strftime("%Y%m%dT%H%M%SZ").to_string();
    let url = farm::input(n);
    let url = format!("{url}&X-Goog-Date={at}&X-Goog-Expires=86400");
    Ok(farm::message(command, job_type, &url))
}

/// The task of a message.
///
/// # Errors
/// When the message is none of [`message`]'s.
pub fn task(attributes: &std::collections::BTreeMap<String, String>) -> Result<Task> {
    let get = |key: &str| attributes.get(key).with_context(|| format!("no attribute {key}"));
    farm::task(get("command")?, get("job")?, get("argument")?)
}

/// Messages of `numbers`, noted in `asked` as what must become of them.
///
/// # Errors
/// As [`message`].
pub fn ask(
    numbers: std::ops::Range<usize>,
    by: Option<i64>,
    asked: &mut Asked,
) -> Result<Vec<NewMessage>> {
    let messages: Vec<_> = numbers.map(|n| message(n, by)).collect::<Result<_>>()?;
    let into = if must_run(by.unwrap_or(0)) { &mut asked.run } else { &mut asked.reject };
    for message in &messages {
        into.insert(task(&message.attributes)?.hash.to_string());
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_tasks_fail_by_themselves_to_open_a_breaker() {
        let messages: Vec<_> = (0..1000).map(|n| message(n, None).expect("a message")).collect();
        let of = |job_type: &str| {
            messages.iter().filter(|message| message.attributes["job"] == job_type).count()
        };
        assert_eq!((of(FAILING), of(EVICTED)), (4, 96));
    }
}
