//! Watches of a [`FakeCluster`]: its history from a version on, bookmarks, cuts and silences.

use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::super::api::{ApiError, Watch, WatchEvent};
use super::{FakeCluster, History, State};

/// How often a quiet watch gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

impl FakeCluster {
    pub(super) fn watch_from<T: Clone + Send + 'static>(
        &self,
        from: &str,
        history: fn(&State) -> &History<T>,
    ) -> Watch<T> {
        let cluster = self.clone();
        let at: u64 = from.parse().unwrap_or_default();
        let cuts = self.lock().cuts;
        let begin = (cluster, at, false);
        futures::stream::unfold(begin, move |(cluster, at, ended)| async move {
            if ended {
                return None;
            }
            let mut changed = cluster.changed.subscribe();
            let mut quiet_until = Instant::now() + BOOKMARK_EVERY;
            loop {
                let muted = {
                    let state = cluster.lock();
                    if state.cuts > cuts {
                        return None;
                    }
                    let events = history(&state);
                    if !state.muted && at < state.compacted {
                        let gone = ApiError::answered(410, "Expired", "too old resource version");
                        drop(state);
                        return Some((Err(gone), (cluster, at, true)));
                    }
                    let next = events.get(events.partition_point(|(version, _)| *version <= at));
                    if let (false, Some((version, event))) = (state.muted, next) {
                        let (version, event) = (*version, event.clone());
                        drop(state);
                        return Some((Ok(event), (cluster, version, false)));
                    }
                    state.muted
                };
                if timeout_at(quiet_until, changed.changed()).await.is_ok() {
                    continue;
                }
                quiet_until += BOOKMARK_EVERY;
                if !muted {
                    let version = cluster.lock().version;
                    let bookmark = WatchEvent::Bookmark(version.to_string());
                    return Some((Ok(bookmark), (cluster, at, false)));
                }
            }
        })
        .boxed()
    }
}
