//! The proxy breaks what it is told to, and nothing else.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use futures::{Stream, StreamExt, TryStreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::ConfigMap;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::{Case, Proxy, eventually};
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

struct Fixture {
    proxy: Proxy,
    /// Config maps, seen through the proxy.
    through: Api<ConfigMap>,
    /// The same ones, seen past it.
    direct: Api<ConfigMap>,
}

async fn fixture(case: &Case) -> Result<Fixture> {
    let proxy = Proxy::start(&case.plane).await?;
    let client = proxy.client(&case.plane.admin_token().await?)?;
    Ok(Fixture {
        through: Api::namespaced(client, case.namespace.name()),
        direct: case.namespace.api(),
        proxy,
    })
}

impl Fixture {
    async fn create(&self, name: &str) -> Result<ConfigMap, kube::Error> {
        self.through.create(&PostParams::default(), &config_map(name)).await
    }

    async fn create_directly(&self, name: &str) -> Result<()> {
        self.direct.create(&PostParams::default(), &config_map(name)).await?;
        Ok(())
    }
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() },
        ..ConfigMap::default()
    }
}

fn code<T>(outcome: Result<T, kube::Error>) -> Result<u16> {
    match outcome {
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => bail!("not an answer: {error}"),
        Ok(_) => bail!("it succeeded"),
    }
}

pub async fn a_lost_answer_leaves_the_object(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    let fired = it.proxy.push(Rule::new(Action::DropAfter).on("create", "configmaps").once());

    let lost = it.create("a").await;
    ensure!(matches!(&lost, Err(kube::Error::HyperError(_) | kube::Error::Service(_))), "{lost:?}");
    ensure!(it.direct.get_opt("a").await?.is_some(), "the server didn't do the work");
    ensure!(fired.count() == 1);
    ensure!(code(it.create("a").await)? == 409);

    let answers: Vec<_> =
        it.proxy.requests().into_iter().map(|seen| (seen.verb, seen.status, seen.fault)).collect();
    let expected = [("create", None, Some("drop after")), ("create", Some(409), None)];
    ensure!(answers == expected, "{answers:?}");
    Ok(())
}

pub async fn a_request_dropped_before_leaves_none(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    it.proxy.push(Rule::new(Action::DropBefore).on("create", "configmaps").skip(1));
    it.create("first").await.context("the first one passes")?;
    ensure!(it.create("second").await.is_err());
    ensure!(it.direct.get_opt("second").await?.is_none());
    it.proxy.clear();
    it.create("second").await.context("without rules all pass")?;
    Ok(())
}

pub async fn an_empty_201_hides_the_object(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    it.proxy.push(Rule::new(Action::Empty201).verb("create"));
    ensure!(it.create("a").await.is_err(), "an empty body is no object");
    ensure!(it.direct.get_opt("a").await?.is_some());
    ensure!(it.proxy.requests()[0].status == Some(201));
    Ok(())
}

pub async fn an_answer_comes_too_late(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    it.proxy.push(Rule::new(Action::DelayAnswer(10 * SOON)).verb("create"));
    let direct = it.direct.clone();
    let created = eventually("the object is there", SOON, || async {
        let found = direct.get_opt("a").await?;
        Ok(Seen::when(found.is_some(), || "nothing".into()))
    });
    // The one that ends first is the look past the proxy: the create never does.
    tokio::select! {
        answer = it.create("a") => bail!("an answer came: {answer:?}"),
        created = created => created,
    }
}

pub async fn back_pressure_is_answered_as_told(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    let wait = Some(Duration::from_secs(7));
    it.proxy.push(Rule::new(Action::too_many_requests(wait)).verb("create").once());
    it.proxy.push(Rule::new(Action::answer(503, "ServiceUnavailable", "not now")).path("limit=1"));
    ensure!(code(it.create("a").await)? == 429);
    ensure!(it.direct.get_opt("a").await?.is_none());
    ensure!(code(it.through.list(&ListParams::default().limit(1)).await)? == 503);

    it.proxy.clear();
    it.proxy.push(Rule::new(Action::too_many_requests(wait)));
    let answer = HttpClient::builder(TokioExecutor::new())
        .build_http::<Empty<Bytes>>()
        .get(format!("{}/readyz", it.proxy.url()).parse()?)
        .await?;
    let retry_after = answer.headers().get("retry-after").context("no Retry-After")?;
    ensure!(retry_after == "7", "{retry_after:?}");
    Ok(())
}

