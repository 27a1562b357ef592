//! What the tests of the layers share: a backend below them that takes everything, and tasks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;

use super::Backend;
use crate::domain::input_url::InputUrl;
use crate::domain::name::{BackendName, TaskHash};
use crate::domain::outcome::{Deferral, Outcome, Placed};
use crate::domain::room::Room;
use crate::domain::task::{Task, WorkloadKey};
use crate::domain::workload::{Account, Isolation, Profile, Workload};

pub const CREATED: Outcome = Outcome::Scheduled(Placed::Created);

/// Takes everything, and keeps it.
pub struct Below {
    name: BackendName,
    pub got: Mutex<Vec<Task>>,
    pub acked: Mutex<Vec<TaskHash>>,
}

impl Below {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { name: "below".into(), got: Mutex::default(), acked: Mutex::default() })
    }

    /// The inputs of all that it got.
    pub fn inputs(&self) -> Vec<String> {
        let got = self.got.lock().expect("unpoisoned");
        got.iter().map(|task| task.input.reveal().to_owned()).collect()
    }
}

#[async_trait]
impl Backend for Below {
    fn name(&self) -> &BackendName {
        &self.name
    }

    fn room(&self) -> watch::Receiver<Room> {
        watch::Sender::new(Room::Unknown("nobody asks".into())).subscribe()
    }

    async fn submit(&self, _: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome> {
        self.got.lock().expect("unpoisoned").extend_from_slice(tasks);
        vec![CREATED; tasks.len()]
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        Ok(self.got.lock().expect("unpoisoned").iter().any(|got| got.hash == task.hash))
    }

    fn acked(&self, tasks: &[TaskHash]) {
        self.acked.lock().expect("unpoisoned").extend_from_slice(tasks);
    }
}

pub fn task(input: &str) -> Task {
    let key = WorkloadKey { command: "fuzz".into(), job_type: "j".into() };
    let input = InputUrl::parse(input).expect("a URL");
    Task::new(key, input, "message", Timestamp::UNIX_EPOCH)
}

pub fn workload(duration: Duration, deadline: Option<Duration>) -> Arc<Workload> {
    Arc::new(Workload {
        key: task("gs://b/o").key,
        mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".into(),
        platform: "LINUX".into(),
        project: None,
        base_os_version: None,
        image: "image".into(),
        release: "prod".into(),
        account: Account::Existing { name: "sa".into() },
        isolation: Isolation::Kata,
        duration,
        disk_gb: None,
        machines: None,
        profile: Profile { deadline, ..Profile::default() },
    })
}
