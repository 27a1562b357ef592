//! Look-ups of job types.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use katabatch::catalog::cached::{Bounds, CachedCatalog};
use katabatch::catalog::datastore::DatastoreCatalog;
use katabatch::catalog::{Catalog, Freshness};
use katabatch::clock::SystemClock;
use katabatch::domain::name::JobType;
use katabatch_e2e::datastore_emulator::{DatastoreEmulator, Flavour};
use katabatch_e2e::ndb;

/// Real job types (name, platform, project, environment).
const JOB_TYPES: &str = include_str!("../../../scheduler/tests/data/oss-fuzz-job-types.csv");

fn names(count: usize) -> Vec<JobType> {
    (0..count).map(|n| JobType::from(format!("libfuzzer_asan_p{n}"))).collect()
}

/// Case 71, with templates and projects, a missing one of each, and two Jobs of one name.
pub async fn thirty_one_job_types_are_all_found(flavour: Flavour) -> Result<()> {
    let emulator = DatastoreEmulator::start(flavour).await?;
    let wanted = names(31);
    let mut entities = vec![ndb::template("libfuzzer", "A = 1\n")];
    for (n, name) in wanted.iter().enumerate() {
        let project = format!("p{n}");
        let environment = format!("PROJECT_NAME = {project}\nDISK_SIZE_GB = None\n");
        let templates = ["libfuzzer", "gone"];
        entities.push(ndb::job(name.as_str(), "LINUX", &environment, &templates, Some(&project)));
        if n % 2 == 0 {
            entities.push(ndb::project(&project, Some("ubuntu-24-04")));
        }
    }
    entities.push(ndb::job(wanted[30].as_str(), "ANDROID", "", &[], None));
    entities.push(ndb::job("not_asked_for", "LINUX", "", &[], None));
    ndb::put(&emulator.host(), &entities).await?;

    let catalog = DatastoreCatalog::new(ndb::open(&emulator.host()).await?);
    let mut asked = wanted.clone();
    asked.push("ghost".into());
    let found = catalog.look_up(&asked, Freshness::Fresh).await?;
    ensure!(found.len() == 32, "{} answers", found.len());
    for (n, name) in wanted.iter().enumerate() {
        let entities = &found[name];
        ensure!(entities.faults.is_empty(), "{name}: {:?}", entities.faults);
        ensure!(entities.jobs.len() == if n == 30 { 2 } else { 1 }, "{name}: {entities:?}");
        ensure!(entities.templates.len() == 1, "{name}: {entities:?}");
        ensure!(entities.projects.len() == 1 - n % 2, "{name}: {entities:?}");
        let job = entities.jobs.iter().find(|job| job.platform == "LINUX");
        let job = job.ok_or_else(|| anyhow::anyhow!("{name} has no Linux job"))?;
        ensure!(job.environment_string.contains("DISK_SIZE_GB"), "{job:?}");
    }
    ensure!(found[&JobType::from("ghost")].jobs.is_empty());
    ensure!(catalog.job_types().await?.len() == 32);
    Ok(())
}

/// A real farm's catalog, over many chunks and pages.
pub async fn every_oss_fuzz_job_type_is_looked_up() -> Result<()> {
    let emulator = DatastoreEmulator::start(Flavour::Firestore).await?;
    let mut entities = Vec::new();
    let mut projects = BTreeMap::new();
    for line in JOB_TYPES.lines().skip(1) {
        let mut cells = line.split(',');
        let (Some(name), Some(project)) = (cells.next(), cells.next()) else { continue };
        projects.insert(project, ());
        let environment = format!(
            "RELEASE_BUILD_BUCKET_PATH = clusterfuzz-builds/{project}/x.zip\n\
                     PROJECT_NAME = {project}\nMANAGED = True\nDISK_SIZE_GB = None\n"
        );
        entities.push(ndb::job(name, "LINUX", &environment, &["libfuzzer"], Some(project)));
    }
    let count = entities.len();
    ensure!(count == 3_489, "{count} job types");
    entities.push(ndb::template("libfuzzer", "A = 1\n"));
    entities.extend(projects.keys().map(|name| ndb::project(name, None)));
    ndb::put(&emulator.host(), &entities).await?;

    let catalog = DatastoreCatalog::new(ndb::open(&emulator.host()).await?);
    let (started, names) = (Instant::now(), catalog.job_types().await?);
    eprintln!("{} job types listed in {:?}", names.len(), started.elapsed());
    ensure!(names.len() == count, "{} of {count} listed", names.len());
    // All at once, and as many as go by IN.
    for some in [&names[..], &names[..120]] {
        let (started, count) = (Instant::now(), some.len());
        let found = catalog.look_up(some, Freshness::Fresh).await?;
        eprintln!("{count} job types looked up in {:?}", started.elapsed());
        let whole = found.values().filter(|entities| {
            entities.jobs.len() == 1
                && entities.templates.len() == 1
                && entities.projects.len() == 1
        });
        ensure!(whole.count() == count);
    }
    Ok(())
}

/// The cache over an emulator that dies and comes back.
pub async fn old_answers_stand_in_while_it_is_gone() -> Result<()> {
    let mut emulator = DatastoreEmulator::start(Flavour::Firestore).await?;
    let jobs = [ndb::job("a", "LINUX", "", &[], None)];
    ndb::put(&emulator.host(), &jobs).await?;
    let source = DatastoreCatalog::new(ndb::open(&emulator.host()).await?);
    let bounds =
        Bounds { lifetime: Duration::ZERO, max_stale: Duration::from_secs(3_600), job_types: 10 };
    let catalog = CachedCatalog::new(Arc::new(source), Arc::new(SystemClock), bounds);
    let name = [JobType::from("a")];
    let first = catalog.look_up(&name, Freshness::Cached).await?;
    ensure!(first[&name[0]].jobs.len() == 1);

    emulator.kill()?;
    ensure!(catalog.look_up(&name, Freshness::Cached).await? == first, "an old answer");
    let error = catalog.look_up(&name, Freshness::Fresh).await.err();
    let error = error.ok_or_else(|| anyhow::anyhow!("a fresh answer from nobody"))?;
    ensure!(error.to_string().contains("Datastore does not answer"), "{error}");

    emulator.start_again().await?;
    ndb::put(&emulator.host(), &jobs).await?;
    ensure!(catalog.look_up(&name, Freshness::Fresh).await? == first, "it is back");
    Ok(())
}
