//! The farm's files that lie in Cloud Storage, read as files are: by calls that wait.
//!
//! A thread of its own asks Cloud Storage, so that they may be read from anywhere. It starts with the
//! first such file, so that a farm without one has neither thread nor client. What was read is kept
//! with its generation: an object that has not changed is not sent again.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::config::files::{Files, Remote};
use crate::gcp::storage::{Fetched, Generation, ObjectName, Objects, StorageError};

/// An answer is used for so long: polls come more often than files change, and each costs a
/// request. Far less than the age at which flags count as old.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// The longest that a caller waits: above what the client takes with its tries.
const ANSWER_WITHIN: Duration = Duration::from_secs(70);

/// Makes the client, on the thread that uses it.
type Open = Box<dyn FnOnce() -> Result<Arc<dyn Objects>, StorageError> + Send>;

/// The files of Cloud Storage.
pub struct ObjectFiles {
    state: Mutex<State>,
}

enum State {
    Unused(Option<Open>),
    Asked(UnboundedSender<Call>),
}

/// What is asked of the thread.
enum Ask {
    Read,
    Replace { old: Vec<u8>, new: Vec<u8> },
}

struct Call {
    object: ObjectName,
    ask: Ask,
    answer: Sender<io::Result<Vec<u8>>>,
}

impl ObjectFiles {
    /// Files that are read through what `open` gives; it is called when the first one is.
    pub fn through(
        open: impl FnOnce() -> Result<Arc<dyn Objects>, StorageError> + Send + 'static,
    ) -> Files {
        let state = Mutex::new(State::Unused(Some(Box::new(open))));
        Files::with(Arc::new(Self { state }))
    }

    fn call(&self, address: &str, ask: Ask) -> io::Result<Vec<u8>> {
        let wrong = || io::Error::other("write gs://BUCKET/OBJECT");
        let object = ObjectName::parse(address).ok_or_else(wrong)?;
        let (answer, answered) = channel();
        let ended = || io::Error::other("what reads Cloud Storage has ended");
        self.thread()?.send(Call { object, ask, answer }).map_err(|_| ended())?;
        match answered.recv_timeout(ANSWER_WITHIN) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }

    fn thread(&self) -> io::Result<UnboundedSender<Call>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match &mut *state {
            State::Asked(calls) => return Ok(calls.clone()),
            State::Unused(open) => open.take(),
        };
        let open = open.ok_or_else(|| io::Error::other("Cloud Storage can't be read here"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (calls, received) = unbounded_channel();
        std::thread::Builder::new()
            .name("cloud-storage".into())
            .spawn(move || runtime.block_on(serve(open, received)))?;
        *state = State::Asked(calls.clone());
        Ok(calls)
    }
}

impl Remote for ObjectFiles {
    fn read(&self, address: &str) -> io::Result<Vec<u8>> {
        self.call(address, Ask::Read)
    }

    fn replace(&self, address: &str, old: &[u8], new: &[u8]) -> io::Result<()> {
        self.call(address, Ask::Replace { old: old.to_vec(), new: new.to_vec() }).map(drop)
    }
}

/// Answers calls one by one until nobody can ask any more.
async fn serve(open: Open, mut calls: UnboundedReceiver<Call>) {
    let mut opened = open().map(Cache::over);
    while let Some(Call { object, ask, answer }) = calls.recv().await {
        let done = match &mut opened {
            Err(error) => Err(error.clone()),
            Ok(cache) => match ask {
                Ask::Read => cache.read(&object).await,
                Ask::Replace { old, new } => cache.replace(&object, &old, new).await,
            },
        };
        // Who does not wait any more needs no answer.
        let _ = answer.send(done.map_err(io::Error::other));
    }
}

/// What was read last.
struct Cache {
    objects: Arc<dyn Objects>,
    held: BTreeMap<ObjectName, Held>,
}

#[derive(Default)]
struct Held {
    good: Option<(Generation, Vec<u8>)>,
    /// When it was looked at last, and what went wrong then.
    looked: Option<(Instant, Option<StorageError>)>,
}

impl Cache {
    fn over(objects: Arc<dyn Objects>) -> Self {
        Self { objects, held: BTreeMap::new() }
    }

    async fn read(&mut self, object: &ObjectName) -> Result<Vec<u8>, StorageError> {
        let fresh =
            |held: &Held| held.looked.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH_FOR);
        if !self.held.get(object).is_some_and(fresh) {
            self.look(object).await;
        }
        match self.held.get(object) {
            Some(Held { looked: Some((_, Some(error))), .. }) => Err(error.clone()),
            Some(Held { good: Some((_, bytes)), .. }) => Ok(bytes.clone()),
            _ => Err(StorageError::Absent(object.clone())),
        }
    }

    /// Asks whether the object has changed.
    async fn look(&mut self, object: &ObjectName) {
        let held = self.held.entry(object.clone()).or_default();
        let known = held.good.as_ref().map(|(generation, _)| *generation);
        let trouble = match self.objects.read(object, known).await {
            Ok(Fetched::Same) => None,
            Ok(Fetched::New { generation, bytes }) => {
                held.good = Some((generation, bytes));
                None
            }
            Err(error) => Some(error),
        };
        held.looked = Some((Instant::now(), trouble));
    }

    /// Writes over the generation that holds `old`, and over no other.
    async fn replace(
        &mut self,
        object: &ObjectName,
        old: &[u8],
        new: Vec<u8>,
    ) -> Result<Vec<u8>, StorageError> {
        self.look(object).await;
        let held = self.held.entry(object.clone()).or_default();
        if let Some((_, Some(error))) = &held.looked {
            return Err(error.clone());
        }
        let generation = match &held.good {
            Some((generation, bytes)) if bytes == old => *generation,
            _ => return Err(StorageError::Overtaken(object.clone())),
        };
        // Whatever comes of it, the next read asks.
        held.looked = None;
        let written = self.objects.write(object, new.clone(), Some(generation)).await?;
        held.good = Some((written, new));
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;
