//! Any sequence of calls, compared with a model of a few lines.

use proptest::prelude::*;

use super::*;
use crate::domain::outcome::{RejectKind, Rejection};
use crate::queue::spool::record::{PutCount, Selection};
use crate::queue::{LeaseId, Queue, QueueError};

#[derive(Debug, Clone)]
enum Call {
    Put(u8, u64),
    Lease(usize, u64),
    Extend(usize, u64),
    Ack(usize),
    Release(usize, u64),
    Quarantine(usize),
    Retry,
    Pass(u64),
    Reopen,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let seconds = 0..40_u64;
    let call = prop_oneof![
        4 => (0..8_u8, seconds.clone()).prop_map(|(id, after)| Call::Put(id, after)),
        5 => (0..4_usize, seconds.clone()).prop_map(|(n, time)| Call::Lease(n, time)),
        2 => (0..9_usize, seconds.clone()).prop_map(|(back, time)| Call::Extend(back, time)),
        2 => (0..9_usize).prop_map(Call::Ack),
        3 => (0..9_usize, seconds.clone()).prop_map(|(back, after)| Call::Release(back, after)),
        2 => (0..9_usize).prop_map(Call::Quarantine),
        1 => Just(Call::Retry),
        4 => seconds.prop_map(Call::Pass),
        1 => Just(Call::Reopen),
    ];
    prop::collection::vec(call, 1..60)
}

struct Message {
    due: u64,
    order: usize,
    lease: Option<usize>,
    deliveries: u32,
}

/// The messages that wait or are leased, and those in quarantine with how they are ordered there.
#[derive(Default)]
struct Model {
    now: u64,
    orders: usize,
    messages: BTreeMap<String, Message>,
    quarantine: Vec<(usize, String)>,
    published: BTreeMap<String, u64>,
    leases: Vec<(LeaseId, String)>,
}

impl Model {
    fn put(&mut self, id: &str, due: u64) {
        self.orders += 1;
        let message = Message { due, order: self.orders, lease: None, deliveries: 0 };
        self.messages.insert(id.to_owned(), message);
    }

    /// The lease given out `back` leases ago, and its message's id if it is the one that holds it.
    fn held(&self, back: usize) -> Option<(LeaseId, Option<String>)> {
        let at = self.leases.len().checked_sub(back + 1)?;
        let (lease, id) = self.leases[at].clone();
        let ours = self.messages.get(&id).is_some_and(|message| message.lease == Some(at));
        Some((lease, ours.then_some(id)))
    }

    fn due(&self, n: usize) -> Vec<String> {
        let mut due: Vec<_> = self.messages.iter().filter(|(_, m)| m.due <= self.now).collect();
        due.sort_by_key(|(_, m)| (m.due, m.order));
        due.into_iter().take(n).map(|(id, _)| id.clone()).collect()
    }

    fn retry(&mut self) -> u64 {
        let mut back = std::mem::take(&mut self.quarantine);
        back.sort_by_key(|(order, id)| (self.published[id], *order));
        back.iter().for_each(|(_, id)| self.put(id, self.now));
        back.len() as u64
    }
}

async fn step(model: &mut Model, spool: &Spool, clock: &TestClock, call: &Call) {
    let time = Duration::from_secs;
    let answer = |ours: &Option<String>| match ours {
        Some(_) => Ok(()),
        None => Err(QueueError::LeaseLost),
    };
    match *call {
        Call::Put(id, after) => {
            let id = id.to_string();
            let not_before = Some(clock.wall() + time(after));
            let put = spool.put(vec![NewMessage { not_before, ..message(&id) }]).await;
            let is_there = model.messages.contains_key(&id)
                || model.quarantine.iter().any(|(_, there)| *there == id);
            let there = u64::from(is_there);
            assert_eq!(put, Ok(PutCount { put: 1 - there, already_there: there }));
            if !is_there {
                model.put(&id, model.now + after);
                model.published.insert(id, model.now);
            }
        }
        Call::Lease(n, lease_for) => {
            let got = spool.lease(n, time(lease_for), Duration::ZERO).await.expect("a lease");
            let expect = model.due(n);
            assert!(got.iter().map(|d| &d.message_id).eq(&expect), "{got:?}, not {expect:?}");
            for delivery in got {
                let message = model.messages.get_mut(&delivery.message_id).expect("modelled");
                message.deliveries += 1;
                message.due = model.now + lease_for;
                message.lease = Some(model.leases.len());
                assert_eq!(delivery.deliveries, Some(message.deliveries));
                model.leases.push((delivery.lease, delivery.message_id));
            }
        }
        Call::Extend(back, by) => {
            let Some((lease, ours)) = model.held(back) else { return };
            assert_eq!(spool.extend(&[lease], time(by)).await, [answer(&ours)]);
            if let Some(message) = ours.and_then(|id| model.messages.get_mut(&id)) {
                message.due = model.now + by;
            }
        }
        Call::Ack(back) => {
            let Some((lease, ours)) = model.held(back) else { return };
            assert_eq!(spool.ack(&[lease]).await, [answer(&ours)]);
            ours.map(|id| model.messages.remove(&id));
        }
        Call::Release(back, after) => {
            let Some((lease, ours)) = model.held(back) else { return };
            assert_eq!(spool.release(&[lease], time(after)).await, [answer(&ours)]);
            if let Some(message) = ours.and_then(|id| model.messages.get_mut(&id)) {
                message.due = model.now + after;
                message.lease = None;
            }
        }
        Call::Quarantine(back) => {
            let Some((lease, ours)) = model.held(back) else { return };
            let rejection = Rejection::new(RejectKind::BadUrl, "x");
            assert_eq!(spool.quarantine(&lease, &rejection).await, answer(&ours));
            if let Some(id) = ours {
                model.messages.remove(&id);
                model.orders += 1;
                model.quarantine.push((model.orders, id));
            }
        }
        Call::Retry => assert_eq!(spool.retry(Selection::default()).await, Ok(model.retry())),
        Call::Pass(by) => {
            clock.pass(time(by));
            model.now += by;
        }
        Call::Reopen => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_sequence_of_calls_does_as_the_model_says(calls in calls()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let clock = TestClock::new();
            let (folder, mut spool) = spool(&clock);
            let mut model = Model::default();
            for (seed, call) in calls.iter().enumerate() {
                step(&mut model, &spool, &clock, call).await;
                if matches!(call, Call::Reopen) {
                    spool = open(&folder, &clock, 100 + seed as u64);
                }
                let counts = spool.counts().await.expect("counts");
                let all = counts.ready + counts.leased + counts.delayed;
                assert_eq!(all, model.messages.len() as u64);
                assert_eq!(counts.ready, model.due(usize::MAX).len() as u64);
                assert_eq!(counts.quarantined, model.quarantine.len() as u64);
            }
        });
    }
}
