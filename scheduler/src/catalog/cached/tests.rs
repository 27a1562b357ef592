//! Lifetimes, single flight and a source that is down, in paused time.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;
use crate::catalog::entity::Job;
use crate::clock::SystemClock;

/// Knows every job type but `ghost…`, and says how often it was asked.
#[derive(Default)]
struct Source {
    asked: AtomicUsize,
    down: std::sync::atomic::AtomicBool,
    /// A look-up waits for it, where told to.
    gate: Option<Notify>,
}

#[async_trait]
impl Catalog for Source {
    async fn look_up(&self, job_types: &[JobType], _: Freshness) -> Result<Entities, CatalogError> {
        let nth = self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.notified().await;
        }
        if self.down.load(Ordering::SeqCst) {
            return Err(CatalogError("down".into()));
        }
        let of = |name: &JobType| {
            let job = Job { platform: nth.to_string(), ..Job::default() };
            let none = name.as_str().starts_with("ghost");
            JobEntities { jobs: if none { vec![] } else { vec![job] }, ..JobEntities::default() }
        };
        Ok(job_types.iter().map(|name| (name.clone(), of(name))).collect())
    }
}

impl Source {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }
}

const BOUNDS: Bounds = Bounds {
    lifetime: Duration::from_secs(60),
    max_stale: Duration::from_secs(3_600),
    job_types: 100,
};

fn cached(source: Source) -> CachedCatalog<Source> {
    CachedCatalog::new(Arc::new(source), Arc::new(SystemClock), BOUNDS)
}

