//! A signed URL and a bearer token are credentials (case 61): the whole path runs at log level
//! trace, through every error that can be provoked, and everything that it says or leaves is
//! searched. Only the Job's environment and the record of a rejected message, which is put back as
//! it was, carry a URL.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, ServiceAccount};
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{JOB_TYPE, Plan, message, signed};
use katabatch_e2e::google::QUARANTINE;
use katabatch_e2e::http_client::Endpoint;
use katabatch_e2e::proxy::{Action, Rule};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::marks::{Mark, finds_what_it_looks_for};
use crate::world::{SOON, World};

/// Stand in signatures.
const HEX: &str = "5ec2e7516ba7c4e0feed";
const BASE: &str = "S3cr3tM4rk7zQ";
/// Stands in the place of a password.
const PASSWORD: &str = "p4ssw0rdM4rk9";
const GOOD: usize = 12;
/// The libraries that move what is secret. They are heard of at trace only when they are named.
const LIBRARIES: [&str; 9] = [
    "gcloud_sdk",
    "h2",
    "hyper",
    "hyper_util",
    "kube_client",
    "reqwest",
    "rustls",
    "tonic",
    "tower",
];

/// A filter that lets everything through.
fn loudest() -> String {
    let each = LIBRARIES.map(|library| format!(",{library}=trace")).concat();
    format!("trace{each}")
}

/// Signed as Cloud Storage does now, as it did before, and in ways that are hard to read.
fn urls() -> Vec<String> {
    let v4 = |n: usize| signed(&format!("inputs/{n}"), HEX);
    let v2 = |n: usize| {
        format!(
            "https://storage.googleapis.com/inputs/{n}?GoogleAccessId=w%40p.iam&Expires=4102444800\
             &Signature=a%2B{BASE}%2Fb%3D%3D"
        )
    };
    let quoted =
        |n: usize| format!("https://storage.googleapis.com/inputs/{n}?a='b<c>&Signature={BASE}");
    let user = |n: usize| format!("https://me:{PASSWORD}@host.test/inputs/{n}?sig={BASE}#x-{HEX}");
    (0..GOOD)
        .map(|n| match n % 4 {
            0 => v4(n),
            1 => v2(n),
            2 => quoted(n),
            _ => user(n),
        })
        .collect()
}

/// Messages that are rejected or held, each with a mark in it.
fn bad() -> Vec<BTreeMap<String, String>> {
    let url = signed("inputs/bad", HEX);
    let dead = format!(
        "https://storage.googleapis.com/inputs/dead?X-Goog-Date=20200101T000000Z\
         &X-Goog-Expires=60&X-Goog-Signature={HEX}"
    );
    let with = |name: &str, value: &str| {
        let mut attributes = message("fuzz", JOB_TYPE, &url).attributes;
        attributes.insert(name.to_owned(), value.to_owned());
        attributes
    };
    let mut lacking = with("job", JOB_TYPE);
    lacking.remove("command");
    vec![
        lacking,
        with("argument", &url.replace("https://", "ftp://")),
        with("argument", &format!("no URL, but X-Goog-Signature={HEX}")),
        with("argument", &dead),
        with("eta", &format!("soon?Signature={BASE}")),
        with("eventType", "OBJECT_FINALIZE"),
        with("job", "unknown"),
        // Two attributes in each other's place.
        with("job", &url),
        with("command", &url),
    ]
}

/// What a server could say that repeats what it was sent.
fn faults(world: &World, url: &str) {
    let said = |what: &str| {
        let token = &world.token;
        format!("{what}: env: Invalid value: {url:?}; {token:?} of `Bearer {token}` has expired")
    };
    let answer = |status, reason| Action::answer(status, reason, &said(reason));
    for action in [
        answer(422, "Invalid"),
        answer(500, "InternalError"),
        answer(401, "Unauthorized"),
        Action::Cut { after_bytes: 40 },
        Action::Empty201,
        Action::DropAfter,
        answer(403, "Forbidden"),
    ] {
        world.proxy.push(Rule::new(action).on("create", "jobs").once());
    }
    world.proxy.push(Rule::new(answer(500, "InternalError")).on("list", "pods").once());
    world.proxy.push(Rule::new(answer(403, "Forbidden")).on("create", "serviceaccounts").once());
    world.proxy.push(Rule::new(Action::Expire).on("watch", "jobs").once());
}

