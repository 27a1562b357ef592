//! The flags of a farm wherever they are: to read, and for a person to change.

use async_trait::async_trait;

use super::change::{Change, ChangeError};
use super::datastore::DatastoreFlags;
use super::file::FileFlags;
use super::{Flag, FlagSet, FlagSource, FlagsError};

/// What the flags are in.
#[derive(Debug, Clone)]
pub enum FlagStore {
    /// Files.
    Files(FileFlags),
    /// Datastore.
    Datastore(DatastoreFlags),
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The flag before; `None`: there was none.
    pub before: Option<Flag>,
    /// The flag after.
    pub after: Flag,
    /// Where it was written, for people.
    pub place: String,
}

impl FlagStore {
    /// Changes one flag; everything else stays as it is.
    ///
    /// # Errors
    /// [`ChangeError`] says why it was not changed.
    pub async fn set(&self, name: &str, change: &Change) -> Result<Changed, ChangeError> {
        match self {
            Self::Files(files) => {
                let (files, name, change) = (files.clone(), name.to_owned(), change.clone());
                let set = tokio::task::spawn_blocking(move || files.set(&name, &change)).await;
                set.unwrap_or_else(|panic| Err(ChangeError::Write(panic.to_string())))
            }
            Self::Datastore(datastore) => {
                let (before, after) = datastore.set(name, change).await?;
                Ok(Changed { before, after, place: datastore.place() })
            }
        }
    }
}

#[async_trait]
impl FlagSource for FlagStore {
    async fn read(&self) -> Result<FlagSet, FlagsError> {
        match self {
            Self::Files(files) => files.read().await,
            Self::Datastore(datastore) => datastore.read().await,
        }
    }
}
