//! What the farm wants done about ends, put together: the configured rules, pauses and lost backends,
//! URLs that still live, outputs that are there.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Loaded;
use crate::backend::outputs::output_is_there;
use crate::backend::{MayRun, Retries};
use crate::clock::Clock;
use crate::config::watch::Watched;
use crate::domain::end::{End, RetryRule};
use crate::domain::input_url::InputUrl;
use crate::domain::signed_url::Verdict;
use crate::gcp::storage::Objects;
use crate::pipeline::snapshot::Snapshot;

/// The farm's word on retries.
pub(super) struct FarmRetries {
    /// The configuration, as it is in force.
    pub loaded: Arc<Watched<Loaded>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is paused and lost.
    pub in_force: watch::Receiver<Snapshot>,
    /// Where outputs are looked for.
    pub outputs: Option<(Arc<dyn Objects>, String)>,
}

impl FarmRetries {
    /// Why nothing of this kind may start now, if so. Which project a Job is of can't be told from
    /// it, so that a pause by project stops no retry.
    fn stopped(&self, end: &End) -> Option<String> {
        let now = self.in_force.borrow();
        if !now.leads {
            return Some("what is paused was not read yet".to_owned());
        }
        if now.controls.lost(&end.backend).is_some() {
            return Some(format!("backend {} was declared lost", end.backend));
        }
        let pause = now.controls.paused(&end.key, None);
        let pause = pause.or_else(|| now.controls.backend_paused(&end.backend))?;
        Some(format!("{} is paused {}", pause.target, pause.mark))
    }

    /// Why its input is of no use any more, or not yet.
    fn unusable(&self, end: &End, input: &InputUrl) -> Option<MayRun> {
        let expected = self.loaded.get().config.expected_run.of(&end.key.command);
        match input.validity()?.judge(self.clock.wall(), expected) {
            Verdict::Usable => None,
            Verdict::NotYet(_) => Some(MayRun::Later("its URL is not valid yet".to_owned())),
            Verdict::Dead(_) => Some(MayRun::No("its URL is dead".to_owned())),
            Verdict::TooShort(_) => {
                let why = "its output URL would be dead before its expected end";
                Some(MayRun::No(why.to_owned()))
            }
        }
    }
}

#[async_trait]
impl Retries for FarmRetries {
    fn rule(&self, end: &End) -> RetryRule {
        self.loaded.get().config.retries.rule_now(end)
    }

