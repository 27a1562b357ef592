//! Jobs that are there before, and what the server makes of ours.

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch::domain::outcome::HoldKind;
use katabatch::domain::quantity::Quantity;
use katabatch::domain::task::Task;
use katabatch::queue::spool::record::NewMessage;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan, input, message, signed};
use katabatch_e2e::process::Process;
use katabatch_e2e::site::Site;
use katabatch_e2e::{Case, eventually};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{SOON, site};

/// Makes a Job of the task's name, with these annotations and finalizers; it starts no pod.
async fn make(site: &Site, task: &Task, annotations: Value, finalizers: Value) -> Result<Job> {
    let job = serde_json::from_value(json!({
        "metadata": {
            "name": task.job_name().as_str(),
            "annotations": annotations,
            "finalizers": finalizers,
        },
        "spec": {
            "suspend": true,
            "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "c", "image": "registry.test/other:1" }],
            }},
        },
    }))?;
    site.api::<Job>().create(&PostParams::default(), &job).await.context("create the Job")
}

pub async fn a_name_that_is_taken_holds_its_task_alone(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let not_ours = make(&site, &site.farm.task(0)?, json!({}), json!([])).await?;
    let others = json!({ "katabatch.dev/task": site.farm.task(1)?.hash.to_string() });
    let anothers = make(&site, &site.farm.task(2)?, others, json!([])).await?;
    site.farm.fill(6).await?;
    let scheduler = site.scheduler().await?;
    scheduler.until("the others go on", SOON, |counts| counts.acked == 4).await?;
    scheduler
        .until("both are held", SOON, |counts| counts.held.get(&HoldKind::NameTaken) >= Some(&2))
        .await?;
    for job in [not_ours, anothers] {
        let name = job.metadata.name.as_deref().context("it has a name")?;
        let now = site.api::<Job>().get(name).await?;
        ensure!(now.metadata.uid == job.metadata.uid && now.spec == job.spec, "{name} was touched");
    }
    let counts = scheduler.stop().await?;
    ensure!((counts.created, counts.acked) == (4, 4), "{counts:?}");
    let left = site.farm.counts().await?;
    ensure!(left.ready == 2, "{left:?}");
    Ok(())
}

pub async fn a_job_being_deleted_is_waited_for(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let task = site.farm.task(0)?;
    let ours = json!({ "katabatch.dev/task": task.hash.to_string() });
    let first = make(&site, &task, ours, json!(["e2e.katabatch.dev/hold"])).await?;
    let name = task.job_name().to_string();
    let jobs = site.api::<Job>();
    jobs.delete(&name, &DeleteParams::background()).await?;
    ensure!(jobs.get(&name).await?.metadata.deletion_timestamp.is_some());

    site.farm.fill(3).await?;
    let scheduler = site.scheduler().await?;
    scheduler.until_held(HoldKind::BeingDeleted, SOON).await?;
    scheduler.until("the others go on", SOON, |counts| counts.acked == 2).await?;
    let open = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    jobs.patch(&name, &PatchParams::default(), &open).await?;
    site.until_acked(SOON).await?;
    let second = jobs.get(&name).await?;
    ensure!(second.metadata.uid != first.metadata.uid, "it is still the first one");
    let counts = scheduler.stop().await?;
    ensure!(counts.created == 3, "{counts:?}");
    Ok(())
}

// Case 10.
pub async fn two_messages_of_one_input_make_one_job(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let of = |id: &str, signature: &str| NewMessage {
        id: Some(id.into()),
        ..message("fuzz", JOB_TYPE, &signed("uworker-input/same", signature))
    };
    site.farm.put(vec![of("7", "one"), of("8", "two")]).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    let counts = scheduler.stop().await?;
    ensure!((counts.created, counts.already_there, counts.acked) == (1, 1, 2), "{counts:?}");
    ensure!(site.jobs().await?.len() == 1);
    Ok(())
}

/// Everything in `sent` stands in `stored`, quantities by their value (case 43).
fn kept(sent: &Value, stored: &Value, path: &str) -> Result<()> {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => sent.iter().try_for_each(|(key, value)| {
            let path = format!("{path}.{key}");
            kept(value, stored.get(key).with_context(|| format!("{path} is gone"))?, &path)
        }),
        (Value::Array(sent), Value::Array(stored)) => {
            ensure!(sent.len() == stored.len(), "{path} has {} items", stored.len());
            let pairs = sent.iter().zip(stored).enumerate();
            pairs.into_iter().try_for_each(|(n, (a, b))| kept(a, b, &format!("{path}[{n}]")))
        }
        (Value::String(a), Value::String(b)) if a != b => {
            let milli = |text: &str| Quantity::parse(text).map(|q| q.milli());
            let quantities = path.contains(".resources.") || path.ends_with(".sizeLimit");
            let same = quantities && matches!((milli(a), milli(b)), (Ok(a), Ok(b)) if a == b);
            ensure!(same, "{path}: {a} became {b}");
            Ok(())
        }
        _ => {
            ensure!(sent == stored, "{path}: {sent} became {stored}");
            Ok(())
        }
    }
}

/// With ClusterFuzz's own values for resources.
pub async fn the_server_keeps_what_was_sent(case: Case) -> Result<()> {
    let profile = json!({
        "cpu": 2,
        "memory": "3.75Gi",
        "shm": "1.9Gi",
        "scratch": { "/mnt/scratch1": "0.5Gi" },
        "env": { "DEPLOYMENT_BUCKET": "b" },
        "tolerations": [
            { "key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30 },
        ],
    });
    let site = site(&case, Plan { profile, ..Plan::default() }).await?;
    let url = input(0);
    let arguments = ["render", "--command", "fuzz", "--job", JOB_TYPE, "--url", &url];
    let output = ["-o", "json", "--reveal"];
    let all: Vec<&str> = arguments.into_iter().chain(output).collect();
    let rendered = Process::run(site.farm.dir(), "render", &all).await?;
    ensure!(rendered.code == Some(0), "{rendered:?}");
    let mut sent: Value = serde_json::from_str(&rendered.stdout)?;
    // When it was published is the message's matter.
    let published = "katabatch.dev/published-at";
    let annotations = sent["metadata"]["annotations"].as_object_mut();
    annotations.context("annotations")?.remove(published).context("when it was published")?;

    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    let name = site.farm.task(0)?.job_name().to_string();
    let stored = serde_json::to_value(site.api::<Job>().get(&name).await?)?;
    kept(&sent, &stored, "job")?;
    let volumes = &stored["spec"]["template"]["spec"]["volumes"];
    ensure!(volumes.to_string().contains("2040109465600m"), "{volumes}");
    // The pods are as the Job says, so that the server took the whole of it.
    eventually("it runs to its end", SOON, || async {
        let job = site.api::<Job>().get(&name).await?;
        Ok(Seen::when(katabatch_e2e::site::is_finished(&job), || format!("{:?}", job.status)))
    })
    .await
    .map_err(|error| anyhow!("{error:#}"))?;
    scheduler.stop().await?;
    Ok(())
}