pub async fn the_second_page_expires(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    for name in ["a", "b", "c"] {
        it.create_directly(name).await?;
    }
    it.proxy.push(Rule::new(Action::Expire).on("list", "configmaps").later_page(true).once());
    let page = ListParams::default().limit(2);
    let first = it.through.list(&page).await?;
    let token = first.metadata.continue_.context("there is no second page")?;
    ensure!(code(it.through.list(&page.clone().continue_token(&token)).await)? == 410);
    ensure!(!it.through.list(&page.continue_token(&token)).await?.items.is_empty());
    Ok(())
}

/// The next event, which has to come soon; `None` is the end of the stream.
async fn next<S>(events: &mut S) -> Result<Option<WatchEvent<ConfigMap>>>
where
    S: Stream<Item = Result<WatchEvent<ConfigMap>, kube::Error>> + Unpin,
{
    Ok(timeout(SOON, events.try_next()).await.context("no event came")??)
}

/// Reads until the config map `name` appears.
async fn until_added<S>(events: &mut S, name: &str) -> Result<()>
where
    S: Stream<Item = Result<WatchEvent<ConfigMap>, kube::Error>> + Unpin,
{
    loop {
        match next(events).await? {
            Some(WatchEvent::Added(seen)) if seen.metadata.name.as_deref() == Some(name) => {
                return Ok(());
            }
            Some(WatchEvent::Error(status)) => bail!("the watch failed: {status}"),
            Some(_) => {}
            None => bail!("the watch ended before {name} came"),
        }
    }
}

pub async fn a_watch_streams_and_is_cut(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    let mut events = it.through.watch(&WatchParams::default(), "0").await?.boxed();
    it.create_directly("seen").await?;
    // Unbuffered: it comes while the answer is still open.
    until_added(&mut events, "seen").await?;
    it.proxy.cut_watches();
    match next(&mut events).await {
        Err(_) | Ok(None) => {}
        Ok(Some(event)) => bail!("an event came after the cut: {event:?}"),
    }

    it.proxy.push(Rule::new(Action::Cut { after_bytes: 20 }).on("watch", "configmaps").once());
    let mut events = it.through.watch(&WatchParams::default(), "0").await?.boxed();
    let cut = next(&mut events).await;
    ensure!(!matches!(cut, Ok(Some(_))), "20 bytes are no event: {cut:?}");

    let mut events = it.through.watch(&WatchParams::default(), "0").await?.boxed();
    until_added(&mut events, "seen").await
}

pub async fn a_watch_expires_with_an_event(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    it.proxy.push(Rule::new(Action::Expire).verb("watch").once());
    let mut events = it.through.watch(&WatchParams::default(), "0").await?.boxed();
    match next(&mut events).await? {
        Some(WatchEvent::Error(status)) if status.code == 410 => {}
        other => bail!("not an ERROR event: {other:?}"),
    }
    ensure!(next(&mut events).await?.is_none(), "the stream goes on");
    ensure!(it.proxy.requests()[0].status == Some(200));
    Ok(())
}

pub async fn a_watch_falls_silent(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    it.proxy.push(Rule::new(Action::Silence { after_bytes: 0 }).verb("watch"));
    let mut events = it.through.watch(&WatchParams::default(), "0").await?.boxed();
    it.create_directly("unseen").await?;
    // That nothing comes can't be waited for: what did come by the time that a watch
    // past the proxy has shown the event is what there is.
    let mut direct = it.direct.watch(&WatchParams::default(), "0").await?.boxed();
    until_added(&mut direct, "unseen").await?;
    let silent = futures::poll!(events.next());
    ensure!(silent.is_pending(), "something came: {silent:?}");
    Ok(())
}

pub async fn http2_passes_too(case: Case) -> Result<()> {
    let it = fixture(&case).await?;
    let client =
        HttpClient::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
    let answer = client.get(format!("{}/version", it.proxy.url()).parse()?).await?;
    ensure!(answer.version() == hyper::Version::HTTP_2, "{:?}", answer.version());
    let body = answer.into_body().collect().await?.to_bytes();
    let version: serde_json::Value = serde_json::from_slice(&body)?;
    ensure!(version["major"] == json!("1"), "{version}");

    it.proxy.push(Rule::new(Action::DropBefore).path("/version").once());
    let dropped = client.get(format!("{}/version", it.proxy.url()).parse()?).await;
    dropped.err().map(drop).ok_or_else(|| anyhow!("it was answered"))
}
