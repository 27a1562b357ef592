//! Flags, read and set.

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use katabatch::flags::change::Change;
use katabatch::flags::datastore::DatastoreFlags;
use katabatch::flags::{Flag, FlagSource};
use katabatch_e2e::datastore_emulator::{DatastoreEmulator, Flavour};
use katabatch_e2e::ndb;

/// Case 17 with a whole number, more flags than fit a page, and a change that keeps all else.
pub async fn flags_are_read_and_set(flavour: Flavour) -> Result<()> {
    let emulator = DatastoreEmulator::start(flavour).await?;
    let mut entities: Vec<_> =
        (0..350).map(|n| ndb::flag(&format!("other_{n}"), false, ndb::null())).collect();
    entities.push(ndb::flag("k8s_jobs_frequency", true, ndb::integer(1)));
    entities.push(ndb::flag("k8s_jobs_pending_limit", true, ndb::float(1_000.0)));
    ndb::put(&emulator.host(), &entities).await?;

    let datastore = ndb::open(&emulator.host()).await?;
    let flags = DatastoreFlags::new(datastore.clone());
    let read = flags.read().await?;
    ensure!(read.0.len() == 352, "{} flags", read.0.len());
    let weight = Flag {
        enabled: true,
        value: Some(1.0),
        integer: true,
        string_value: None,
        description: Some("what it is for".into()),
    };
    ensure!(read.0.get("k8s_jobs_frequency") == Some(&weight));

    let change = Change { value: Some(Some(0.0)), ..Change::default() };
    let (before, after) = flags.set("k8s_jobs_pending_limit", &change).await?;
    ensure!(before.and_then(|flag| flag.value) == Some(1_000.0) && after.value == Some(0.0));
    ensure!(flags.read().await?.limit("k8s_jobs_pending_limit", 7) == 0);
    let all = datastore.all("FeatureFlag").await?;
    let limit = all
        .iter()
        .find(|entity| format!("{:?}", entity.key).contains("pending_limit"))
        .context("the entity")?;
    ensure!(format!("{:?}", limit.properties).contains("what it is for"), "{limit:?}");

    let error = flags.set("k8s_job_pending_limit", &change).await.err().context("no such flag")?;
    ensure!(error.to_string().contains("did you mean `k8s_jobs_pending_limit`"), "{error}");
    let made = Change { enabled: Some(true), ..change };
    let (before, _) = flags.set("brand_new", &made).await?;
    ensure!(before.is_none() && flags.read().await?.0.contains_key("brand_new"));
    Ok(())
}

/// Each change of another property: a lost update would undo one.
pub async fn changes_at_the_same_time_are_all_made() -> Result<()> {
    let emulator = DatastoreEmulator::start(Flavour::Firestore).await?;
    ndb::put(&emulator.host(), &[ndb::flag("w", false, ndb::null())]).await?;
    let flags = DatastoreFlags::new(ndb::open(&emulator.host()).await?);
    let changes = [
        Change { enabled: Some(true), ..Change::default() },
        Change { value: Some(Some(0.5)), ..Change::default() },
        Change { string_value: Some("x".into()), ..Change::default() },
    ];
    for set in join_all(changes.iter().map(|change| flags.set("w", change))).await {
        set?;
    }
    let read = flags.read().await?;
    let flag = read.0.get("w").context("the flag")?;
    let Flag { enabled, value, string_value, .. } = flag;
    ensure!(*enabled && *value == Some(0.5) && string_value.as_deref() == Some("x"), "{flag:?}");
    Ok(())
}