    async fn may_run(&self, end: &End, input: Option<&InputUrl>) -> MayRun {
        if let Some(why) = self.stopped(end) {
            return MayRun::Later(why);
        }
        let Some(input) = input else { return MayRun::Yes };
        if let Some(unusable) = self.unusable(end, input) {
            return unusable;
        }
        let Some((objects, bucket)) = &self.outputs else { return MayRun::Yes };
        match output_is_there(objects.as_ref(), bucket, input).await {
            Ok(false) => MayRun::Yes,
            Ok(true) => MayRun::No("its output is there".to_owned()),
            Err(why) => MayRun::Later(why.detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::clock::PacedClock;
    use crate::controls::{Controls, Mark, Pause, Target, lost};
    use crate::domain::end::{EndKind, Verdict as Told};
    use crate::domain::glob::Glob;
    use crate::domain::log_tail::LogTail;
    use crate::domain::name::{Attempt, Subject, TaskHash};
    use crate::domain::task::WorkloadKey;
    use crate::gcp::storage::{Fetched, Generation, ObjectName, StorageError};
    use crate::records::apply;

    const NOW: &str = "2026-11-30T10:00:00Z";

    /// A bucket in which one object is, or nothing can be told.
    struct Bucket(Result<&'static str, ()>);

    #[async_trait]
    impl Objects for Bucket {
        async fn read(
            &self,
            object: &ObjectName,
            _: Option<Generation>,
        ) -> Result<Fetched, StorageError> {
            Err(StorageError::Absent(object.clone()))
        }

        async fn exists(&self, object: &ObjectName) -> Result<bool, StorageError> {
            let there = self.0.map_err(|()| StorageError::Later("away".into()))?;
            Ok(object.to_string() == there)
        }

        async fn write(
            &self,
            object: &ObjectName,
            _: Vec<u8>,
            _: Option<Generation>,
        ) -> Result<Generation, StorageError> {
            Err(StorageError::Absent(object.clone()))
        }
    }

    fn end() -> End {
        let key = WorkloadKey { command: "fuzz".into(), job_type: "j".into() };
        End {
            task: TaskHash::of(&key.command, &key.job_type, &Subject::Message("1".into())),
            attempt: Attempt::FIRST,
            job: "cf-job-1".into(),
            key,
            backend: "gke".into(),
            verdict: Told::new(EndKind::NodeLost, None, ""),
            tail: LogTail::Nothing,
            started_at: None,
            ended_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn mark() -> Mark {
        let at = NOW.parse().expect("a time");
        Mark { who: "ann".into(), why: "a bad build".into(), at, until: None }
    }

    fn paused(target: Target) -> (String, Option<String>) {
        Pause { target, mark: mark() }.record().expect("a record")
    }

    async fn ask(changes: &[(String, Option<String>)], bucket: Bucket, signed: &str) -> MayRun {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("written");
        };
        write("k.yaml", "apiVersion: katabatch.dev/v1alpha1\n");
        write("clusterfuzz-config/project.yaml", "env: {}\n");
        write("clusterfuzz-config/batch/batch.yaml", "mapping: {}\n");
        let loaded = super::super::load(&dir.path().join("k.yaml")).expect("a configuration");
        let mut records = std::collections::BTreeMap::new();
        apply(&mut records, changes);
        let now: Timestamp = NOW.parse().expect("a time");
        let snapshot = Snapshot {
            leads: true,
            controls: Controls::read(&records, now).expect("controls"),
            ..Snapshot::default()
        };
        let retries = FarmRetries {
            loaded: Arc::new(loaded),
            clock: Arc::new(PacedClock::starting_at(now)),
            in_force: watch::Sender::new(snapshot).subscribe(),
            outputs: Some((Arc::new(bucket), "out".into())),
        };
        let url = format!("https://storage.googleapis.com/in/o?X-Goog-Signature=ab{signed}");
        let input = InputUrl::parse(&url).expect("a URL");
        retries.may_run(&end(), Some(&input)).await
    }

    #[tokio::test]
    async fn a_task_is_run_again_unless_it_is_paused_dead_or_done() {
        let none = || Bucket(Ok("gs://out/other"));
        let dated = |at: &str| format!("&X-Goog-Date={at}&X-Goog-Expires=86400");
        assert_eq!(ask(&[], none(), "").await, MayRun::Yes);
        assert_eq!(ask(&[], none(), &dated("20261130T000000Z")).await, MayRun::Yes);
        let dead = ask(&[], none(), &dated("20261101T000000Z")).await;
        assert!(matches!(&dead, MayRun::No(why) if why.contains("dead")), "{dead:?}");
        let short = ask(&[], none(), &dated("20261129T120000Z")).await;
        assert!(matches!(&short, MayRun::No(why) if why.contains("output URL")), "{short:?}");
        let done = ask(&[], Bucket(Ok("gs://out/o")), "").await;
        assert!(matches!(&done, MayRun::No(why) if why.contains("output is there")), "{done:?}");
        let away = ask(&[], Bucket(Err(())), "").await;
        assert!(matches!(&away, MayRun::Later(why) if why.contains("away")), "{away:?}");
        let glob = Glob::new;
        for target in [Target::Command(glob("fuzz")), Target::Backend(glob("g*"))] {
            let held = ask(&[paused(target)], none(), "").await;
            assert!(matches!(&held, MayRun::Later(why) if why.contains("a bad build")), "{held:?}");
        }
        let other = paused(Target::Command(glob("minimize")));
        assert_eq!(ask(&[other], none(), "").await, MayRun::Yes);
        let gone = ask(&lost(&"gke".into(), Some(&mark())).expect("records"), none(), "").await;
        assert!(matches!(&gone, MayRun::Later(why) if why.contains("lost")), "{gone:?}");
    }
}