async fn ask(catalog: &CachedCatalog<Source>, names: &[&str]) -> Result<Entities, CatalogError> {
    let names: Vec<JobType> = names.iter().map(|name| JobType::from(*name)).collect();
    catalog.look_up(&names, Freshness::Cached).await
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_lives_its_lifetime_and_an_absence_ten_seconds() {
    let catalog = cached(Source::default());
    let asked = |catalog: &CachedCatalog<Source>| catalog.source().asked();
    ask(&catalog, &["a", "ghost"]).await.expect("an answer");
    pass(9).await;
    ask(&catalog, &["a", "ghost"]).await.expect("an answer");
    assert_eq!(asked(&catalog), 1);
    pass(2).await;
    ask(&catalog, &["a"]).await.expect("an answer");
    assert_eq!(asked(&catalog), 1);
    ask(&catalog, &["a", "ghost"]).await.expect("an answer");
    assert_eq!(asked(&catalog), 2);
    pass(50).await;
    ask(&catalog, &["a"]).await.expect("an answer");
    assert_eq!(asked(&catalog), 3);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_tasks_of_a_job_type_are_one_look_up() {
    let catalog = cached(Source { gate: Some(Notify::new()), ..Source::default() });
    let all = join_all((0..1_000).map(|_| ask(&catalog, &["a", "b"])));
    let opened = async {
        tokio::task::yield_now().await;
        catalog.source().gate.as_ref().expect("a gate").notify_one();
    };
    let (answers, ()) = tokio::join!(all, opened);
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|found| found.len() == 2)));
    assert_eq!(catalog.source().asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_goes_on_when_the_first_to_ask_has_gone_and_begins_anew_when_all_have() {
    let catalog = cached(Source { gate: Some(Notify::new()), ..Source::default() });
    let gate = || catalog.source().gate.as_ref().expect("a gate").notify_one();
    let mut first = Box::pin(ask(&catalog, &["a"]));
    let mut second = Box::pin(ask(&catalog, &["a", "b"]));
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    // `a` is under way; only `b` is asked for anew.
    assert_eq!(catalog.source().asked(), 2);
    drop(first);
    gate();
    gate();
    catalog.source().gate.as_ref().expect("a gate").notify_waiters();
    let answer = tokio::time::timeout(Duration::from_secs(1), second).await;
    assert_eq!(answer.expect("in time").expect("an answer").len(), 2);
    assert_eq!(catalog.source().asked(), 2);

    let mut gone = Box::pin(ask(&catalog, &["c"]));
    assert!(futures::poll!(&mut gone).is_pending());
    drop(gone);
    gate();
    assert!(ask(&catalog, &["c"]).await.is_ok());
    assert_eq!(catalog.source().asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_down_is_stood_in_for_by_old_answers_up_to_their_age() {
    let catalog = cached(Source::default());
    ask(&catalog, &["a", "ghost"]).await.expect("an answer");
    catalog.source().set_down(true);
    pass(61).await;
    assert_eq!(ask(&catalog, &["a"]).await.expect("an old answer").len(), 1);
    assert_eq!(catalog.source().asked(), 2);
    // While it rests it isn't asked again for what is known.
    ask(&catalog, &["a"]).await.expect("an old answer");
    assert_eq!(catalog.source().asked(), 2);
    pass(6).await;
    ask(&catalog, &["a"]).await.expect("an old answer");
    assert_eq!(catalog.source().asked(), 3);
    // That it didn't exist is no answer any more.
    assert!(ask(&catalog, &["ghost"]).await.is_err());
    pass(3_600).await;
    assert!(ask(&catalog, &["a"]).await.is_err());
    catalog.source().set_down(false);
    assert!(ask(&catalog, &["a"]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_is_waited_for_only_where_there_is_no_older_answer() {
    let catalog = cached(Source { gate: Some(Notify::new()), ..Source::default() });
    catalog.source().gate.as_ref().expect("a gate").notify_one();
    ask(&catalog, &["a"]).await.expect("an answer");
    pass(61).await;
    let started = Instant::now();
    ask(&catalog, &["a"]).await.expect("an old answer");
    assert_eq!(started.elapsed(), PATIENCE);
    let mut new = Box::pin(ask(&catalog, &["new"]));
    assert!(tokio::time::timeout(PATIENCE * 10, &mut new).await.is_err());
    catalog.source().gate.as_ref().expect("a gate").notify_one();
    assert!(new.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_unknown_job_type_while_it_is_down_does_not_hold_those_that_are_known() {
    let catalog = cached(Source::default());
    ask(&catalog, &["a"]).await.expect("an answer");
    catalog.source().set_down(true);
    pass(61).await;
    let found = ask(&catalog, &["a", "new"]).await.expect("an answer");
    assert_eq!(found[&"a".into()].faults, Vec::<String>::new());
    assert_eq!(found[&"new".into()].faults, ["the catalog can't be read: down"]);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_look_up_asks_the_source_never_gives_an_old_answer_and_is_remembered() {
    let catalog = cached(Source::default());
    let names = [JobType::from("a")];
    ask(&catalog, &["a"]).await.expect("an answer");
    let fresh = catalog.look_up(&names, Freshness::Fresh).await.expect("an answer");
    assert_eq!(catalog.source().asked(), 2);
    assert_eq!(ask(&catalog, &["a"]).await.expect("an answer"), fresh);
    assert_eq!(catalog.source().asked(), 2);
    catalog.source().set_down(true);
    assert!(catalog.look_up(&names, Freshness::Fresh).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn no_more_answers_are_kept_than_told_and_absences_go_first() {
    let catalog = cached(Source::default());
    ask(&catalog, &["a"]).await.expect("an answer");
    for n in 0..40 {
        pass(1).await;
        let names: Vec<String> = (0..10).map(|m| format!("ghost{n}-{m}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        ask(&catalog, &names).await.expect("an answer");
        assert!(catalog.memory().answers.len() <= BOUNDS.job_types);
    }
    assert!(catalog.memory().answers.contains_key(&JobType::from("a")));
}

#[tokio::test(start_paused = true)]
async fn a_slow_old_answer_does_not_take_the_place_of_a_newer_one() {
    let memory = &mut Memory::default();
    let answer = |platform: &str| {
        let job = Job { platform: platform.into(), ..Job::default() };
        Entities::from([("a".into(), JobEntities { jobs: vec![job], ..JobEntities::default() })])
    };
    let early = Instant::now();
    pass(1).await;
    memory.keep(&answer("new"), Instant::now(), 10);
    memory.keep(&answer("old"), early, 10);
    assert_eq!(memory.answers[&"a".into()].entities.jobs[0].platform, "new");
}
