//! Records in a file of this machine, for a scheduler without any cluster.
//!
//! One JSON object. A write replaces the file whole (written beside it, synced, renamed, the folder
//! synced), so that it is there before or after, also after a power cut. Writers take turns by a
//! lock file beside it. That only the leader writes is the caller's to see to.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{RecordError, Records, apply};

/// Records may name inputs: for their owner alone.
const MODE: u32 = 0o600;

/// Records in a file.
#[derive(Debug, Clone)]
pub struct FileRecords {
    path: PathBuf,
}

impl FileRecords {
    /// The records at `path`; its folder is made where it is not there, the file by the first write.
    ///
    /// # Errors
    /// The folder can't be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        Ok(Self { path: path.to_owned() })
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(what);
        name.into()
    }

    fn read(&self) -> Result<BTreeMap<String, String>, RecordError> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                RecordError::Refused(format!("{} is damaged: {error}", self.path.display()))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(self.fault(&error)),
        }
    }

    fn fault(&self, error: &io::Error) -> RecordError {
        let text = format!("{}: {error}", self.path.display());
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                RecordError::Refused(text)
            }
            _ => RecordError::Unavailable(text),
        }
    }

    fn change(&self, changes: &[(String, Option<String>)]) -> Result<(), RecordError> {
        let fault = |error: io::Error| self.fault(&error);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(MODE);
        let turn = options.open(self.beside(".turn")).map_err(fault)?;
        turn.lock().map_err(fault)?;
        let mut records = self.read()?;
        apply(&mut records, changes);
        let text = serde_json::to_vec_pretty(&records)
            .map_err(|error| RecordError::Refused(error.to_string()))?;
        self.replace(&text).map_err(fault)
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let next = self.beside(".next");
        // What a crash left there may be of another mode.
        match fs::remove_file(&next) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&next)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&next, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Does blocking work off the threads that must not wait.
async fn off<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RecordError> + Send + 'static,
) -> Result<T, RecordError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(RecordError::Unavailable(panic.to_string())))
}

#[async_trait]
impl Records for FileRecords {
    async fn all(&self) -> Result<BTreeMap<String, String>, RecordError> {
        let records = self.clone();
        off(move || records.read()).await
    }

    async fn write(&self, changes: &[(String, Option<String>)]) -> Result<(), RecordError> {
        let (records, changes) = (self.clone(), changes.to_vec());
        off(move || records.change(&changes)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn set(key: &str, value: &str) -> (String, Option<String>) {
        (key.to_owned(), Some(value.to_owned()))
    }

    #[tokio::test]
    async fn what_is_written_is_there_for_the_next_process_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state/records.json");
        let records = FileRecords::open(&path).expect("opened");
        assert_eq!(records.all().await, Ok(BTreeMap::new()));
        records.write(&[set("a", "1"), set("b", "2")]).await.expect("written");
        records.write(&[("a".to_owned(), None), set("c", "3")]).await.expect("written");
        let next = FileRecords::open(&path).expect("opened");
        let expect = [("b", "2"), ("c", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(next.all().await, Ok(expect.into()));
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn writers_at_once_lose_nothing_of_one_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("records.json");
        let write = |n: usize| {
            let records = FileRecords::open(&path).expect("opened");
            tokio::spawn(async move { records.write(&[set(&n.to_string(), "x")]).await })
        };
        for writing in (0..20).map(write).collect::<Vec<_>>() {
            writing.await.expect("no panic").expect("written");
        }
        let all = FileRecords::open(&path).expect("opened").all().await.expect("read");
        assert_eq!(all.len(), 20);
    }

    #[tokio::test]
    async fn a_damaged_file_is_refused_and_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("records.json");
        fs::write(&path, "{").expect("written");
        let records = FileRecords::open(&path).expect("opened");
        assert!(matches!(records.all().await, Err(RecordError::Refused(_))));
        assert!(matches!(records.write(&[set("a", "1")]).await, Err(RecordError::Refused(_))));
    }
}
