//! Answers as streams: passed through piece by piece as they come, and broken off,
//! silenced or cut where a fault says so.

use std::future::pending;

use futures::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::sync::watch;
use tokio::task::yield_now;

/// Any error; the connection ends with it.
pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;
/// A body of any making.
pub(super) type Body = UnsyncBoxBody<Bytes, Error>;

/// What happens once the bytes that may pass have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Break,
    Silence,
}

/// A body that is all there.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

struct Passing {
    inner: Incoming,
    limit: Option<(u64, Then)>,
    cuts: Option<watch::Receiver<u64>>,
    broken: bool,
}

/// The server's body as it comes, up to `limit`, and while no cut is asked for through
/// `cuts` (which only watches heed).
pub(super) fn passing(
    inner: Incoming,
    limit: Option<(u64, Then)>,
    cuts: Option<watch::Receiver<u64>>,
) -> Body {
    let start = Passing { inner, limit, cuts, broken: false };
    BodyExt::boxed_unsync(StreamBody::new(unfold(start, next)))
}

async fn next(mut state: Passing) -> Option<(Result<Frame<Bytes>, Error>, Passing)> {
    if state.broken {
        return None;
    }
    match state.limit {
        Some((0, Then::Break)) => return Some(broken_off(state).await),
        Some((0, Then::Silence)) => {
            return tokio::select! {
                () = cut(&mut state.cuts) => Some(broken_off(state).await),
                () = pending() => None,
            };
        }
        _ => {}
    }
    let frame = tokio::select! {
        biased;
        () = cut(&mut state.cuts) => return Some(broken_off(state).await),
        frame = state.inner.frame() => frame?,
    };
    let frame = frame.map_err(Error::from).map(|frame| match &mut state.limit {
        Some((left, _)) => shorten(frame, left),
        None => frame,
    });
    Some((frame, state))
}

fn shorten(frame: Frame<Bytes>, left: &mut u64) -> Frame<Bytes> {
    frame.map_data(|mut data| {
        data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= data.len() as u64;
        data
    })
}

async fn broken_off(mut state: Passing) -> (Result<Frame<Bytes>, Error>, Passing) {
    // hyper writes out what it holds when a body has nothing to give for a moment; an
    // error straight away would take the headers with it.
    yield_now().await;
    state.broken = true;
    (Err("broken off on purpose".into()), state)
}

/// Returns when a cut is asked for; never, if there is nobody to ask.
async fn cut(cuts: &mut Option<watch::Receiver<u64>>) {
    if let Some(cuts) = cuts
        && cuts.changed().await.is_ok()
    {
        return;
    }
    pending().await
}
