//! A farm whose tasks run a shell script, and how they end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use katabatch::domain::end::EndKind;
use katabatch::ledger::record::EndRecord;
use katabatch::why::Answer;
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{JOB_TYPE, Plan, input, message};
use katabatch_e2e::process::Process;
use katabatch_e2e::real::{RealNode, images};
use katabatch_e2e::site::{Site, is_finished};
use kube::ResourceExt;
use kube::api::{ListParams, LogParams};
use serde_json::{Value, json};

use crate::SOON;

/// What one task runs, and as what.
pub struct Work {
    /// The shell script.
    pub script: String,
    /// Members of its profile that replace the farm's.
    pub profile: Value,
    /// Its image, with a shell unless another is named.
    pub image: &'static str,
}

impl Work {
    pub fn script(script: &str) -> Self {
        Self { script: script.into(), profile: json!({}), image: images::WORKER }
    }

    #[must_use]
    pub fn profile(self, profile: Value) -> Self {
        Self { profile, ..self }
    }

    #[must_use]
    pub fn image(self, image: &'static str) -> Self {
        Self { image, ..self }
    }
}

/// A farm with a katabatch that runs.
pub struct World {
    pub site: Site,
    process: Mutex<Process>,
}

impl World {
    /// All its Jobs run this work on that node.
    pub async fn start(case: &Case, node: &Arc<RealNode>, work: Work) -> Result<Self> {
        let mut profile = json!({
            "env": { (images::SCRIPT): work.script },
            "node_selector": { "kubernetes.io/hostname": node.name() },
        });
        for (key, value) in work.profile.as_object().context("a profile is an object")? {
            profile[key] = value.clone();
        }
        // Each test looks at one Job.
        let sections = json!({ "retries": { "attempts": 1 } });
        let plan = Plan { profile, sections, image: work.image.into(), ..Plan::default() };
        let site = Site::new(&case.plane, &case.namespace, plan).await?;
        let process = site.run("run")?;
        Ok(Self { site, process: Mutex::new(process) })
    }

    /// With one task that has been put and acked.
    pub async fn of_one(case: &Case, node: &Arc<RealNode>, work: Work) -> Result<Self> {
        let world = Self::start(case, node, work).await?;
        world.put(&[input(0)]).await?;
        Ok(world)
    }

    /// Puts tasks and waits until each has its Job.
    pub async fn put(&self, urls: &[String]) -> Result<()> {
        let messages = urls.iter().map(|url| message("fuzz", JOB_TYPE, url)).collect();
        self.site.farm.put(messages).await?;
        let process = || self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let acked = self.site.until_acked(SOON);
        let ended = eventually("katabatch has ended", 2 * SOON, || async {
            Ok(match process().must_run() {
                Ok(()) => Seen::NotYet("it runs".into()),
                Err(ended) => Seen::Done(ended),
            })
        });
        tokio::select! {
            biased;
            acked = acked => acked.with_context(|| process().messages()),
            ended = ended => Err(ended?),
        }
    }

    /// The only Job.
    pub async fn job(&self) -> Result<Job> {
        let mut jobs = self.site.jobs().await?;
        match (jobs.pop(), jobs.len()) {
            (Some(job), 0) => Ok(job),
            (_, more) => bail!("not one Job, but {more} more"),
        }
    }

    /// The only Job, once it has ended, and its conditions.
    pub async fn ended(&self) -> Result<(Job, Conditions)> {
        self.ended_within(SOON).await
    }

    pub async fn ended_within(&self, within: Duration) -> Result<(Job, Conditions)> {
        let job = eventually("the Job has ended", within, || async {
            let job = self.job().await?;
            Ok(match is_finished(&job) {
                true => Seen::Done(job),
                false => Seen::NotYet(self.what_is_there().await?),
            })
        })
        .await?;
        let conditions = Conditions::of(&job);
        Ok((job, conditions))
    }

    /// A Job's pods.
    pub async fn pods_of(&self, job: &Job) -> Result<Vec<Pod>> {
        let of_job = ListParams::default()
            .labels(&format!("batch.kubernetes.io/job-name={}", job.name_any()));
        Ok(self.site.api::<Pod>().list(&of_job).await.context("list the pods")?.items)
    }

    /// The only Job's pod, once `is` holds of it.
    pub async fn pod(&self, what: &str, is: impl Fn(&Pod) -> bool) -> Result<Pod> {
        self.pod_of(&self.job().await?, what, is).await
    }

