//! What a test does to a [`FakeCluster`]: faults, the life of Jobs and pods, and looks inside.

use std::sync::Arc;

use super::super::api::{
    AccountFacts, ConfigMapFacts, JobFacts, LeaseFacts, OwnerJob, PodFacts, Progress,
};
use super::{FakeCluster, Fault, State, Verb};

impl FakeCluster {
    /// The next calls of `verb` meet these faults, one each.
    pub fn script(&self, verb: Verb, faults: impl IntoIterator<Item = Fault>) {
        self.lock().script.entry(verb).or_default().extend(faults);
    }

    /// Every call of `verb` without a scripted fault meets this one, until `None` is set.
    pub fn always(&self, verb: Verb, fault: Option<Fault>) {
        let mut state = self.lock();
        match fault {
            Some(fault) => state.standing.insert(verb, fault),
            None => state.standing.remove(&verb),
        };
    }

    /// How many calls of `verb` there were.
    pub fn calls(&self, verb: Verb) -> usize {
        self.lock().calls.get(&verb).copied().unwrap_or_default()
    }

    /// Creates that were answered and not done are done now (or fail, the name being taken).
    pub fn land_late(&self) {
        let clock = Arc::clone(&self.clock);
        self.at_once(|state| {
            for body in std::mem::take(&mut state.late) {
                let _ = Self::create(state, &body, clock.wall());
            }
        });
    }

    /// How many items a page of a list has.
    pub fn set_page_size(&self, size: usize) {
        self.lock().page_size = size;
    }

    /// Every open watch ends.
    pub fn cut_watches(&self) {
        self.at_once(|state| state.cuts += 1);
    }

    /// Every open watch, and one from an older version, gets a 410.
    pub fn expire_watches(&self) {
        self.at_once(|state| state.compacted = state.version + 1);
        self.at_once(|state| state.version += 1);
    }

    /// Watches say nothing at all, bookmarks included, or speak again.
    pub fn mute_watches(&self, muted: bool) {
        self.at_once(|state| state.muted = muted);
    }

    /// All Jobs.
    pub fn jobs(&self) -> Vec<JobFacts> {
        self.lock().jobs.values().cloned().collect()
    }

    /// How often a Job of this name was created.
    pub fn made(&self, name: &str) -> usize {
        self.lock().made.get(name).copied().unwrap_or_default()
    }

    /// How many Jobs were ever created.
    pub fn made_in_all(&self) -> usize {
        self.lock().made.values().sum()
    }

    /// The most that was pending right after a create.
    pub fn most_pending(&self) -> usize {
        self.lock().most_pending
    }

    /// What is pending in truth.
    pub fn pending(&self) -> usize {
        self.lock().pending()
    }

    /// How many farm Jobs are unfinished in truth.
    pub fn live(&self) -> usize {
        self.lock().jobs.values().filter(|job| job.farm && !job.progress.finished).count()
    }

    /// A pod of the farm that no Job owns is pending.
    pub fn add_loose_pod(&self, name: &str, farm: bool) {
        let (name, resource_version) = (name.to_owned(), String::new());
        self.at_once(|state| state.put_pod(PodFacts { name, resource_version, farm, job: None }));
    }

    /// A Job that somebody else made is there.
    pub fn add_job(&self, job: JobFacts) {
        self.at_once(|state| state.put_job(job));
    }

    /// A ServiceAccount is there.
    pub fn add_account(&self, name: &str, email: Option<&str>) {
        let facts = AccountFacts { email: email.map(str::to_owned) };
        self.lock().accounts.insert(name.to_owned(), facts);
    }

    /// A ServiceAccount as it is.
    pub fn account(&self, name: &str) -> Option<AccountFacts> {
        self.lock().accounts.get(name).cloned()
    }

    /// A ConfigMap as it is.
    pub fn config_map(&self, name: &str) -> Option<ConfigMapFacts> {
        self.lock().config_maps.get(name).cloned()
    }

    /// A Lease as it is.
    pub fn lease(&self, name: &str) -> Option<LeaseFacts> {
        self.lock().leases.get(name).cloned()
    }

    /// Somebody has written their name into a Lease.
    pub fn set_lease(&self, name: &str, holder: &str) {
        self.at_once(|state| {
            let facts = LeaseFacts { holder: holder.to_owned(), resource_version: state.bump() };
            state.leases.insert(name.to_owned(), facts);
        });
    }

    /// A ConfigMap has this value.
    pub fn set_config_map(&self, name: &str, key: &str, value: &str) {
        self.at_once(|state| {
            let resource_version = state.bump();
            let facts = state.config_maps.entry(name.to_owned()).or_default();
            facts.resource_version = resource_version;
            facts.data.insert(key.to_owned(), value.to_owned());
        });
    }

    /// The Job controller makes a pending pod for each Job that has none.
    pub fn make_pods(&self) {
        self.at_once(|state| {
            let needs =
                |job: &&JobFacts| job.progress == Progress::default() && job.farm && !job.deleting;
            let jobs: Vec<JobFacts> = state.jobs.values().filter(needs).cloned().collect();
            for job in jobs {
                state.put_pod(PodFacts {
                    name: format!("{}-pod", job.name),
                    resource_version: String::new(),
                    farm: true,
                    job: Some(OwnerJob { name: job.name.clone(), uid: job.uid.clone() }),
                });
                state.progress(&job.name, |progress| progress.active = true);
            }
        });
    }

    /// The Job's pod runs.
    pub fn start(&self, job: &str) {
        self.at_once(|state| {
            state.take_pods_of(job);
            state.progress(job, |progress| progress.started = true);
        });
    }

    /// The Job ends.
    pub fn finish(&self, job: &str) {
        self.at_once(|state| {
            state.take_pods_of(job);
            let ended = Progress { active: false, started: true, finished: true };
            state.progress(job, |progress| *progress = ended);
        });
    }

    /// The Job and its pods go.
    pub fn remove(&self, job: &str) {
        self.at_once(|state| state.take_job(job));
    }

    /// The Job is being deleted, and stays until it is [removed](Self::remove).
    pub fn begin_deletion(&self, job: &str) {
        self.at_once(|state| {
            if let Some(found) = state.jobs.get(job).cloned() {
                state.put_job(JobFacts { deleting: true, ..found });
            }
        });
    }
}

impl State {
    fn progress(&mut self, job: &str, change: impl FnOnce(&mut Progress)) {
        if let Some(mut found) = self.jobs.get(job).cloned() {
            change(&mut found.progress);
            self.put_job(found);
        }
    }
}
