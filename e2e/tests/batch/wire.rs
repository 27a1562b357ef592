//! The backend over HTTP: each documented answer, and none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use katabatch::backend::Backend;
use katabatch::backend::gcp_batch::api::{Api as _, Fault as ApiFault};
use katabatch::backend::gcp_batch::client::RestApi;
use katabatch::backend::gcp_batch::spec;
use katabatch::domain::outcome::{HoldKind, Outcome, Placed, Scope};
use katabatch::gcp::tokens::{Bearer, TokenError, Tokens};
use katabatch_e2e::batch::{Batch, Fault};
use katabatch_e2e::eventually;
use katabatch_e2e::eventually::Seen;

use crate::world::{SOON, inside, tasks, workload};

const REGION: &str = "us-central1";
const TIMEOUT: Duration = Duration::from_secs(5);

fn all_are(outcomes: &[Outcome], expect: Placed) -> Result<()> {
    let fine = outcomes.iter().all(|outcome| *outcome == Outcome::Scheduled(expect));
    ensure!(fine && !outcomes.is_empty(), "{outcomes:?}");
    Ok(())
}

pub async fn lost() -> Result<()> {
    for (fault, posts) in [
        (Fault::LostAnswer, 1),
        (Fault::FailedAfter, 1),
        (Fault::EmptyAnswer, 1),
        (Fault::Slow(Duration::from_secs(2)), 1),
    ] {
        let batch = Batch::start(&[REGION]).await?;
        let inside = inside(&batch, &[REGION], Duration::from_millis(500)).await?;
        batch.state().faults = vec![(1, fault)];
        let outcomes = inside.backend.submit(&workload(&[REGION], &[]), &tasks(0..5)?).await;
        all_are(&outcomes, Placed::Created)?;
        let state = batch.state();
        let sent = state.seen.iter().filter(|seen| seen.method == "POST").count();
        ensure!(state.jobs.len() == 1 && sent == posts, "{fault:?}: {:?}", state.seen);
    }
    // Nothing is made, again and again: the plan stays, and is asked for under the same id.
    let batch = Batch::start(&[REGION]).await?;
    let inside = inside(&batch, &[REGION], TIMEOUT).await?;
    batch.state().faults = vec![(1, Fault::LostRequest)];
    let workload = workload(&[REGION], &[]);
    let outcomes = inside.backend.submit(&workload, &tasks(0..5)?).await;
    ensure!(
        outcomes
            .iter()
            .all(|o| matches!(o, Outcome::Deferred(why) if why.kind == HoldKind::BackendFailed)),
        "{outcomes:?}"
    );
    batch.state().faults.clear();
    let plans = inside.records.all().await?.into_keys().filter(|key| key.contains(".j-"));
    let plans: Vec<String> = plans.collect();
    all_are(&inside.backend.submit(&workload, &tasks(0..5)?).await, Placed::Created)?;
    let state = batch.state();
    let (_, id) = state.jobs.keys().next().context("a job")?;
    ensure!(plans.len() == 1 && plans[0].ends_with(id.as_str()), "{plans:?} {id}");
    ensure!(state.misused.is_empty());
    Ok(())
}

pub async fn refusals() -> Result<()> {
    let batch = Batch::start(&[REGION]).await?;
    let inside = inside(&batch, &[REGION], TIMEOUT).await?;
    let here = workload(&[REGION], &[]);
    let check = async |fault, kind, scope| -> Result<Duration> {
        batch.state().faults = vec![(1, fault)];
        let outcomes = inside.backend.submit(&here, &tasks(0..2)?).await;
        let [Outcome::Deferred(a), Outcome::Deferred(b)] = outcomes.as_slice() else {
            bail!("{outcomes:?}");
        };
        ensure!(a == b && a.kind == kind && a.scope == scope, "{fault:?}: {a:?}");
        Ok(a.retry_after)
    };
    let pause = check(Fault::Quota(7), HoldKind::Throttled, Scope::Backend).await?;
    ensure!(pause == Duration::from_secs(7), "{pause:?}");
    check(Fault::Forbidden, HoldKind::Forbidden, Scope::Backend).await?;
    batch.state().faults.clear();
    ensure!(batch.state().jobs.is_empty());
    // A region that Batch does not have is its mapping's fault alone.
    let elsewhere = workload(&["mars-north1"], &[]);
    eventually("the region is known to be none", SOON, || async {
        let outcomes = inside.backend.submit(&elsewhere, &tasks(0..2)?).await;
        let Some(Outcome::Deferred(why)) = outcomes.first() else { bail!("{outcomes:?}") };
        let done = why.scope == Scope::Workload && why.kind == HoldKind::BadMapping;
        Ok(Seen::when(done, || format!("{why:?}")))
    })
    .await?;
    // The others go on.
    all_are(&inside.backend.submit(&here, &tasks(2..4)?).await, Placed::Created)
}