pub async fn searched(case: Case) -> Result<()> {
    finds_what_it_looks_for()?;
    let endpoint = Endpoint::free()?;
    let http = json!({ "listen": endpoint.address });
    let world = World::new(&case, Plan { window: 2, http, ..Plan::default() }).await?;
    let jwt = world.token.rsplit('.').next().context("a token has parts")?.to_owned();
    let marks = [
        Mark::new("the signature", HEX),
        Mark::new("the other signature", BASE),
        Mark::new("the password", PASSWORD),
        Mark::new("the token", &jwt[..jwt.len().min(24)]),
    ];
    let search = |place: &str, text: &str| {
        marks.iter().try_for_each(|mark| mark.must_not_be_in(place, text))
    };

    let urls = urls();
    faults(&world, urls.first().context("a URL")?);
    world.google.publish(bad()).await?;
    let mut katabatch = world.start("run", &["--log", &loudest(), "run"])?;
    world.publish("fuzz", JOB_TYPE, &urls).await?;
    world.until_jobs(GOOD, SOON * 2).await?;
    eventually("the bad ones are rejected", SOON, || async {
        let records = world.google.peek(QUARANTINE).await?.len();
        Ok(Seen::when(records >= 8, || format!("{records} records")))
    })
    .await?;
    world.set_pending(0.0).await?;
    world.proxy.cut_watches();

    for path in ["/metrics", "/v1/status", "/healthz/create", "/readyz", "/livez"] {
        let answer = endpoint.get(path).await?;
        search(path, &format!("{:?}\n{}", answer.headers, answer.text))?;
    }
    for (name, output) in commands(&world).await? {
        search(&format!("the output of {name}"), &output)?;
    }
    for record in world.google.peek(QUARANTINE).await? {
        let message = record.message.context("a message")?;
        let ours: BTreeMap<_, _> =
            message.attributes.iter().filter(|(key, _)| key.starts_with("katabatch-")).collect();
        let text = format!("{ours:?} {}", String::from_utf8_lossy(&message.data));
        search("a quarantine record", &text)?;
    }
    katabatch.must_run()?;
    // Without room nothing would be asked of the queue.
    world.set_pending(1_000.0).await?;
    world.google.pubsub.kill()?;
    eventually("the outage is said", SOON, || async {
        Ok(Seen::when(katabatch.messages().contains("no messages can be taken"), || {
            "nothing".into()
        }))
    })
    .await?;
    katabatch.terminate()?;
    let ended = katabatch.end(SOON).await?;
    search("the logs", &format!("{}\n{}", ended.stdout, ended.stderr))?;
    for said in ["TRACE", "Invalid value", "inputs/0?REDACTED"] {
        ensure!(ended.stderr.contains(said), "{said:?} is not in the logs: nothing was provoked");
    }
    for (kind, text) in stored(&world).await? {
        search(kind, &text)?;
    }
    Ok(())
}

/// Everything that a person would ask, with all that it said.
async fn commands(world: &World) -> Result<Vec<(String, String)>> {
    let dir = world.dir.path();
    fs::write(dir.join("url"), signed("inputs/by-hand", HEX))?;
    let line = json!({"command": "fuzz", "job": JOB_TYPE, "argument": signed("inputs/x", HEX)});
    fs::write(
        dir.join("tasks.jsonl"),
        format!("{line}\n{}", line.to_string().replace("https:", "ftp:")),
    )?;
    let task = ["--command", "fuzz", "--job", JOB_TYPE, "--url", "@url"];
    let with_task = |command: &'static str| [command].into_iter().chain(task).collect::<Vec<_>>();
    let user = format!("https://me:{PASSWORD}@h/?sig={BASE}");
    let mut all: Vec<Vec<&str>> = [
        "check",
        "check -o json",
        "status",
        "status -o json",
        "queue quarantine list",
        "queue quarantine list -o json",
        "queue quarantine list -o yaml",
        "queue quarantine retry --reason bad_url",
        "queue list",
        "flags list",
        "flags list -o json",
        "flags set k8s_jobs_pending_limit 0",
        "render --command fuzz --job nothing --url @url",
    ]
    .map(|command| command.split(' ').collect())
    .into();
    all.push(with_task("render"));
    all.push(vec!["submit", "--url", &user]);
    let loudest = loudest();
    let mut outputs = Vec::new();
    for (n, arguments) in all.iter().enumerate() {
        let arguments: Vec<_> = ["--log", &loudest].into_iter().chain(arguments.clone()).collect();
        let output = world.run(&format!("command-{n}"), &arguments).await?;
        outputs.push((
            arguments.join(" "),
            format!("{output:?}\n{}\n{}", output.stdout, output.stderr),
        ));
    }
    // The measure is good: whoever asks for it sees it.
    let reveal = ["queue", "quarantine", "list", "-n", "0", "--reveal"];
    let revealed = world.run("revealed", &reveal).await?;
    ensure!(revealed.stdout.contains(HEX), "{revealed:?}");
    Ok(outputs)
}

/// All that is in the namespace, but for the values of the variable that is the worker's input.
async fn stored(world: &World) -> Result<Vec<(&'static str, String)>> {
    let namespace = &world.namespace;
    let all = ListParams::default();
    let mut stored = Vec::new();
    let mut inputs = 0;
    let jobs = serde_json::to_value(namespace.api::<Job>().list(&all).await?.items)?;
    let pods = serde_json::to_value(namespace.api::<Pod>().list(&all).await?.items)?;
    for (kind, mut objects) in [("a Job", jobs), ("a pod", pods)] {
        inputs += without_input(&mut objects);
        stored.push((kind, objects.to_string()));
    }
    ensure!(inputs >= GOOD, "{inputs} inputs were found in Jobs and pods");
    let mut add = |kind, value: Value| stored.push((kind, value.to_string()));
    add("an Event", serde_json::to_value(namespace.api::<Event>().list(&all).await?.items)?);
    add("a ConfigMap", serde_json::to_value(namespace.api::<ConfigMap>().list(&all).await?.items)?);
    add("a Lease", serde_json::to_value(namespace.api::<Lease>().list(&all).await?.items)?);
    let accounts = namespace.api::<ServiceAccount>().list(&all).await?.items;
    add("a ServiceAccount", serde_json::to_value(accounts)?);
    Ok(stored)
}

/// Takes out the values of the worker's input; how many there were.
fn without_input(value: &mut Value) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(without_input).sum(),
        Value::Object(members) => {
            let is_input = members.get("name") == Some(&json!("UWORKER_INPUT_DOWNLOAD_URL"));
            let taken = usize::from(is_input && members.remove("value").is_some());
            taken + members.values_mut().map(without_input).sum::<usize>()
        }
        _ => 0,
    }
}
