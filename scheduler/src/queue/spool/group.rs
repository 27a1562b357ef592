//! Group commit: callers that write at once share one transaction, and so one sync of the disk.
//!
//! A change is queued; the first caller to find nobody committing starts a blocking task, which
//! commits what is queued until nothing is. Tokio's blocking pool rather than a thread of our own:
//! the clock is then the runtime's, paused time stands still while SQLite works, and a runtime
//! that shuts down waits for the commit. Knows nothing of messages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngCore;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::fault::queue_error;
use super::file::Place;
use crate::clock::Clock;
use crate::queue::QueueError;

/// The most changes in one transaction: bounds how long other processes wait.
const MAX_GROUP: usize = 1_000;

/// What a change works with, inside a transaction that holds the write lock.
pub(super) struct Work<'a> {
    /// The transaction.
    pub(super) tx: &'a Connection,
    /// The wall clock, read after the lock was got, in microseconds since 1970.
    pub(super) now: i64,
    /// Where lease tokens and message ids come from.
    pub(super) random: &'a mut dyn RngCore,
}

/// The one connection that writes.
pub(super) struct Writer {
    pub(super) connection: Connection,
    /// Where its file is.
    pub(super) place: Place,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Box<dyn RngCore + Send>,
}

/// One queued change. May be applied more than once: a transaction that fails is rolled back.
trait Change: Send {
    fn apply(&mut self, work: &mut Work<'_>) -> rusqlite::Result<()>;
    /// Tells the caller; what must be undone because the caller is gone comes back.
    fn answer(self: Box<Self>, committed: Result<(), QueueError>) -> Option<Box<dyn Change>>;
}

struct Queued<T, F, U> {
    change: F,
    undo: U,
    result: Option<T>,
    caller: oneshot::Sender<Result<T, QueueError>>,
}

struct Undo<F>(F);

impl<T, F, U, V> Change for Queued<T, F, U>
where
    T: Send,
    F: FnMut(&mut Work<'_>) -> rusqlite::Result<T> + Send,
    U: FnOnce(T) -> Option<V> + Send,
    V: FnMut(&mut Work<'_>) -> rusqlite::Result<()> + Send + 'static,
{
    fn apply(&mut self, work: &mut Work<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.change)(work)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), QueueError>) -> Option<Box<dyn Change>> {
        let Self { undo, result, caller, .. } = *self;
        let answer = committed.and_then(|()| {
            result.ok_or_else(|| QueueError::Unavailable("the change was not made".into()))
        });
        match caller.send(answer) {
            Err(Ok(unheard)) => undo(unheard).map(|undo| Box::new(Undo(undo)) as Box<dyn Change>),
            _ => None,
        }
    }
}

impl<F> Change for Undo<F>
where
    F: FnMut(&mut Work<'_>) -> rusqlite::Result<()> + Send,
{
    fn apply(&mut self, work: &mut Work<'_>) -> rusqlite::Result<()> {
        (self.0)(work)
    }

    fn answer(self: Box<Self>, _: Result<(), QueueError>) -> Option<Box<dyn Change>> {
        None
    }
}

#[derive(Default)]
struct Waiting {
    changes: Vec<Box<dyn Change>>,
    committing: bool,
}

/// The writer, and the changes that wait for it.
pub(super) struct Group {
    writer: Mutex<Writer>,
    waiting: Mutex<Waiting>,
}

impl Group {
    pub(super) fn new(writer: Writer) -> Arc<Self> {
        Arc::new(Self { writer: Mutex::new(writer), waiting: Mutex::default() })
    }

    /// Makes a change; `Ok` only when it is durable. A caller that goes away once this was polled
    /// leaves the change to be made.
    pub(super) async fn commit<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnMut(&mut Work<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, QueueError> {
        type Nothing = fn(&mut Work<'_>) -> rusqlite::Result<()>;
        self.commit_or_undo(change, |_| None::<Nothing>).await
    }

    /// As [`commit`](Self::commit); if the caller has gone when the answer comes, the change that
    /// `undo` makes of the answer follows.
    pub(super) async fn commit_or_undo<T: Send + 'static, V>(
        self: &Arc<Self>,
        change: impl FnMut(&mut Work<'_>) -> rusqlite::Result<T> + Send + 'static,
        undo: impl FnOnce(T) -> Option<V> + Send + 'static,
    ) -> Result<T, QueueError>
    where
        V: FnMut(&mut Work<'_>) -> rusqlite::Result<()> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let start = {
            let mut waiting = lock(&self.waiting);
            waiting.changes.push(Box::new(Queued { change, undo, result: None, caller }));
            !std::mem::replace(&mut waiting.committing, true)
        };
        if start {
            let committing = Committing { group: Arc::clone(self), ended: false };
            drop(tokio::task::spawn_blocking(move || committing.run()));
        }
        answer.await.unwrap_or_else(|_| {
            Err(QueueError::Unavailable("the program is stopping; nothing was changed".into()))
        })
    }

    fn commit_all(&self, mut changes: Vec<Box<dyn Change>>) -> Vec<Box<dyn Change>> {
        let mut writer = lock(&self.writer);
        let mut undos = Vec::new();
        match try_commit(&mut writer, &mut changes) {
            // One change's own fault must not be the others': each gets a transaction of its own.
            Err(Failed::Apply(_)) if changes.len() > 1 => {
                for change in changes {
                    let mut alone = vec![change];
                    let committed = try_commit(&mut writer, &mut alone).map_err(Failed::error);
                    undos.extend(alone.into_iter().filter_map(|c| c.answer(committed.clone())));
                }
            }
            committed => {
                let committed = committed.map_err(Failed::error);
                undos.extend(changes.into_iter().filter_map(|c| c.answer(committed.clone())));
            }
        }
        undos
    }
}

enum Failed {
    Apply(rusqlite::Error),
    Transaction(rusqlite::Error),
    Place(QueueError),
}

impl Failed {
    fn error(self) -> QueueError {
        match self {
            Self::Apply(error) | Self::Transaction(error) => queue_error(&error),
            Self::Place(error) => error,
        }
    }
}

fn try_commit(writer: &mut Writer, changes: &mut [Box<dyn Change>]) -> Result<(), Failed> {
    // IMMEDIATE takes the write lock at once: what is read in here no other process can change.
    let tx = writer
        .connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(Failed::Transaction)?;
    let now = writer.clock.wall().as_microsecond();
    let mut work = Work { tx: &tx, now, random: &mut *writer.random };
    for change in changes {
        change.apply(&mut work).map_err(Failed::Apply)?;
    }
    // SQLite would go on with a file that nobody can find again.
    writer.place.check().map_err(Failed::Place)?;
    tx.commit().map_err(Failed::Transaction)
}

/// The right to commit what waits, given up in any case.
struct Committing {
    group: Arc<Group>,
    ended: bool,
}

impl Committing {
    fn run(mut self) {
        loop {
            let group: Vec<_> = {
                let mut waiting = lock(&self.group.waiting);
                if waiting.changes.is_empty() {
                    waiting.committing = false;
                    self.ended = true;
                    return;
                }
                let n = waiting.changes.len().min(MAX_GROUP);
                waiting.changes.drain(..n).collect()
            };
            let undos = self.group.commit_all(group);
            lock(&self.group.waiting).changes.extend(undos);
        }
    }
}

impl Drop for Committing {
    /// The runtime stopped before the task ran, or a change panicked: those who wait hear of it
    /// (their channel closes), and the next caller starts anew.
    fn drop(&mut self) {
        if !self.ended {
            let mut waiting = lock(&self.group.waiting);
            waiting.committing = false;
            waiting.changes.clear();
        }
    }
}

/// A panic while a lock was held leaves nothing half done here: SQLite rolls back.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
