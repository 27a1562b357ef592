//! What the farm wants done about ends, put together: the configured rules, pauses and lost backends,
//! breakers, URLs that still live, outputs that are there.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Loaded;
use super::work::Watching;
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
    /// Which breakers are open; `None` where nothing watches.
    pub work: Option<Arc<Watching>>,
    /// Where outputs are looked for.
    pub outputs: Option<(Arc<dyn Objects>, String)>,
}

impl FarmRetries {
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

    // Which project a Job is of can't be told from it, so that a pause by project stops no retry.
    fn stopped(&self, end: &End) -> Option<String> {
        let now = self.in_force.borrow();
        if !now.leads {
            return Some("what is paused was not read yet".to_owned());
        }
        if now.controls.lost(&end.backend).is_some() {
            return Some(format!("backend {} was declared lost", end.backend));
        }
        let pause = now.controls.paused(&end.key, None);
        if let Some(pause) = pause.or_else(|| now.controls.backend_paused(&end.backend)) {
            return Some(format!("{} is paused {}", pause.target, pause.mark));
        }
        self.work.as_ref()?.refuses(&end.key, self.clock.wall())
    }

    async fn may_run(&self, end: &End, input: Option<&InputUrl>) -> MayRun {
        if let Some(input) = input {
            if let Some(unusable) = self.unusable(end, input) {
                return unusable;
            }
            if let Some((objects, bucket)) = &self.outputs {
                match output_is_there(objects.as_ref(), bucket, input).await {
                    Ok(false) => {}
                    Ok(true) => return MayRun::No("its output is there".to_owned()),
                    Err(why) => return MayRun::Later(why.detail),
                }
            }
        }
        // Last, since what may go is an open breaker's probe.
        let Some(work) = &self.work else { return MayRun::Yes };
        match work.goes(&end.key, end.task, self.clock.wall()) {
            Ok(()) => MayRun::Yes,
            Err(why) => MayRun::Later(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::clock::PacedClock;
    use crate::controls::{Controls, Mark, Pause, Target, lost};
    use crate::domain::breaker::{Cause, Open};
    use crate::domain::end::{EndKind, sample};
    use crate::domain::glob::Glob;
    use crate::gcp::storage::StorageError;
    use crate::gcp::storage::fake::Bucket;
    use crate::pipeline::work::Work as _;
    use crate::records::apply;

    const NOW: &str = "2026-11-30T10:00:00Z";

    fn end() -> End {
        sample("fuzz", EndKind::NodeLost)
    }

    fn mark() -> Mark {
        let at = NOW.parse().expect("a time");
        Mark { who: "ann".into(), why: "a bad build".into(), at, until: None }
    }

    fn paused(target: Target) -> (String, Option<String>) {
        Pause { target, mark: mark() }.record().expect("a record")
    }

    /// Retries, where these things are there.
    fn retries(changes: &[(String, Option<String>)], bucket: Bucket) -> FarmRetries {
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
        let loaded = Arc::new(loaded);
        FarmRetries {
            work: Some(Watching::new(&loaded, Vec::new())),
            loaded,
            clock: Arc::new(PacedClock::starting_at(now)),
            in_force: watch::Sender::new(snapshot).subscribe(),
            outputs: Some((Arc::new(bucket), "out".into())),
        }
    }

    async fn ask(changes: &[(String, Option<String>)], bucket: Bucket, signed: &str) -> MayRun {
        let retries = retries(changes, bucket);
        let url = format!("https://storage.googleapis.com/in/o?X-Goog-Signature=ab{signed}");
        let input = InputUrl::parse(&url).expect("a URL");
        match retries.stopped(&end()) {
            Some(why) => MayRun::Later(why),
            None => retries.may_run(&end(), Some(&input)).await,
        }
    }

    #[tokio::test]
    async fn a_task_is_run_again_unless_it_is_paused_dead_or_done() {
        let with = |object: &str| Bucket { there: [object.to_owned()].into(), ..Bucket::default() };
        let none = || with("gs://out/other");
        let dated = |at: &str| format!("&X-Goog-Date={at}&X-Goog-Expires=86400");
        assert_eq!(ask(&[], none(), "").await, MayRun::Yes);
        assert_eq!(ask(&[], none(), &dated("20261130T000000Z")).await, MayRun::Yes);
        let dead = ask(&[], none(), &dated("20261101T000000Z")).await;
        assert!(matches!(&dead, MayRun::No(why) if why.contains("dead")), "{dead:?}");
        let short = ask(&[], none(), &dated("20261129T120000Z")).await;
        assert!(matches!(&short, MayRun::No(why) if why.contains("output URL")), "{short:?}");
        let done = ask(&[], with("gs://out/o"), "").await;
        assert!(matches!(&done, MayRun::No(why) if why.contains("output is there")), "{done:?}");
        let fails = Some(StorageError::Later("away".into()));
        let away = ask(&[], Bucket { fails, ..Bucket::default() }, "").await;
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

    #[tokio::test]
    async fn an_open_breaker_is_tried_by_one_retry_once_it_is_time() {
        let retries = retries(&[], Bucket::default());
        let work = retries.work.clone().expect("watched");
        let tell = |next_probe: Option<&str>| {
            let open = Open {
                cause: Cause::QuickFailures,
                detail: "exit code 1".into(),
                since: NOW.parse().expect("a time"),
                next_probe: next_probe.map(|at| at.parse().expect("a time")),
                times: 1,
            };
            work.tell([(end().key, open)].into());
        };
        tell(Some("2026-11-30T10:01:00Z"));
        let why = retries.stopped(&end()).expect("before its time");
        assert!(why.contains("exit code 1"), "{why}");
        tell(Some(NOW));
        assert_eq!(retries.stopped(&end()), None);
        assert_eq!(retries.may_run(&end(), None).await, MayRun::Yes);
        // The pipeline has not heard of it yet; another one waits none the less.
        assert!(matches!(retries.may_run(&end(), None).await, MayRun::Later(_)));
        assert_eq!(work.probes(), [(end().key, end().task)].into());
        tell(None);
        assert!(retries.stopped(&end()).is_some());
        work.tell([].into());
        assert_eq!(retries.stopped(&end()), None);
        assert_eq!(retries.may_run(&end(), None).await, MayRun::Yes);
        assert_eq!(work.probes(), [].into(), "where none is open there is no probe");
    }
}
