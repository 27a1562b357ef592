//! A sender of tasks over HTTP in the simulated world: it posts each to the process that leads, and
//! again whenever it was deferred, the process went away, or it lost its patience, until it is told
//! that the task is scheduled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use super::chaos::Chaos;
use crate::domain::message::{Decoded, decode};
use crate::leadership::Leadership;
use crate::queue::push::{Answer, Posted, PushQueue};

/// The way into one process.
pub struct Door {
    pub queue: Arc<PushQueue>,
    pub leadership: Arc<dyn Leadership>,
}

struct Sent {
    posted: Posted,
    job: String,
    waiting: Option<Receiver<Answer>>,
    due: Instant,
}

pub struct Sender {
    chaos: Arc<Chaos>,
    doors: Mutex<BTreeMap<usize, Door>>,
    /// What is not known to be scheduled.
    left: Mutex<Vec<Sent>>,
}

impl Sender {
    /// With fewer tasks than `most`, some of which are in the queue, too.
    pub fn new(chaos: Arc<Chaos>, epoch: Timestamp, most: u64) -> Self {
        let sent = |n: u64| {
            let (job, object) = (format!("job_{}", chaos.draw(3)), chaos.draw(20));
            let url = format!("https://storage.googleapis.com/in/{object}?X-Goog-Signature=p{n}");
            let pairs = [("command", "fuzz"), ("job", &job), ("argument", &url)];
            let attributes: BTreeMap<String, String> =
                pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            let message_id = format!("p{n}");
            let Ok(Decoded::Task(task)) = decode(&attributes, &message_id, epoch, None) else {
                panic!("a task of the simulation is none");
            };
            let due = Instant::now() + Duration::from_millis(chaos.draw(120_000));
            let job = task.job_name().to_string();
            let posted = Posted { hash: task.hash, message_id, attributes };
            Sent { posted, job, waiting: None, due }
        };
        let left: Vec<Sent> = (0..chaos.draw(most)).map(sent).collect();
        Self { doors: Mutex::default(), left: Mutex::new(left), chaos }
    }

    /// The Jobs of its tasks, by their ids.
    pub fn jobs(&self) -> Vec<(String, String)> {
        let left = self.left.lock().unwrap();
        left.iter().map(|sent| (sent.posted.message_id.clone(), sent.job.clone())).collect()
    }

    /// A process can be posted to, in the place of the one that was there.
    pub fn open(&self, which: usize, door: Door) {
        self.doors.lock().unwrap().insert(which, door);
    }

    /// All processes are gone, and with them every answer to come.
    pub fn crashed(&self) {
        self.doors.lock().unwrap().clear();
    }

    pub fn is_done(&self) -> bool {
        self.left.lock().unwrap().is_empty()
    }

    /// Hears answers and posts what is due; the Jobs that are said to be scheduled.
    pub fn live(&self) -> Vec<String> {
        let mut scheduled = Vec::new();
        let (doors, mut left) = (self.doors.lock().unwrap(), self.left.lock().unwrap());
        left.retain_mut(|sent| {
            let answer = sent.waiting.as_mut().map(Receiver::try_recv);
            let id = &sent.posted.message_id;
            match answer {
                Some(Ok(Answer::Scheduled)) => {
                    self.chaos.note(&format!("{id} is said to be scheduled"));
                    scheduled.push(sent.job.clone());
                    return false;
                }
                Some(Ok(Answer::Rejected(why))) => panic!("{id} is rejected: {why:?}"),
                Some(Ok(Answer::Deferred(_) | Answer::Stopped) | Err(TryRecvError::Closed)) => {
                    sent.again(&self.chaos);
                }
                Some(Err(TryRecvError::Empty)) if self.chaos.draw(50) == 0 => {
                    self.chaos.note(&format!("the sender of {id} waits no longer"));
                    sent.again(&self.chaos);
                }
                Some(Err(TryRecvError::Empty)) => return true,
                None => {}
            }
            if self.chaos.calm() || sent.due <= Instant::now() {
                // A standby would answer 503.
                let leads = doors.values().find(|door| door.leadership.may_create());
                sent.waiting = leads.and_then(|door| door.queue.push(sent.posted.clone()).ok());
            }
            true
        });
        scheduled
    }
}

impl Sent {
    fn again(&mut self, chaos: &Chaos) {
        self.waiting = None;
        self.due = Instant::now() + Duration::from_millis(chaos.draw(20_000));
    }
}
