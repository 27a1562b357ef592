//! Reads the end of one log, with a few tries, and says why where it can't be had.

use std::time::Duration;

use tokio::time::sleep;

use super::super::api::{ApiError, ClusterApi};
use crate::domain::log_tail::LogTail;

/// The wait before the second try; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How often one log is tried.
const TRIES: u32 = 3;
/// After so many logs in a row that no kubelet gave, each is tried once.
const DOUBT: u32 = 8;

/// How often it is worth trying: where kubelets can't be reached at all, waiting for each log would
/// only keep others from being read.
#[derive(Debug, Default)]
pub struct Patience {
    failures: u32,
}

impl Patience {
    /// How often to try the next log.
    pub fn tries(&self) -> u32 {
        if self.failures < DOUBT { TRIES } else { 1 }
    }

    /// A log's kubelet was reached, or not.
    pub fn learn(&mut self, reached: bool) {
        self.failures = if reached { 0 } else { self.failures.saturating_add(1) };
    }
}

/// Reads the log's end, and says whether its kubelet was reached.
pub async fn read(
    api: &dyn ClusterApi,
    pod: &str,
    container: &str,
    previous: bool,
    tries: u32,
) -> (LogTail, bool) {
    let mut wait = FIRST_WAIT;
    for left in (0..tries).rev() {
        match api.pod_log(pod, container, previous).await {
            Ok(LogTail::Text(text)) if is_excuse(&text) => {
                return (LogTail::unavailable(text.trim()), true);
            }
            Ok(tail) => return (tail, true),
            Err(error) => {
                if let Some(why) = for_good(&error) {
                    return (LogTail::unavailable(why), true);
                }
                if left == 0 {
                    let why = format!("the log could not be read: {error}");
                    return (LogTail::unavailable(why), false);
                }
                sleep(wait.max(error.retry_after.unwrap_or_default().min(4 * FIRST_WAIT))).await;
                wait *= 2;
            }
        }
    }
    (LogTail::unavailable("the log was not read"), true)
}

/// A kubelet that has lost a log answers so, with status 200.
fn is_excuse(text: &str) -> bool {
    text.len() < 1_000
        && (text.starts_with("unable to retrieve container logs for ")
            || text.starts_with("failed to try resolving symlinks in path "))
}

/// Why there will never be a log, if so.
fn for_good(error: &ApiError) -> Option<String> {
    match error.status {
        Some(404) => Some("its pod was deleted".to_owned()),
        Some(400) => Some(format!("its container had not started, or is gone: {}", error.message)),
        Some(401 | 403) => Some(format!("the scheduler may not read logs: {}", error.message)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::fake::{FakeCluster, Fault, Verb};
    use super::*;
    use crate::clock::PacedClock;

    async fn tried(faults: &[Fault]) -> (LogTail, bool, usize) {
        let epoch = jiff::Timestamp::UNIX_EPOCH;
        let cluster = FakeCluster::new(Arc::new(PacedClock::starting_at(epoch)));
        cluster.script(Verb::PodLog, faults.iter().cloned());
        let (tail, reached) = read(&cluster, "p", "c", false, TRIES).await;
        (tail, reached, cluster.calls(Verb::PodLog))
    }

    fn refuse(status: u16, message: &str) -> Fault {
        Fault::Refuse(ApiError::answered(status, "", message))
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_has_not_started_has_an_empty_tail_with_the_reason_and_finite_tries() {
        let why = "container \"c\" in pod \"p\" is waiting to start: ContainerCreating";
        let (tail, reached, calls) = tried(&[refuse(400, why)]).await;
        assert!(matches!(&tail, LogTail::Unavailable(said) if said.contains("ContainerCreating")));
        assert!(reached && calls == 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_pod_says_so_and_a_failing_kubelet_is_asked_three_times() {
        let (tail, _, calls) = tried(&[]).await;
        assert_eq!((tail, calls), (LogTail::unavailable("its pod was deleted"), 1));
        let down = || refuse(502, "dial tcp 10.0.0.1:10250: connect: connection refused");
        let (tail, reached, calls) = tried(&[down(), down(), down()]).await;
        assert!(matches!(&tail, LogTail::Unavailable(why) if why.contains("connection refused")));
        assert!(!reached && calls == 3);
    }

    #[tokio::test(start_paused = true)]
    async fn no_credential_shows_in_the_reason() {
        let (tail, ..) = tried(&[refuse(400, "GET https://h/o?X-Goog-Signature=abc")]).await;
        assert!(!format!("{tail:?}").contains("abc"));
    }

    #[test]
    fn patience_ends_where_no_kubelet_answers_and_comes_back_with_the_first_that_does() {
        let mut patience = Patience::default();
        (0..DOUBT).for_each(|_| patience.learn(false));
        assert_eq!(patience.tries(), 1);
        patience.learn(true);
        assert_eq!(patience.tries(), TRIES);
    }
}
