//! What was seen of one pod over its life, as far as it tells how its Job ends. Pure.
//!
//! The last state alone does not tell: a pod that is being deleted shows its containers as killed,
//! whatever kept them from starting, and one whose container is started again forgets more with
//! each time. So what was seen before the deletion stands.

use jiff::Timestamp;

use super::facts::{Ended, Phase, PodStory, Said, Text, WorkPod};

/// Reasons of waiting that say nothing: the ordinary way into running, or out of an end that is
/// told by itself.
const ORDINARY: &[&str] = &["", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"];

/// Reasons of waiting after a hook failed.
const HOOK: &[&str] = &["PostStartHookError", "PreStopHookError"];

/// One pod over its life.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodHistory {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its phase; the last one before its deletion, but for an end.
    pub phase: Phase,
    /// Its worker's container, by name.
    pub container: Text,
    /// Its worker has run.
    pub ran: bool,
    /// Its worker runs now, or is being started again.
    pub running: bool,
    /// Since when, the first time.
    pub started: Option<Timestamp>,
    /// Why its worker waits, where that says something.
    pub waiting: Option<Box<Said>>,
    /// How a hook of its worker failed.
    pub hook: Option<Box<Said>>,
    /// What the scheduler says, as long as it finds no node.
    pub unscheduled: Option<Text>,
    /// Why it was disrupted.
    pub disruption: Option<Box<Said>>,
    /// Why it was put out as a whole.
    pub said: Option<Box<Said>>,
    /// How its worker ended the last time.
    pub end: Option<Box<Ended>>,
    /// That was while the pod was being deleted: it was killed.
    pub killed: bool,
    /// How often its worker was started again.
    pub restarts: u32,
    /// It is being deleted, or gone.
    pub deleting: bool,
}

impl PodHistory {
    /// A pod, as it is first seen.
    pub fn new(pod: &WorkPod) -> Self {
        let mut history = Self { name: pod.name.clone(), uid: pod.uid.clone(), ..Self::default() };
        history.take(pod, false);
        history
    }

    /// The pod as it is now. Answers whether its worker has newly ended: then its log can be read.
    pub fn see(&mut self, pod: &WorkPod) -> bool {
        self.take(pod, pod.deleting)
    }

    /// `late`: what it shows by now is its deletion's, not its own.
    fn take(&mut self, pod: &WorkPod, late: bool) -> bool {
        let story = &pod.story;
        if !pod.deleting || matches!(story.phase, Phase::Succeeded | Phase::Failed) {
            self.phase = story.phase;
        }
        self.said = story.said.clone().or(self.said.take());
        self.disruption = self.disruption.take().or_else(|| story.disruption.clone());
        match &story.unscheduled {
            Some(why) => self.unscheduled = Some(why.clone()),
            None if !pod.deleting => self.unscheduled = None,
            None => {}
        }
        self.see_container(story, pod.deleting, late)
    }

    fn see_container(&mut self, story: &PodStory, deleting: bool, late: bool) -> bool {
        self.deleting |= deleting;
        let Some(container) = &story.container else { return false };
        self.container = container.name.clone();
        let end = container.last_end();
        let started = container.running.as_ref().and_then(|running| running.started_at);
        let started = started.or(end.and_then(|end| end.started_at));
        // A pod that never ran is shown as killed when it is deleted.
        let runs = container.running.is_some() || (started.is_some() && !late);
        if runs {
            self.ran = true;
            self.started = self.started.or(started);
            self.waiting = None;
        }
        self.running = container.running.is_some();
        if let Some(waiting) = &container.waiting
            && !ORDINARY.contains(&waiting.reason.as_str())
            && !deleting
        {
            let hook = HOOK.contains(&waiting.reason.as_str());
            let place = if hook { &mut self.hook } else { &mut self.waiting };
            *place = Some(Box::new(waiting.clone()));
        }
        let newly = match end {
            Some(end) if !(self.killed || deleting && self.end.is_some()) => {
                self.killed = late;
                self.end.replace(Box::new(end.clone())).as_deref() != Some(end)
            }
            _ => false,
        };
        self.restarts = container.restarts;
        newly && self.ran
    }

    /// The pod is gone.
    pub fn gone(&mut self) {
        self.deleting = true;
        self.running = false;
    }

    /// It is being deleted while its worker runs: its log may be gone as soon as that has ended.
    pub fn is_doomed(&self) -> bool {
        self.deleting && self.running
    }

    /// Its worker came to an end of its own, before anybody deleted the pod.
    pub fn ended_by_itself(&self) -> bool {
        !self.killed && matches!(self.phase, Phase::Succeeded | Phase::Failed) && self.end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::ContainerStory;
    use super::*;

    fn pod(phase: Phase, deleting: bool, container: ContainerStory) -> WorkPod {
        let story = PodStory { phase, container: Some(Box::new(container)), ..PodStory::default() };
        WorkPod { name: "p".into(), deleting, story, ..WorkPod::default() }
    }

    fn waiting(reason: &str) -> ContainerStory {
        ContainerStory { waiting: Some(Said::new(reason, "why")), ..ContainerStory::default() }
    }

    fn ended(exit_code: i32) -> ContainerStory {
        let at = "2026-11-30T10:00:00Z".parse().ok();
        let end = Ended { exit_code, started_at: at, finished_at: at, ..Ended::default() };
        ContainerStory { ended: Some(end), ..ContainerStory::default() }
    }

    #[test]
    fn what_kept_a_pod_from_starting_outlives_its_deletion() {
        let mut history = PodHistory::new(&pod(Phase::Pending, false, waiting("ErrImagePull")));
        history.see(&pod(Phase::Pending, true, waiting("ContainerCreating")));
        assert!(!history.see(&pod(Phase::Failed, true, ended(137))));
        assert!(!history.ran && history.killed && !history.ended_by_itself());
        assert_eq!(history.waiting, Some(Box::new(Said::new("ErrImagePull", "why"))));
    }

    #[test]
    fn an_end_before_the_deletion_stands() {
        let mut history = PodHistory::new(&pod(Phase::Running, false, ContainerStory::default()));
        let again =
            ContainerStory { before: ended(1).ended, restarts: 1, ..waiting("CrashLoopBackOff") };
        assert!(history.see(&pod(Phase::Running, false, again.clone())), "its log can be read");
        assert!(!history.see(&pod(Phase::Running, false, again)), "once");
        history.see(&pod(Phase::Failed, true, ended(143)));
        assert_eq!(history.end.map(|end| end.exit_code), Some(1));
        assert_eq!(history.waiting, None);
    }

    #[test]
    fn a_pod_first_seen_after_its_end_has_run() {
        let history = PodHistory::new(&pod(Phase::Failed, false, ended(3)));
        assert!(history.ran && history.ended_by_itself());
        let history = PodHistory::new(&pod(Phase::Failed, true, ended(3)));
        assert!(history.ran && history.ended_by_itself(), "{history:?}");
    }

    #[test]
    fn a_pod_that_is_killed_while_it_runs_says_so() {
        let running = ContainerStory { running: Some(Default::default()), ..Default::default() };
        let mut history = PodHistory::new(&pod(Phase::Running, false, running));
        assert!(history.running);
        assert!(history.see(&pod(Phase::Failed, true, ended(137))));
        assert!(history.killed && history.ran && !history.running);
    }
}
