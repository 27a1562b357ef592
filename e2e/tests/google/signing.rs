//! Inputs that are paths, signed by IAM as the account that the metadata server gives: no key.

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{JOB_TYPE, message, task};
use katabatch_e2e::google_rest::EMAIL;
use serde_json::json;

use crate::SOON;
use crate::world::World;

const INPUT: &str = "gs://inputs/dir/input 1";
const SIGN: &str = ":signBlob";

/// The URL that a Job's worker fetches its input from.
fn input_of(job: &Job) -> Result<String> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let variables = pod.and_then(|pod| pod.containers.first()?.env.as_ref());
    let mut variables = variables.into_iter().flatten();
    let input = variables.find(|variable| variable.name == "UWORKER_INPUT_DOWNLOAD_URL");
    input.and_then(|variable| variable.value.clone()).context("the Job has no input")
}

fn parameter<'a>(url: &'a str, name: &str) -> Result<&'a str> {
    let mut pairs = url.split(['?', '&']).filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(key, _)| *key == name);
    found.map(|(_, value)| value).with_context(|| format!("no {name} in {url}"))
}

fn unhexed(text: &str) -> Result<String> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair)?, 16).context("no hex");
    Ok(String::from_utf8(pairs.map(byte).collect::<Result<_>>()?)?)
}

pub async fn an_input_that_is_a_path_is_signed_by_iam(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    world.farm.put(vec![message("fuzz", JOB_TYPE, INPUT)]).await?;
    let mut process = world.start("run", &["--log", "trace", "run"])?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    let ended = process.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");

    let jobs = world.all_jobs().await?;
    ensure!(jobs.len() == 1, "{} Jobs", jobs.len());
    let name = task("fuzz", JOB_TYPE, INPUT)?.job_name();
    ensure!(jobs[0].metadata.name.as_deref() == Some(name.as_str()), "the task is the object's");
    let url = input_of(&jobs[0])?;
    let object = "https://storage.googleapis.com/inputs/dir/input%201?";
    ensure!(url.starts_with(object), "{url}");
    ensure!(parameter(&url, "X-Goog-Algorithm")? == "GOOG4-RSA-SHA256", "{url}");
    // Six hours that the Job may take, five to wait, a quarter for clocks.
    ensure!(parameter(&url, "X-Goog-Expires")? == "40500", "{url}");
    let date = parameter(&url, "X-Goog-Date")?;
    let scope = format!("{}/auto/storage/goog4_request", date.get(..8).context("a date")?);
    let credential = format!("{EMAIL}/{scope}").replace('@', "%40").replace('/', "%2F");
    ensure!(parameter(&url, "X-Goog-Credential")? == credential, "{url}");

    // What was signed is what came back as the signature, and it was asked for once.
    let asked = world.google.requests(SIGN);
    ensure!(asked.len() == 1, "{asked:?}");
    let path = format!("/v1/projects/-/serviceAccounts/{EMAIL}:signBlob");
    ensure!(asked[0].path == path, "{asked:?}");
    let signature = parameter(&url, "X-Goog-Signature")?;
    let signed = unhexed(signature)?;
    ensure!(json!(ByteString(signed.clone().into())) == asked[0].body["payload"], "{signed}");
    let begins = format!("GOOG4-RSA-SHA256\n{date}\n{scope}\n");
    ensure!(signed.starts_with(&begins) && signed.len() == begins.len() + 64, "{signed}");
    ensure!(!ended.stderr.contains(signature), "the signature is in the log");
    Ok(())
}

pub async fn a_refusal_to_sign_holds_the_task_and_names_the_role(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    world.google.refuse_to_sign(Some("Permission 'iam.serviceAccounts.signBlob' denied"));
    world.farm.put(vec![message("fuzz", JOB_TYPE, INPUT)]).await?;
    world.farm.fill(1).await?;
    let mut process = world.start("run", &["run"])?;
    eventually("what is signed already is made, and the path alone is left", SOON, || async {
        let (jobs, counts) = (world.jobs().await?, world.farm.counts().await?);
        let left = (counts.ready, counts.leased, counts.delayed, counts.quarantined);
        Ok(Seen::when((jobs, left) == (1, (0, 1, 0, 0)), || format!("{jobs} Jobs, {counts:?}")))
    })
    .await?;
    let said = &process;
    eventually("it says what to do", SOON, || async move {
        let said = said.messages();
        let told = ["tasks of gs:// are held", "roles/iam.serviceAccountTokenCreator", EMAIL];
        Ok(Seen::when(told.iter().all(|words| said.contains(words)), || said.clone()))
    })
    .await?;

    // Nothing is lost: it is made once it may be.
    world.google.refuse_to_sign(None);
    world.until_acked(&mut process, 2 * SOON).await?;
    process.terminate()?;
    let ended = process.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(world.jobs().await? == 2, "{} Jobs", world.jobs().await?);
    let name = task("fuzz", JOB_TYPE, INPUT)?.job_name().to_string();
    let jobs = world.all_jobs().await?;
    let made = jobs.iter().find(|job| job.metadata.name.as_ref() == Some(&name));
    ensure!(input_of(made.context("no Job of the path")?)?.contains("X-Goog-Signature="));
    ensure!(ended.stderr.contains("inputs are signed again"), "{}", ended.stderr);
    Ok(())
}

pub async fn check_says_whether_inputs_could_be_signed_and_outputs_found(case: Case) -> Result<()> {
    let mut world = World::new(case).await?;
    // Buckets that hold nothing.
    world.more.push(("STORAGE_EMULATOR_HOST", world.google.host().to_owned()));
    let bucket = json!({ "bucket": "gs://outputs" });
    world.configure(|config| config["outputs"] = bucket)?;
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    let may = world.run("may", &["check"]).await?;
    let told = ["can be signed, by the metadata server", "outputs can be looked for"];
    ensure!(told.iter().all(|words| may.stdout.contains(words)), "{may:?}");
    let asked = world.google.requests(SIGN);
    ensure!(asked.len() == 1, "{asked:?}");

    world.google.refuse_to_sign(Some("Permission 'iam.serviceAccounts.signBlob' denied"));
    world.google.refuse_objects();
    let may_not = world.run("may_not", &["check"]).await?;
    let told = [
        "input is a gs:// path are held",
        "roles/iam.serviceAccountTokenCreator",
        "outputs can't be looked for, so nothing is created",
        "add-iam-policy-binding gs://outputs",
    ];
    ensure!(may_not.code == Some(1), "{may_not:?}");
    ensure!(told.iter().all(|words| may_not.stdout.contains(words)), "{may_not:?}");
    Ok(())
}
