//! The pods of our Jobs in a [`FakeCluster`], with what a kubelet would say of them.

use super::super::api::{EventFacts, OwnerJob, Progress, WatchEvent};
use super::super::facts::{ContainerStory, Ended, JobEnd, Phase, PodStory, Running, Said, WorkPod};
use super::{FakeCluster, State};
use crate::domain::log_tail::LogTail;

impl FakeCluster {
    /// The Job's pod fares so; it is made if there is none.
    pub fn set_pod(&self, job: &str, story: PodStory) {
        self.at_once(|state| state.put_work_pod(job, story, false));
    }

    /// The Job's pod is being deleted, and fares so.
    pub fn set_dying_pod(&self, job: &str, story: PodStory) {
        self.at_once(|state| state.put_work_pod(job, story, true));
    }

    /// The Job's pod goes, and the Job stays.
    pub fn remove_pod(&self, job: &str) {
        self.at_once(|state| state.take_work_pod(job));
    }

    /// What the Job's pod printed.
    pub fn set_log(&self, job: &str, log: LogTail) {
        self.lock().logs.insert(format!("{job}-pod"), log);
    }

    /// An event tells of the object of this uid.
    pub fn add_event(&self, uid: &str, reason: &str, message: &str) {
        let event = EventFacts { said: Said::new(reason, message) };
        self.lock().events.entry(uid.to_owned()).or_default().push(event);
    }

    /// The Job gets its final condition.
    pub fn end(&self, job: &str, complete: bool, reason: &str, message: &str) {
        let at = Some(self.clock.wall());
        self.at_once(|state| {
            state.take_pods_of(job);
            if let Some(mut found) = state.jobs.get(job).cloned() {
                found.progress = Progress { active: false, started: true, finished: true };
                if let Some(story) = &mut found.story {
                    story.end = Some(JobEnd { complete, said: Said::new(reason, message), at });
                }
                state.put_job(found);
            }
        });
    }

    /// The Job's worker runs to its end with this exit code, and the Job with it.
    pub fn run_to_end(&self, job: &str, code: i32) {
        let now = Some(self.clock.wall());
        let running = ContainerStory {
            running: Some(Running { started_at: now }),
            ..ContainerStory::default()
        };
        let ended =
            Ended { exit_code: code, started_at: now, finished_at: now, ..Ended::default() };
        let ended = ContainerStory { ended: Some(ended), ..ContainerStory::default() };
        let phase = if code == 0 { Phase::Succeeded } else { Phase::Failed };
        self.set_pod(job, story(Phase::Running, running));
        self.set_pod(job, story(phase, ended));
        let reason = if code == 0 { "CompletionsReached" } else { "BackoffLimitExceeded" };
        self.end(job, code == 0, reason, "");
    }
}

/// A pod in `phase`, with this container.
pub fn story(phase: Phase, container: ContainerStory) -> PodStory {
    PodStory { phase, container: Some(Box::new(container)), ..PodStory::default() }
}

impl State {
    fn put_work_pod(&mut self, job: &str, story: PodStory, deleting: bool) {
        let Some(owner) = self.jobs.get(job) else { return };
        let pod = WorkPod {
            name: format!("{job}-pod"),
            uid: format!("pod-of-{}", owner.uid),
            job: Some(OwnerJob { name: owner.name.clone(), uid: owner.uid.clone() }),
            deleting,
            story,
            resource_version: self.bump(),
        };
        self.work_history.push((self.version, WatchEvent::Applied(pod.clone())));
        self.work_pods.insert(job.to_owned(), pod);
    }

    pub(super) fn take_work_pod(&mut self, job: &str) {
        if let Some(pod) = self.work_pods.remove(job) {
            let pod = WorkPod { resource_version: self.bump(), ..pod };
            self.work_history.push((self.version, WatchEvent::Deleted(pod)));
        }
    }
}
