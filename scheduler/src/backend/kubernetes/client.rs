//! The API server, by plain HTTP requests over kube's client.
//!
//! Every request has a bound in time, also for the server, and is made once (twice after a 401):
//! whether and when to try again is the caller's to decide, who must see every answer. The
//! client given must not retry by itself.

mod answers;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use self::answers::{lines, retry_after, transport};
use super::api::{
    AccountFacts, ApiError, ClusterApi, ConfigMapFacts, EMAIL_ANNOTATION, EventFacts, JobFacts,
    LeaseFacts, Page, PodFacts, Watch,
};
use super::calls::{Calls, Verb};
use super::facts::WorkPod;
use super::leader::DURATION;
use super::wire::{self, Facts, Whole};
use crate::domain::log_tail::{LogTail, TAIL_BYTES, TailBuffer};

pub(super) const JSON: &str = "application/json";
/// Metadata only: half the bytes of a Job.
const META: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const META_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The API server's own page size in kubectl.
const PAGE: usize = 500;
/// How long a page of a list, or the opening of a watch, may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// When the server ends a watch, in seconds; less than the five minutes after which many load
/// balancers would cut it.
const WATCH_SECONDS: u32 = 290;
/// A log is text.
const ANY: &str = "*/*";
/// So many lines hold 64 KiB, however short they are.
const LOG_LINES: usize = TAIL_BYTES;
/// How long the reading of one log may take.
const LOG_TIMEOUT: Duration = Duration::from_secs(20);
/// The pods of Jobs that schedulers made; the namespace is one scheduler's alone.
const OURS: &str = "labelSelector=katabatch.dev%2Fscheduler";
const PENDING: &str = "fieldSelector=status.phase%3DPending";

/// One namespace of an API server.
#[derive(Clone)]
pub struct KubeApi {
    client: kube::Client,
    namespace: String,
    request_timeout: Duration,
    pub(super) calls: Arc<Calls>,
}

/// A successful answer.
struct Answer {
    status: u16,
    body: Body,
}

impl KubeApi {
    /// `namespace` through `client`, with a bound for single requests.
    pub fn new(client: kube::Client, namespace: &str, request_timeout: Duration) -> Self {
        Self { client, namespace: namespace.to_owned(), request_timeout, calls: Arc::default() }
    }

    pub(super) fn jobs(&self) -> String {
        format!("/apis/batch/v1/namespaces/{}/jobs", self.namespace)
    }

    fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn core(&self, kind: &str) -> String {
        format!("/api/v1/namespaces/{}/{kind}", self.namespace)
    }

    /// Sends a request, again once after a 401: the token may have died while it was on its way.
    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, ApiError> {
        match self.send_once(&method, path, accept, body.clone()).await {
            Err(error) if error.status == Some(401) => {
                self.send_once(&method, path, accept, body).await
            }
            answer => answer,
        }
    }

