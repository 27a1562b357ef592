//! A subscription that answers as it is told, on a paused clock, and remembers what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::PubSub;
use super::fault::Fault;
use super::wire::{Outgoing, Received, Wire};
use crate::clock::SystemClock;
use crate::domain::pubsub::Names;

/// How a pull is answered: after so long, with so many messages, or with a fault.
pub(super) struct Answer(pub Duration, pub Result<usize, Fault>);

/// One request, and when it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Pull(usize),
    Modify(Vec<String>, u16),
    Ack(Vec<String>),
    Publish(String),
}

#[derive(Default)]
pub(super) struct State {
    /// What pulls are answered with, in turn; then each waits and is answered with nothing.
    pub answers: VecDeque<Answer>,
    pub delivered: usize,
    pub pulling: usize,
    pub asked: Vec<(Instant, Asked)>,
    pub published: Vec<Outgoing>,
    /// The next requests of the kind that fail, and how.
    pub modify_faults: VecDeque<Fault>,
    pub ack_faults: VecDeque<Fault>,
    pub publish_faults: VecDeque<Fault>,
    /// Requests that name one of these are refused.
    pub unknown: Vec<String>,
    /// How long acks take.
    pub ack_takes: Duration,
}

#[derive(Default)]
pub(super) struct Fake(Mutex<State>);

impl Fake {
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        let state = State { answers: answers.into_iter().collect(), ..State::default() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// `n` messages at once, for each of `ns`.
    pub fn with(ns: &[usize]) -> Arc<Self> {
        Self::new(ns.iter().map(|&n| Answer(Duration::from_millis(1), Ok(n))))
    }

    pub fn queue(self: &Arc<Self>) -> PubSub {
        let names = Names {
            subscription: "projects/p/subscriptions/s".into(),
            topic: None,
            quarantine_topic: "projects/p/topics/rejected".into(),
            quarantine_subscription: None,
        };
        PubSub::over(Arc::clone(self) as Arc<dyn Wire>, "q".into(), names, Arc::new(SystemClock))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("whole")
    }

    /// All requests of a kind, in order.
    pub fn asked<T>(&self, of: impl Fn(&Asked) -> Option<T>) -> Vec<T> {
        self.state().asked.iter().filter_map(|(_, asked)| of(asked)).collect()
    }

    /// How many pulls there were.
    pub fn pulls(&self) -> usize {
        self.asked(|asked| matches!(asked, Asked::Pull(_)).then_some(())).len()
    }

    /// The ids that were given back.
    pub fn given_back(&self) -> Vec<String> {
        let back = |asked: &Asked| match asked {
            Asked::Modify(ids, 0) => Some(ids.clone()),
            _ => None,
        };
        self.asked(back).concat()
    }

    /// The ids that were acked, as far as requests say.
    pub fn acks(&self) -> Vec<String> {
        let acks = |asked: &Asked| match asked {
            Asked::Ack(ids) => Some(ids.clone()),
            _ => None,
        };
        self.asked(acks).concat()
    }

    fn answer(
        &self,
        asked: Asked,
        ids: &[String],
        faults: impl Fn(&mut State) -> Option<Fault>,
    ) -> Result<(), Fault> {
        let mut state = self.state();
        state.asked.push((Instant::now(), asked));
        if let Some(fault) = faults(&mut state) {
            return Err(fault);
        }
        if ids.iter().any(|id| state.unknown.contains(id)) {
            return Err(Fault::Refused("an id is not valid".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Wire for Fake {
    async fn pull(&self, max: usize, within: Duration) -> Result<Vec<Received>, Fault> {
        let answer = {
            let mut state = self.state();
            state.asked.push((Instant::now(), Asked::Pull(max)));
            state.pulling += 1;
            state.answers.pop_front()
        };
        let empty = Answer(within.saturating_sub(Duration::from_secs(1)), Ok(0));
        let Answer(after, result) = answer.unwrap_or(empty);
        tokio::time::sleep(after).await;
        let mut state = self.state();
        state.pulling -= 1;
        let n = result?.min(max);
        let first = state.delivered;
        state.delivered += n;
        Ok((first..first + n).map(message).collect())
    }

    async fn modify(&self, ids: &[String], seconds: u16) -> Result<(), Fault> {
        let asked = Asked::Modify(ids.to_vec(), seconds);
        self.answer(asked, ids, |state| state.modify_faults.pop_front())
    }

    async fn acknowledge(&self, ids: &[String]) -> Result<(), Fault> {
        let takes = self.state().ack_takes;
        let asked = Asked::Ack(ids.to_vec());
        let answer = self.answer(asked, ids, |state| state.ack_faults.pop_front());
        tokio::time::sleep(takes).await;
        answer
    }

    async fn publish(&self, topic: &str, messages: Vec<Outgoing>) -> Result<(), Fault> {
        let asked = Asked::Publish(topic.to_owned());
        self.answer(asked, &[], |state| state.publish_faults.pop_front())?;
        self.state().published.extend(messages);
        Ok(())
    }

    async fn topic(&self) -> Result<String, Fault> {
        Ok("projects/p/topics/t".into())
    }
}

fn message(number: usize) -> Received {
    Received {
        ack_id: format!("ack-{number}"),
        message_id: number.to_string(),
        attributes: BTreeMap::from([("job".to_owned(), format!("job-{number}"))]),
        data: Vec::new(),
        published_at: None,
        deliveries: None,
    }
}
