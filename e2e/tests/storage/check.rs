//! `katabatch check` on files, outputs and inputs in buckets.

use anyhow::{Context, Result, ensure};
use katabatch_e2e::Case;
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// The verdicts, subjects, details and hints of the area, and the exit code.
async fn storage(world: &World, name: &str) -> Result<(Vec<[String; 4]>, Option<i32>)> {
    let output = world.start(name, &["check", "-o", "json"])?.end(SOON).await?;
    let rows: Vec<Value> =
        serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
    let of = rows.iter().filter(|row| row["area"] == json!("storage"));
    let cells = ["verdict", "subject", "detail", "hint"];
    let text = |row: &Value| cells.map(|cell| row[cell].as_str().unwrap_or_default().to_owned());
    Ok((of.map(text).collect(), output.code))
}

#[track_caller]
fn has(rows: &[[String; 4]], verdict: &str, subject: &str, words: &str) -> Result<()> {
    let found = rows.iter().any(|[v, s, detail, hint]| {
        v == verdict && s == subject && (detail.contains(words) || hint.contains(words))
    });
    ensure!(found, "{verdict} {subject} {words:?} is not in {rows:#?}");
    Ok(())
}

async fn with_outputs(case: &Case) -> Result<World> {
    World::new(
        case,
        json!({
            "outputs": { "bucket": "gs://outputs" },
            "flags": { "file": "gs://farm/flags.yaml" },
        }),
    )
    .await
}

pub async fn all_well(case: Case) -> Result<()> {
    let world = World::in_bucket(&case).await?;
    let (rows, code) = storage(&world, "files").await?;
    for file in ["config/project.yaml", "config/batch/batch.yaml", "entities.jsonl", "flags.yaml"] {
        has(&rows, "pass", &format!("gs://farm/{file}"), "can be read")?;
    }
    has(&rows, "pass", "inputs", "can be signed")?;
    ensure!(rows.len() == 5, "{rows:#?}");
    ensure!(code.is_some());

    let world = with_outputs(&case).await?;
    world.gcs.put("gs://farm/flags.yaml", "{}").await?;
    let (rows, _) = storage(&world, "outputs").await?;
    has(&rows, "pass", "gs://outputs", "can be looked for")?;
    Ok(())
}

pub async fn missing(case: Case) -> Result<()> {
    let mut world = with_outputs(&case).await?;
    world.environment[1].1.push_str(".none");
    let (rows, code) = storage(&world, "check").await?;
    ensure!(code == Some(1), "{code:?}");
    has(&rows, "fail", "gs://farm/flags.yaml", "is not there")?;
    has(&rows, "warn", "inputs", "are held")?;
    Ok(())
}

pub async fn away(case: Case) -> Result<()> {
    let world = with_outputs(&case).await?;
    world.gcs.kill()?;
    let (rows, code) = storage(&world, "check").await?;
    ensure!(code == Some(1), "{code:?}");
    for subject in ["gs://farm/flags.yaml", "gs://outputs"] {
        has(&rows, "fail", subject, "no connection comes up")?;
        has(&rows, "fail", subject, "can this machine reach it?")?;
    }
    // A key file signs without asking anybody.
    has(&rows, "pass", "inputs", "can be signed")?;
    Ok(())
}