    async fn send_once(
        &self,
        method: &Method,
        path: &str,
        accept: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, ApiError> {
        let mut request =
            Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, JSON);
        }
        let request = request
            .body(body.map_or_else(Body::empty, Body::from))
            .map_err(|error| ApiError::unsent(&error.to_string()))?;
        let answer = self.client.send(request).await;
        let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.calls.count(Verb::of(method, path), answer.is_ok().then_some(status));
        let response = answer.map_err(|error| transport(&error))?;
        let (parts, body) = response.into_parts();
        if parts.status.is_success() {
            return Ok(Answer { status, body });
        }
        let body = body.collect_bytes().await.unwrap_or_default();
        let error = wire::refusal(status, &body);
        Err(match retry_after(&parts.headers) {
            Some(after) => error.with_retry_after(after),
            None => error,
        })
    }

    /// A request with one whole answer, in bounded time.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<Vec<u8>>,
        bound: Duration,
    ) -> Result<(u16, Vec<u8>), ApiError> {
        let whole = async {
            let answer = self.send(method, path, accept, body).await?;
            let body = answer.body.collect_bytes().await;
            let body = body.map_err(|error| ApiError::lost(&error.to_string()))?;
            Ok((answer.status, body.to_vec()))
        };
        let late = |_| ApiError::lost(&format!("no whole answer within {bound:?}"));
        timeout(bound, whole).await.map_err(late)?
    }

    async fn get<T: Facts>(&self, path: &str, accept: &str) -> Result<Option<T>, ApiError> {
        match self.ask(Method::GET, path, accept, None, self.request_timeout).await {
            Ok((status, body)) => wire::object(status, &body).map(Some),
            // A 404 that is no Status is some proxy's, and says nothing of the object.
            Err(error) if error.is_not_found() && error.reason == "NotFound" => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn list<T: Facts>(
        &self,
        path: &str,
        accept: &str,
        selector: &str,
        next: Option<&str>,
    ) -> Result<Page<T>, ApiError> {
        let mut path = format!("{path}?limit={PAGE}&{selector}");
        if let Some(token) = next {
            path.push_str("&continue=");
            path.extend(utf8_percent_encode(token, NON_ALPHANUMERIC));
        }
        let (status, body) = self.ask(Method::GET, &path, accept, None, LIST_TIMEOUT).await?;
        wire::page(status, &body)
    }

    async fn watch<T: Facts + Send + 'static>(
        &self,
        path: &str,
        accept: &str,
        selector: &str,
        from: &str,
    ) -> Result<Watch<T>, ApiError> {
        let path = format!(
            "{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}\
             &resourceVersion={from}&{selector}"
        );
        let late = |_| ApiError::lost("the watch did not open in time");
        let answer = timeout(LIST_TIMEOUT, self.send(Method::GET, &path, accept, None))
            .await
            .map_err(late)??;
        Ok(lines(answer.body).map(|line| line.and_then(|line| wire::event(&line))).boxed())
    }

    /// Reads a log to its end, of which alone is kept what counts.
    async fn tail(&self, path: &str) -> Result<LogTail, ApiError> {
        let mut body = self.send(Method::GET, path, ANY, None).await?.body;
        let mut tail = TailBuffer::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::lost(&error.to_string()))?;
            if let Some(data) = frame.data_ref() {
                tail.push(data);
            }
        }
        Ok(tail.finish())
    }

    /// Creates an object among `all` of its kind, or replaces the one of this version.
    async fn put<T: Facts>(
        &self,
        all: &str,
        name: &str,
        resource_version: &str,
        mut object: serde_json::Value,
    ) -> Result<T, ApiError> {
        object["metadata"] = serde_json::json!({
            "name": name,
            "labels": { "app.kubernetes.io/managed-by": "katabatch" },
        });
        let (method, path) = if resource_version.is_empty() {
            (Method::POST, all.to_owned())
        } else {
            object["metadata"]["resourceVersion"] = resource_version.into();
            (Method::PUT, format!("{all}/{name}"))
        };
        let (path, body) = (self.bounded(&path), object.to_string().into_bytes());
        let answer = self.ask(method, &path, JSON, Some(body), self.request_timeout).await;
        let (status, body) = answer?;
        wire::object(status, &body)
    }

    /// The query that gives the server the bound of a single request.
    fn bounded(&self, path: &str) -> String {
        format!("{path}?timeout={}ms&fieldManager=katabatch", self.request_timeout.as_millis())
    }
}

#[async_trait]
impl ClusterApi for KubeApi {
    async fn create_job(&self, _name: &str, body: Vec<u8>) -> Result<JobFacts, ApiError> {
        let path = self.bounded(&self.jobs());
        let answer = self.ask(Method::POST, &path, META, Some(body), self.request_timeout).await;
        let (status, body) = answer?;
        wire::object(status, &body)
    }

    async fn get_job(&self, name: &str) -> Result<Option<JobFacts>, ApiError> {
        self.get(&format!("{}/{name}", self.jobs()), JSON).await
    }

    async fn read_job(&self, name: &str) -> Result<Option<serde_json::Value>, ApiError> {
        self.get::<Whole>(&format!("{}/{name}", self.jobs()), JSON).await.map(|job| Some(job?.0))
    }

