//! Writes the ends of logs into a bucket, where the configuration names one: the ledger keeps few of
//! them, and not for long.
//!
//! An object a Job, `PREFIX/JOB_TYPE/COMMAND/JOB.log`: what the end was, an empty line, the tail as
//! the ledger has it, credentials taken out. Explanations only: what can't be written in time is
//! dropped and said.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::unfold;
use futures::{FutureExt as _, StreamExt as _};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::backend::EndObserver;
use crate::config::ledger::TailsConfig;
use crate::domain::end::End;
use crate::domain::name::{Attempt, TaskHash};
use crate::gcp::storage::{ObjectName, Objects, StorageError};

/// How many may wait to be written.
const WAITING: usize = 512;
/// How many are written at once.
const AT_ONCE: usize = 8;
/// How often one is tried, and the wait in between.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(2);
/// How often it is said that tails are lost, in tails.
const SAY_EVERY: u64 = 1_000;
/// A job type is no folder of its own making.
const IN_NAMES: &AsciiSet = &CONTROLS.add(b'/').add(b'%').add(b'#').add(b'?').add(b'*');

/// The way to the writer.
pub(super) struct Tails {
    to: mpsc::Sender<End>,
    lost: AtomicU64,
}

/// Writes what it is given.
pub(super) struct TailWriter {
    from: mpsc::Receiver<End>,
    objects: Arc<dyn Objects>,
    place: TailsConfig,
}

/// A way in and the writer behind it.
pub(super) fn tails(objects: Arc<dyn Objects>, place: &TailsConfig) -> (Arc<Tails>, TailWriter) {
    let (to, from) = mpsc::channel(WAITING);
    let place = place.clone();
    let tails = Tails { to, lost: AtomicU64::default() };
    (Arc::new(tails), TailWriter { from, objects, place })
}

impl EndObserver for Tails {
    fn knows(&self, _: &TaskHash, _: Attempt) -> bool {
        false
    }

    fn ended(&self, end: End) {
        if end.tail.text().is_none() || self.to.try_send(end).is_ok() {
            return;
        }
        let lost = self.lost.fetch_add(1, Ordering::Relaxed);
        if lost.is_multiple_of(SAY_EVERY) {
            tracing::warn!(lost = lost + 1, "ends of logs come faster than the bucket takes them");
        }
    }
}

impl TailWriter {
    /// Writes until `stop`; what waits then is dropped.
    pub(super) async fn run(self, stop: CancellationToken) {
        let Self { from, objects, place } = self;
        let place = Arc::new(place);
        let write = |end: End| {
            let (objects, place) = (Arc::clone(&objects), Arc::clone(&place));
            async move {
                if let Err(error) = write(objects.as_ref(), &place, &end).await {
                    tracing::warn!(job = end.job, %error, "the end of a log was not written");
                }
            }
            .boxed()
        };
        let ends = unfold(from, |mut from| async move { Some((from.recv().await?, from)) });
        let all = ends.for_each_concurrent(AT_ONCE, write);
        let _ = stop.run_until_cancelled(all.boxed()).await;
    }
}

async fn write(objects: &dyn Objects, place: &TailsConfig, end: &End) -> Result<(), StorageError> {
    let (object, text) = (name_of(place, end), text_of(end));
    for attempt in 1.. {
        match objects.write(&object, text.clone().into_bytes(), None).await {
            Err(StorageError::Later(_)) if attempt < TRIES => tokio::time::sleep(AGAIN).await,
            written => return written.map(drop),
        }
    }
    Ok(())
}

fn name_of(place: &TailsConfig, end: &End) -> ObjectName {
    let part = |text: &str| utf8_percent_encode(text, IN_NAMES).to_string();
    let (job_type, command) = (part(end.key.job_type.as_str()), part(end.key.command.as_str()));
    let name = format!("{}{job_type}/{command}/{}.log", place.prefix, part(&end.job));
    ObjectName { bucket: place.bucket.clone(), name }
}

fn text_of(end: &End) -> String {
    let code = end.verdict.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let (kind, attempt, tail) =
        (end.verdict.kind, end.attempt, end.tail.text().unwrap_or_default());
    format!(
        "{kind}{code}, attempt {attempt}, on {} at {}\n{}\n\n{tail}",
        end.backend, end.ended_at, end.verdict.detail
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::domain::end::{EndKind, Verdict};
    use crate::domain::log_tail::LogTail;
    use crate::domain::name::Subject;
    use crate::domain::task::WorkloadKey;
    use crate::gcp::storage::{Fetched, Generation};

    /// A bucket that takes nothing at first.
    #[derive(Default)]
    struct Bucket {
        refuses: Mutex<u32>,
        written: Mutex<Vec<(String, String)>>,
    }

    #[async_trait]
    impl Objects for Bucket {
        async fn read(
            &self,
            object: &ObjectName,
            _: Option<Generation>,
        ) -> Result<Fetched, StorageError> {
            Err(StorageError::Absent(object.clone()))
        }

        async fn exists(&self, _: &ObjectName) -> Result<bool, StorageError> {
            Ok(false)
        }

        async fn write(
            &self,
            object: &ObjectName,
            bytes: Vec<u8>,
            _: Option<Generation>,
        ) -> Result<Generation, StorageError> {
            let mut refuses = self.refuses.lock().unwrap();
            if *refuses > 0 {
                *refuses -= 1;
                return Err(StorageError::Later("busy".into()));
            }
            let text = String::from_utf8(bytes).unwrap();
            self.written.lock().unwrap().push((object.to_string(), text));
            Ok(Generation(1))
        }
    }

    fn end(job_type: &str, tail: LogTail) -> End {
        let key = WorkloadKey { command: "fuzz".into(), job_type: job_type.into() };
        End {
            task: TaskHash::of(&key.command, &key.job_type, &Subject::Message("1".into())),
            attempt: Attempt::FIRST,
            job: "cf-job-1".into(),
            key,
            backend: "gke".into(),
            verdict: Verdict::new(EndKind::TaskFailure, Some(3), "why"),
            tail,
            started_at: None,
            ended_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    async fn written(refuses: u32, ends: Vec<End>) -> Vec<(String, String)> {
        let bucket = Arc::new(Bucket { refuses: Mutex::new(refuses), ..Bucket::default() });
        let place = TailsConfig { bucket: "b".into(), prefix: "logs/".into() };
        let (tails, writer) = tails(Arc::clone(&bucket) as Arc<dyn Objects>, &place);
        ends.into_iter().for_each(|end| tails.ended(end));
        drop(tails);
        writer.run(CancellationToken::new()).await;
        let written = bucket.written.lock().unwrap();
        written.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tail_is_one_object_named_after_its_job_whatever_the_job_type_is_called() {
        let ends = vec![
            end("a/../b", LogTail::Text("last words".into())),
            end("c", LogTail::unavailable("the pod is gone")),
        ];
        let expected = (
            "gs://b/logs/a%2F..%2Fb/fuzz/cf-job-1.log".to_owned(),
            "task_failure, exit code 3, attempt 1, on gke at 1970-01-01T00:00:00Z\nwhy\n\nlast words"
                .to_owned(),
        );
        assert_eq!(written(2, ends).await, [expected]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_takes_nothing_stops_nothing() {
        let many = || end("a", LogTail::Text("x".into()));
        let ends = std::iter::repeat_with(many).take(WAITING + 10).collect();
        let (all, tries) = (u32::try_from(WAITING).unwrap(), TRIES);
        assert_eq!(written(all * tries, ends).await.len(), 0, "dropped and said");
    }
}
