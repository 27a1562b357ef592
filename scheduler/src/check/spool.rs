//! Whether a spool may be the queue of what it feeds: it is one file on one host, and so is its
//! quarantine.

use super::findings::Findings;

/// Judges the queue `name`, a spool. `elects` is whether a backend of it elects a leader among
/// several processes; `in_pod` whether this process runs in a cluster.
pub fn judge(name: &str, elects: bool, in_pod: bool) -> Findings {
    let mut found = Findings::about("quarantine");
    if !elects {
        return found;
    }
    let detail = "tasks and rejected ones are in one file of one host, which a process elsewhere \
                  that takes over does not have";
    if in_pod {
        let hint = "in a cluster the quarantine must be a Pub/Sub topic or a bucket: take tasks \
                    from Pub/Sub";
        found.fail(name, detail, hint);
    } else {
        found.warn(name, detail, "for one host; on several, take tasks from Pub/Sub");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::findings::Verdict;

    #[test]
    fn a_file_is_no_quarantine_where_another_host_may_take_over() {
        for (elects, in_pod, expect) in [
            (false, true, Verdict::Pass),
            (true, false, Verdict::Warn),
            (true, true, Verdict::Fail),
        ] {
            assert_eq!(judge("main", elects, in_pod).worst(), expect, "{elects} {in_pod}");
        }
    }
}