    async fn delete_job(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let body = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": { "uid": uid },
        });
        let (path, body) = (format!("{}/{name}", self.jobs()), body.to_string().into_bytes());
        self.ask(Method::DELETE, &path, META, Some(body), self.request_timeout).await.map(|_| ())
    }

    async fn list_jobs(&self, next: Option<&str>) -> Result<Page<JobFacts>, ApiError> {
        self.list(&self.jobs(), JSON, "", next).await
    }

    async fn watch_jobs(&self, from: &str) -> Result<Watch<JobFacts>, ApiError> {
        self.watch(&self.jobs(), JSON, "", from).await
    }

    async fn list_pending_pods(&self, next: Option<&str>) -> Result<Page<PodFacts>, ApiError> {
        self.list(&self.core("pods"), META_LIST, PENDING, next).await
    }

    async fn watch_pending_pods(&self, from: &str) -> Result<Watch<PodFacts>, ApiError> {
        self.watch(&self.core("pods"), META, PENDING, from).await
    }

    async fn list_work_pods(&self, next: Option<&str>) -> Result<Page<WorkPod>, ApiError> {
        self.list(&self.core("pods"), JSON, OURS, next).await
    }

    async fn watch_work_pods(&self, from: &str) -> Result<Watch<WorkPod>, ApiError> {
        self.watch(&self.core("pods"), JSON, OURS, from).await
    }

    async fn list_pods_of(&self, uid: &str) -> Result<Vec<WorkPod>, ApiError> {
        let selector = format!("labelSelector=batch.kubernetes.io/controller-uid%3D{uid}");
        // A Job of ours has few pods, ever.
        Ok(self.list(&self.core("pods"), JSON, &selector, None).await?.items)
    }

    async fn pod_log(
        &self,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Result<LogTail, ApiError> {
        let mut path = format!("{}/{pod}/log?tailLines={LOG_LINES}", self.core("pods"));
        if !container.is_empty() {
            path.push_str("&container=");
            path.extend(utf8_percent_encode(container, NON_ALPHANUMERIC));
        }
        if previous {
            path.push_str("&previous=true");
        }
        let late = |_| ApiError::lost(&format!("the log did not end within {LOG_TIMEOUT:?}"));
        timeout(LOG_TIMEOUT, self.tail(&path)).await.map_err(late)?
    }

    async fn list_events(&self, uid: &str) -> Result<Vec<EventFacts>, ApiError> {
        let about = format!("fieldSelector=involvedObject.uid%3D{uid}");
        let page: Page<EventFacts> = self.list(&self.core("events"), JSON, &about, None).await?;
        Ok(page.items)
    }

    async fn get_account(&self, name: &str) -> Result<Option<AccountFacts>, ApiError> {
        self.get(&format!("{}/{name}", self.core("serviceaccounts")), META).await
    }

    async fn create_account(&self, name: &str, email: &str) -> Result<(), ApiError> {
        let body = serde_json::json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": name,
                "labels": { "app.kubernetes.io/managed-by": "katabatch" },
                "annotations": { EMAIL_ANNOTATION: email },
            },
        });
        let path = self.bounded(&self.core("serviceaccounts"));
        let body = body.to_string().into_bytes();
        self.ask(Method::POST, &path, META, Some(body), self.request_timeout).await.map(|_| ())
    }

    async fn get_config_map(&self, name: &str) -> Result<Option<ConfigMapFacts>, ApiError> {
        self.get(&format!("{}/{name}", self.core("configmaps")), JSON).await
    }

    async fn put_config_map(
        &self,
        name: &str,
        facts: &ConfigMapFacts,
    ) -> Result<ConfigMapFacts, ApiError> {
        let object = serde_json::json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "data": facts.data,
        });
        self.put(&self.core("configmaps"), name, &facts.resource_version, object).await
    }

    async fn get_lease(&self, name: &str) -> Result<Option<LeaseFacts>, ApiError> {
        self.get(&format!("{}/{name}", self.leases()), JSON).await
    }

    async fn put_lease(
        &self,
        name: &str,
        facts: &LeaseFacts,
        renewed: Timestamp,
    ) -> Result<LeaseFacts, ApiError> {
        let holder = (!facts.holder.is_empty()).then_some(facts.holder.as_str());
        let object = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION.as_secs(),
                // A MicroTime is read with exactly six digits.
                "renewTime": format!("{renewed:.6}"),
            },
        });
        self.put(&self.leases(), name, &facts.resource_version, object).await
    }
}
