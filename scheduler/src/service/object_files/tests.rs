//! Files over an object that changes, or goes away.

use async_trait::async_trait;
use std::path::Path;

use super::*;

/// One object; nothing else is there.
#[derive(Default)]
struct One(Mutex<OneState>);

#[derive(Default)]
struct OneState {
    object: Option<(i64, Vec<u8>)>,
    away: bool,
    sent: usize,
}

#[async_trait]
impl Objects for Arc<One> {
    async fn read(
        &self,
        object: &ObjectName,
        known: Option<Generation>,
    ) -> Result<Fetched, StorageError> {
        let mut state = self.0.lock().expect("unpoisoned");
        if state.away {
            return Err(StorageError::Later("away".into()));
        }
        let (number, bytes) = state.object.clone().ok_or(StorageError::Absent(object.clone()))?;
        if known == Some(Generation(number)) {
            return Ok(Fetched::Same);
        }
        state.sent += 1;
        Ok(Fetched::New { generation: Generation(number), bytes })
    }

    async fn exists(&self, _object: &ObjectName) -> Result<bool, StorageError> {
        Ok(self.0.lock().expect("unpoisoned").object.is_some())
    }

    async fn write(
        &self,
        object: &ObjectName,
        bytes: Vec<u8>,
        over: Option<Generation>,
    ) -> Result<Generation, StorageError> {
        let mut state = self.0.lock().expect("unpoisoned");
        let now = state.object.as_ref().map_or(0, |(number, _)| *number);
        if over.is_some_and(|over| over.0 != now) {
            return Err(StorageError::Overtaken(object.clone()));
        }
        state.object = Some((now + 1, bytes));
        Ok(Generation(now + 1))
    }
}

fn put(one: &One, generation: i64, text: &str) {
    one.0.lock().expect("unpoisoned").object = Some((generation, text.into()));
}

fn object() -> ObjectName {
    ObjectName::parse("gs://b/o").expect("a name")
}

#[tokio::test(start_paused = true)]
async fn an_object_is_asked_for_after_a_while_and_sent_when_it_changed() {
    let one = Arc::new(One::default());
    let mut cache = Cache::over(Arc::new(Arc::clone(&one)));
    assert_eq!(cache.read(&object()).await, Err(StorageError::Absent(object())));
    put(&one, 1, "one");
    tokio::time::advance(FRESH_FOR).await;
    assert_eq!(cache.read(&object()).await, Ok(b"one".to_vec()));
    put(&one, 2, "two");
    assert_eq!(cache.read(&object()).await, Ok(b"one".to_vec()), "within the time");
    tokio::time::advance(FRESH_FOR).await;
    assert_eq!(cache.read(&object()).await, Ok(b"two".to_vec()));
    tokio::time::advance(FRESH_FOR).await;
    assert_eq!(cache.read(&object()).await, Ok(b"two".to_vec()));
    assert_eq!(one.0.lock().expect("unpoisoned").sent, 2);
}

/// What is known from before must not pass for what is there: how old flags may be is decided by
/// when they were read.
#[tokio::test(start_paused = true)]
async fn while_storage_is_away_nothing_is_read() {
    let one = Arc::new(One::default());
    put(&one, 1, "one");
    let mut cache = Cache::over(Arc::new(Arc::clone(&one)));
    assert!(cache.read(&object()).await.is_ok());
    one.0.lock().expect("unpoisoned").away = true;
    tokio::time::advance(FRESH_FOR).await;
    assert_eq!(cache.read(&object()).await, Err(StorageError::Later("away".into())));
    one.0.lock().expect("unpoisoned").away = false;
    tokio::time::advance(FRESH_FOR).await;
    assert_eq!(cache.read(&object()).await, Ok(b"one".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn only_what_was_read_is_replaced_and_read_at_once() {
    let one = Arc::new(One::default());
    put(&one, 1, "one");
    let mut cache = Cache::over(Arc::new(Arc::clone(&one)));
    assert!(cache.read(&object()).await.is_ok());
    put(&one, 2, "two");
    let overtaken = cache.replace(&object(), b"one", b"mine".to_vec()).await;
    assert_eq!(overtaken, Err(StorageError::Overtaken(object())));
    assert!(cache.replace(&object(), b"two", b"mine".to_vec()).await.is_ok());
    assert_eq!(cache.read(&object()).await, Ok(b"mine".to_vec()));
}

/// From a thread that runs a runtime, too: nothing here waits on the caller's.
#[tokio::test]
async fn files_are_read_from_anywhere_and_opened_with_the_first() {
    let one = Arc::new(One::default());
    put(&one, 1, "one");
    let opened = Arc::new(Mutex::new(0));
    let count = Arc::clone(&opened);
    let files = ObjectFiles::through(move || {
        *count.lock().expect("unpoisoned") += 1;
        Ok(Arc::new(one))
    });
    assert_eq!(*opened.lock().expect("unpoisoned"), 0);
    assert_eq!(files.read_text(Path::new("gs://b/o")).expect("read"), "one");
    assert_eq!(files.read_text(Path::new("gs://b/o")).expect("read"), "one");
    assert_eq!(*opened.lock().expect("unpoisoned"), 1);
    assert!(files.read(Path::new("gs://b")).is_err());
}

#[test]
fn credentials_that_are_none_are_told_with_each_file() {
    let files = ObjectFiles::through(|| Err(StorageError::Unauthenticated("none".into())));
    for _ in 0..2 {
        let error = files.read(Path::new("gs://b/o")).expect_err("no credentials");
        assert!(error.to_string().contains("takes no credentials of ours: none"), "{error}");
    }
}
