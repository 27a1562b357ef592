//! What the service serves over HTTP, put together: the listener, who may post tasks, and where
//! those go.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::ServiceError;
use super::token_review::Reviews;
use crate::clock::Clock;
use crate::config::http::{HttpConfig, TasksConfig};
use crate::http::access::{Access, TokenReviewer, read_tokens};
use crate::http::tasks::Tasks;
use crate::pipeline::QueueBinding;
use crate::pipeline::leases::Leases;
use crate::queue::Queue;
use crate::queue::push::PushQueue;

/// The name of the queue of posted tasks, which no configured queue can have: it is no DNS label.
const QUEUE: &str = "http:tasks";

/// The way in for others.
pub(super) struct WayIn {
    pub queue: Arc<PushQueue>,
    pub tasks: Arc<Tasks>,
}

/// Listens, before anything else is begun: another process that has the port is found out at once.
///
/// # Errors
/// Why it can't.
pub(super) async fn listen(config: &HttpConfig) -> Result<TcpListener, ServiceError> {
    let at = config.listen;
    TcpListener::bind(at).await.map_err(|error| ServiceError::Listen { at, error })
}

/// Makes the way in.
///
/// # Errors
/// The tokens can't be read, or nobody could review one.
pub(super) async fn way_in(
    config: &TasksConfig,
    home: Option<kube::Client>,
    clock: &Arc<dyn Clock>,
) -> Result<WayIn, ServiceError> {
    let wrong = |text: String| ServiceError::Configuration(format!("http.tasks.{text}"));
    if let Some(file) = &config.tokens_file {
        read_tokens(file).await.map_err(|why| wrong(format!("tokens_file: {why}")))?;
    }
    let reviewer = match (&config.token_review, home) {
        (None, _) => None,
        (Some(review), Some(client)) => {
            let reviews = Reviews::new(client, review.audience.clone());
            Some((Arc::new(reviews) as Arc<dyn TokenReviewer>, review.accounts.clone()))
        }
        (Some(_), None) => {
            let text =
                "token_review: no kubernetes backend is home, whose API server could be asked";
            return Err(wrong(text.to_owned()));
        }
    };
    let access = Access::new(config.tokens_file.clone(), reviewer);
    let queue = PushQueue::new(QUEUE.into(), Arc::clone(clock));
    let tasks = Tasks::new(Arc::clone(&queue), Arc::clone(clock), access, config.limits);
    Ok(WayIn { queue, tasks })
}

/// The queue of posted tasks, which holds nothing: their senders wait.
pub(super) fn pushed(queue: Arc<dyn Queue>, lease: Duration) -> QueueBinding {
    let leases = Leases::new(Arc::clone(&queue), lease);
    // A panic is an answer too: it goes back as deferred, and never counts twice.
    QueueBinding {
        leases,
        queue,
        base_os_version: None,
        max_panics: 2,
        completes: false,
        hold: false,
    }
}
