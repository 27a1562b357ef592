//! Puts a fresh token on each request to the API server, and asks for another after a 401.
//!
//! The request that was refused is not sent again here: [`client`](super::client) does that, once,
//! and gets the new token.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::gcp::tokens::{Bearer, TokenError, Tokens};

/// Adds these tokens to what passes.
#[derive(Clone)]
pub struct BearerLayer(pub Arc<dyn Tokens>);

impl<S> Layer<S> for BearerLayer {
    type Service = WithBearer<S>;

    fn layer(&self, inner: S) -> Self::Service {
        WithBearer { inner, tokens: Arc::clone(&self.0) }
    }
}

/// A service whose requests carry tokens.
#[derive(Clone)]
pub struct WithBearer<S> {
    inner: S,
    tokens: Arc<dyn Tokens>,
}

impl<S, B, R> Service<Request<B>> for WithBearer<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<R>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that is ready goes along; its clone need not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let tokens = Arc::clone(&self.tokens);
        async move {
            let bearer = tokens.bearer().await?;
            request.headers_mut().insert(AUTHORIZATION, bearer.header()?);
            let response = inner.call(request).await.map_err(Into::into)?;
            if response.status() == StatusCode::UNAUTHORIZED
                && let Err(error) = tokens.renew(&bearer).await
            {
                tracing::warn!(%error, "the API server refused a token, and there is no other");
            }
            Ok(response)
        }
        .boxed()
    }
}

/// How long a token that was read from a file is used. The kubelet replaces a pod's token when a
/// fifth of its hour is left.
const READ_EVERY: Duration = Duration::from_secs(60);

/// The token that a file holds, which somebody else replaces in time: a pod's own.
pub struct FileTokens {
    path: PathBuf,
    read: Mutex<Option<(Bearer, Instant)>>,
}

impl FileTokens {
    /// The token in the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: Mutex::default() }
    }

    /// Reads it: a few hundred bytes of memory-backed file system.
    fn read(&self) -> Result<Bearer, TokenError> {
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| TokenError::Later(format!("{}: {error}", self.path.display())))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(TokenError::Later(format!("{} is empty", self.path.display())));
        }
        Ok(Bearer::new(token))
    }

    fn look(&self, unless: Option<&Bearer>) -> Result<Bearer, TokenError> {
        let mut held = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((bearer, at)) = &*held
            && at.elapsed() < READ_EVERY
            && unless != Some(bearer)
        {
            return Ok(bearer.clone());
        }
        match (self.read(), &*held) {
            (Ok(bearer), _) => {
                *held = Some((bearer.clone(), Instant::now()));
                Ok(bearer)
            }
            // A file that is being replaced: the server tells whether the old one is still good.
            (Err(_), Some((bearer, _))) if unless.is_none() => Ok(bearer.clone()),
            (Err(error), _) => Err(error),
        }
    }
}

#[async_trait]
impl Tokens for FileTokens {
    async fn bearer(&self) -> Result<Bearer, TokenError> {
        self.look(None)
    }

    async fn renew(&self, refused: &Bearer) -> Result<Bearer, TokenError> {
        let bearer = self.look(Some(refused))?;
        if bearer == *refused {
            let path = self.path.display();
            return Err(TokenError::Later(format!("{path} holds the token that was refused")));
        }
        Ok(bearer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pods_token_is_read_again_after_a_401_and_now_and_then() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let tokens = FileTokens::new(&path);
        assert!(tokens.bearer().await.is_err(), "there is none");
        std::fs::write(&path, "one\n").expect("written");
        let one = tokens.bearer().await.expect("a token");
        assert_eq!(one.header().expect("a header"), "Bearer one");
        assert!(tokens.renew(&one).await.is_err(), "there is no other");
        std::fs::write(&path, "two").expect("written");
        assert_eq!(tokens.bearer().await, Ok(one.clone()), "not at once");
        assert_eq!(tokens.renew(&one).await, Ok(Bearer::new("two")), "at a 401");
        std::fs::write(&path, "three").expect("written");
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(tokens.bearer().await, Ok(Bearer::new("three")), "after a minute");
        std::fs::remove_file(&path).expect("removed");
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(tokens.bearer().await, Ok(Bearer::new("three")), "while there is no other");
    }
}