/// A token that is refused, and others.
#[derive(Default)]
struct Renewed(AtomicUsize);

#[async_trait]
impl Tokens for Renewed {
    async fn bearer(&self) -> std::result::Result<Bearer, TokenError> {
        Ok(Bearer::new(format!("t{}", self.0.load(Ordering::Relaxed))))
    }

    async fn renew(&self, _: &Bearer) -> std::result::Result<Bearer, TokenError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.bearer().await
    }
}

// Case 35, on this API.
pub async fn tokens() -> Result<()> {
    let batch = Batch::start(&[REGION]).await?;
    let parent = spec::parent("p", REGION);
    let tokens = Arc::new(Renewed::default());
    let api = RestApi::new(batch.url(), Some(tokens.clone()), TIMEOUT)?;
    batch.state().token = Some("t1".into());
    ensure!(api.list(&parent, None).await.is_ok_and(|jobs| jobs.jobs.is_empty()));
    ensure!(tokens.0.load(Ordering::Relaxed) == 1 && batch.state().count("GET", Some(401)) == 1);
    // One that is refused as well is told, not asked for for ever.
    batch.state().token = Some("t9".into());
    let error = api.list(&parent, None).await.err().context("refused")?;
    ensure!(error.fault == ApiFault::Unauthenticated && tokens.0.load(Ordering::Relaxed) == 2);
    ensure!(!error.to_string().contains("t2"), "{error}");
    Ok(())
}

pub async fn pages() -> Result<()> {
    const JOBS: usize = 130;
    let batch = Batch::start(&[REGION]).await?;
    let here = workload(&[REGION], &[]);
    {
        let first = inside(&batch, &[REGION], TIMEOUT).await?;
        for n in 0..JOBS {
            all_are(&first.backend.submit(&here, &tasks(n..n + 1)?).await, Placed::Created)?;
        }
    }
    // Another process without any record, as after a day: the jobs themselves say what they have.
    let second = inside(&batch, &[REGION], TIMEOUT).await?;
    all_are(&second.backend.submit(&here, &tasks(0..JOBS)?).await, Placed::AlreadyThere)?;
    ensure!(batch.state().jobs.len() == JOBS);
    ensure!(second.backend.room().borrow().free() == 10_000 - JOBS);
    batch.state().set_all("FAILED");
    eventually("their room is free again", SOON, || async {
        let free = second.backend.room().borrow().free();
        Ok(Seen::when(free == 10_000, || format!("{free}")))
    })
    .await
}

pub async fn counting() -> Result<()> {
    let batch = Batch::start(&[REGION]).await?;
    let here = workload(&[REGION], &[REGION]);
    let first = inside(&batch, &[REGION], TIMEOUT).await?;
    for n in 0..100 {
        all_are(&first.backend.submit(&here, &tasks(n..n + 1)?).await, Placed::Created)?;
    }
    for uncounted in [false, true] {
        batch.state().uncounted = uncounted;
        let next = inside(&batch, &[REGION], TIMEOUT).await?;
        let outcomes = next.backend.submit(&here, &tasks(100..101)?).await;
        let Some(Outcome::Deferred(why)) = outcomes.first() else { bail!("{outcomes:?}") };
        ensure!(why.kind == HoldKind::RegionsFull, "{why:?}");
    }
    batch.state().set_all("RUNNING");
    let next = inside(&batch, &[REGION], TIMEOUT).await?;
    all_are(&next.backend.submit(&here, &tasks(100..101)?).await, Placed::Created)
}
