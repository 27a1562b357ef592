//! Says in each error of a connection where the connection was to: a transport's own errors name no
//! address, and who reads one has to know whether that was Google or an emulator of yesterday.
//!
//! What a server answers is left as it is.

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use gcloud_sdk::tonic::Status;
use gcloud_sdk::tonic::body::Body;
use gcloud_sdk::tonic::transport::Channel as Bare;
use http::{Request, Response, Uri};
use tower::Service;

/// A connection that knows its address.
#[derive(Clone)]
pub struct Named {
    inner: Bare,
    address: Arc<str>,
}

impl Named {
    /// The connection `inner`, which is to `uri`.
    pub(super) fn new(inner: Bare, uri: &Uri) -> Self {
        Self { inner, address: address(uri).into() }
    }
}

impl Service<Request<Body>> for Named {
    type Response = Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Self::Response, Status>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.inner.poll_ready(context).map_err(|error| named(&self.address, error))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let address = Arc::clone(&self.address);
        let answer = self.inner.call(request);
        async move { answer.await.map_err(|error| named(&address, error)) }.boxed()
    }
}

/// `HOST:PORT`. What else an address may hold, such as a user's password, is nobody's business.
fn address(uri: &Uri) -> String {
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    format!("{}:{port}", uri.host().unwrap_or_default())
}

/// The error with the address and its first cause, which is the one that tells most.
fn named(address: &str, error: impl Error + Send + Sync + 'static) -> Status {
    let status = Status::from_error(Box::new(error));
    let mut said = status.message().to_owned();
    let first = std::iter::successors(status.source(), |&error| error.source()).last();
    if let Some(first) = first.map(ToString::to_string)
        && !said.contains(&first)
    {
        said = format!("{said}: {first}");
    }
    Status::new(status.code(), format!("{address}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_host_and_port_alone() {
        for (uri, expect) in [
            ("https://pubsub.googleapis.com", "pubsub.googleapis.com:443"),
            ("http://localhost:8085/x?y=z", "localhost:8085"),
            ("http://[::1]:8085", "[::1]:8085"),
            ("http://somebody:hush@proxy", "proxy:80"),
        ] {
            assert_eq!(address(&uri.parse().expect("an address")), expect);
        }
    }
}