    /// A Job's pod, once `is` holds of it.
    pub async fn pod_of(&self, job: &Job, what: &str, is: impl Fn(&Pod) -> bool) -> Result<Pod> {
        eventually(&format!("the pod {what}"), SOON, || async {
            let pods = self.pods_of(job).await?;
            Ok(match pods.into_iter().find(|pod| is(pod)) {
                Some(pod) => Seen::Done(pod),
                None => Seen::NotYet(self.what_is_there().await?),
            })
        })
        .await
    }

    /// Waits until a Job has no pod any more.
    pub async fn until_without_pod(&self, job: &Job) -> Result<()> {
        eventually("the pod is gone", SOON, || async {
            let left = self.pods_of(job).await?;
            Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
        })
        .await
    }

    /// What a pod has said so far.
    pub async fn log(&self, pod: &Pod) -> Result<String> {
        let log = self.site.api::<Pod>().logs(&pod.name_any(), &LogParams::default()).await;
        log.with_context(|| format!("read the log of {}", pod.name_any()))
    }

    /// How the only Job's only pod ended, and all that it said.
    pub async fn last_words(&self) -> Result<(Ending, String)> {
        let pod = self.pod("has ended", |pod| Ending::of(pod).is_some()).await?;
        let ending = Ending::of(&pod).context("it has ended")?;
        Ok((ending, self.log(&pod).await?))
    }

    /// What katabatch itself says of the only end, by `why`.
    pub async fn verdict(&self) -> Result<EndRecord> {
        eventually("katabatch's verdict", SOON, || async {
            let mut ends = self.ends().await?;
            Ok(match (ends.pop(), ends.is_empty()) {
                (Some(end), true) => Seen::Done(end),
                (end, _) => Seen::NotYet(format!("{ends:?} {end:?}")),
            })
        })
        .await
    }

    /// All ends that `why` tells of.
    async fn ends(&self) -> Result<Vec<EndRecord>> {
        let arguments = ["why", JOB_TYPE, "-o", "json"];
        let asked = Process::run(self.site.farm.dir(), "why", &arguments).await?;
        let answer: Answer =
            serde_json::from_str(&asked.stdout).with_context(|| format!("{asked:?}"))?;
        Ok(answer.workloads.into_iter().flat_map(|about| about.ends).collect())
    }

    /// Checks that, and what it has kept of the pod's words, credentials taken out.
    pub async fn check(&self, kind: EndKind, code: Option<i32>, words: &[&str]) -> Result<()> {
        let end = self.verdict().await?;
        ensure!((end.kind, end.exit_code) == (kind, code), "{end:?}");
        let tail = end.tail.text().unwrap_or_default();
        ensure!(words.is_empty() == tail.is_empty(), "{end:?}");
        let missing = words.iter().find(|words| !tail.contains(**words));
        ensure!(missing.is_none(), "{missing:?} is not in the tail of {end:?}");
        Ok(())
    }

    async fn what_is_there(&self) -> Result<String> {
        let pods = self.site.api::<Pod>().list(&ListParams::default()).await?;
        Ok(format!("{:?}", pods.iter().map(|pod| (state(pod), &pod.status)).collect::<Vec<_>>()))
    }
}

/// The conditions of a Job that are true, with their reasons.
#[derive(Debug)]
pub struct Conditions(Vec<(String, String)>);

impl Conditions {
    fn of(job: &Job) -> Self {
        let all = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let true_ones = all.filter(|condition| condition.status == "True");
        let pair = |condition: &k8s_openapi::api::batch::v1::JobCondition| {
            (condition.type_.clone(), condition.reason.clone().unwrap_or_default())
        };
        Self(true_ones.map(pair).collect())
    }

    /// The reason for which it failed.
    pub fn failed_for(&self) -> Option<&str> {
        self.reason("Failed")
    }

    /// Whether it succeeded.
    pub fn is_complete(&self) -> bool {
        self.reason("Complete").is_some()
    }

    fn reason(&self, type_: &str) -> Option<&str> {
        self.0.iter().find(|(has, _)| has == type_).map(|(_, reason)| reason.as_str())
    }
}

/// How a pod's container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub code: i32,
    pub reason: String,
}

impl Ending {
    pub fn of(pod: &Pod) -> Option<Self> {
        let end = state(pod)?.terminated.as_ref()?;
        Some(Self { code: end.exit_code, reason: end.reason.clone().unwrap_or_default() })
    }
}

/// The state of a pod's only container.
pub fn state(pod: &Pod) -> Option<&ContainerState> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()
}

/// For what its only container waits.
pub fn waits_for(pod: &Pod) -> Option<&str> {
    state(pod)?.waiting.as_ref()?.reason.as_deref()
}

/// Whether its only container runs.
pub fn is_running(pod: &Pod) -> bool {
    state(pod).is_some_and(|state| state.running.is_some())
}
