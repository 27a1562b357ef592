//! `katabatch status`: asks a running scheduler what it is doing, over its HTTP endpoint.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;

use super::output::{Exit, Format, Row, after_printing, print_rows, yaml};
use crate::config::Config;
use crate::status::{Backend, Breaker, Lost, Role, Status, Told};

/// How long the scheduler may take to answer.
const WITHIN: Duration = Duration::from_secs(10);

/// What `katabatch status` takes.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The scheduler's address, such as http://127.0.0.1:8090. Default: the configuration's
    /// http.listen.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// One line of the table.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line {
    what: &'static str,
    name: String,
    state: String,
    detail: String,
}

impl Row for Line {
    const HEADINGS: &'static [&'static str] = &["WHAT", "NAME", "STATE", "DETAIL"];

    fn cells(&self) -> Vec<String> {
        vec![self.what.to_owned(), self.name.clone(), self.state.clone(), self.detail.clone()]
    }
}

/// Runs the command: 0 when the scheduler can create or stands by, 3 when it leads and can't.
pub async fn run(config: &Path, args: StatusArgs) -> anyhow::Result<Exit> {
    let server = match args.server {
        Some(server) => server,
        None => {
            let http = Config::load(config)?.http.ok_or_else(|| {
                let path = config.display();
                anyhow!("{path} has no http.listen\nhint: write it, or give --server URL")
            })?;
            format!("http://{}", reachable(http.listen))
        }
    };
    let status = ask(&server).await?;
    let exit = match status.role {
        Role::Leader if !status.can_create => Exit::Partly,
        Role::Leader | Role::Standby => Exit::Done,
    };
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = match args.output {
        Format::Table => print_rows(Format::Table, &lines(&status), "state", &mut out, &mut err),
        Format::Json => {
            let text = serde_json::to_string_pretty(&status).context("write the status")?;
            writeln!(out, "{text}")
        }
        Format::Yaml => yaml(&status).and_then(|text| write!(out, "{text}")),
    };
    Ok(after_printing(printed, exit, &mut err))
}

/// Where an endpoint that listens so can be reached from its own machine.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(server: &str) -> anyhow::Result<Status> {
    let url = format!("{}/v1/status", server.trim_end_matches('/'));
    // A scheduler is asked where it is, whatever proxy the environment names.
    let client = reqwest::Client::builder().timeout(WITHIN).no_proxy().build();
    let answer = client.context("make an HTTP client")?.get(&url).send().await;
    let answer = answer.map_err(|error| {
        anyhow!("{:#}\nhint: does `katabatch run` run there?", anyhow::Error::from(error))
    })?;
    if !answer.status().is_success() {
        bail!("{url} answers {}\nhint: is that a katabatch?", answer.status());
    }
    answer.json().await.with_context(|| format!("{url} does not answer with a status"))
}

fn lines(status: &Status) -> Vec<Line> {
    let line = |what, name: &str, state: String, detail: String| {
        let name = name.to_owned();
        Line { what, name, state, detail }
    };
    let role = match status.role {
        Role::Leader => "leader",
        Role::Standby => "standby",
    };
    let can = if status.can_create { "can create" } else { "can't create" };
    let scheduler = &status.scheduler;
    let mut lines =
        vec![line("scheduler", scheduler, format!("{role}, {can}"), status.why_not.join("; "))];
    for queue in &status.queues {
        let age = queue.oldest_unacked_seconds.map(|age| format!("oldest {age:.0} s old"));
        let detail = age.unwrap_or_default();
        lines.push(line("queue", &queue.name, format!("{} in hand", queue.in_hand), detail));
    }
    for backend in &status.backends {
        lines.push(line("backend", &backend.name, state(backend), room(backend)));
    }
    for Told { target, who, why, at, until } in &status.pauses {
        let until = until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
        let detail = format!("by {who} at {at}{until}: {why}");
        lines.push(line("pause", target, "in force".to_owned(), detail));
    }
    for Breaker { command, job_type, cause, detail, since, next_probe, .. } in &status.breakers {
        let next = next_probe
            .as_ref()
            .map_or("one task is being tried".to_owned(), |at| format!("next try {at}"));
        let detail = format!("since {since}, {next}: {detail}");
        lines.push(line("breaker", &format!("{command} {job_type}"), cause.clone(), detail));
    }
    for Lost { told: Told { target, who, why, at, .. }, cleared_at } in &status.lost_backends {
        let state = cleared_at.as_ref().map_or("declared lost", |_| "declared lost, cleared");
        let detail = format!("by {who} at {at}: {why}");
        lines.push(line("lost", target, state.to_owned(), detail));
    }
    if let Some(epoch) = &status.weight_epoch {
        let since = format!("since {}", epoch.since);
        lines.push(line("weights", "epoch", epoch.number.to_string(), since));
    }
    for (reason, held) in &status.held {
        lines.push(line("held", reason, format!("{} tasks", held.tasks), held.detail.clone()));
    }
    let counts = &status.counts;
    let done = [
        ("created", counts.created),
        ("already_there", counts.already_there),
        ("done", counts.done),
        ("acked", counts.acked),
        ("failed", counts.failed),
        ("released", counts.released),
    ];
    let done = done.into_iter().map(|(name, n)| ("since start", name, n));
    let rejected = counts.rejected.iter().map(|(name, n)| ("rejected", name.as_str(), *n));
    for (what, name, n) in done.chain(rejected) {
        lines.push(line(what, name, n.to_string(), String::new()));
    }
    for (kind, ends) in status.ends.iter().filter(|(_, ends)| ends.count > 0) {
        let hours = ends.lost_seconds / 3_600.0;
        let detail = if hours < 0.05 { String::new() } else { format!("{hours:.1} h lost") };
        lines.push(line("ended", kind, ends.count.to_string(), detail));
    }
    lines
}

fn state(backend: &Backend) -> String {
    // The words of the JSON, which are the enum's own.
    let word = serde_json::to_value(backend.state).ok();
    let word = word.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    let (effective, configured) = (backend.effective_share, backend.configured_share);
    let mut text = format!("{word}, share {effective}");
    if (effective - configured).abs() > f64::EPSILON {
        text.push_str(&format!(" (configured {configured})"));
    }
    if let Some(achieved) = backend.achieved_share {
        text.push_str(&format!(", achieved {achieved:.2}"));
    }
    text
}

fn room(backend: &Backend) -> String {
    let mut parts = Vec::new();
    let of = |n: usize, limit: Option<usize>| {
        limit.map_or_else(|| n.to_string(), |limit| format!("{n} of {limit}"))
    };
    if let Some(pending) = backend.pending {
        parts.push(format!("{} pending", of(pending, backend.pending_limit)));
    }
    if let Some(live) = backend.live {
        parts.push(format!("{} live", of(live, backend.live_limit)));
    }
    if backend.waiting > 0 {
        parts.push(format!("{} tasks wait", backend.waiting));
    }
    parts.extend(backend.detail.clone());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{BackendState, Ends, Held, Queue};

    #[test]
    fn the_table_says_what_is_wrong_and_where_the_tasks_are() {
        let mut status =
            Status { scheduler: "farm".into(), role: Role::Leader, ..Status::default() };
        status.why_not = vec!["backend gke: forbidden".into()];
        let queue = Queue { name: "main".into(), in_hand: 4, ..Queue::default() };
        status.queues.push(Queue { oldest_unacked_seconds: Some(61.4), ..queue });
        status.backends.push(Backend {
            name: "gke".into(),
            state: BackendState::Refused,
            detail: Some("forbidden".into()),
            configured_share: 0.7,
            effective_share: 1.0,
            achieved_share: Some(0.666),
            waiting: 2,
            pending: Some(3),
            pending_limit: Some(10),
            live: Some(7),
            ..Backend::default()
        });
        let told = Told { target: "job type a".into(), who: "ann".into(), ..Told::default() };
        status.pauses.push(Told { why: "bad".into(), at: "noon".into(), ..told.clone() });
        status.lost_backends.push(Lost { told, cleared_at: None });
        status.held.insert("forbidden".into(), Held { tasks: 4, detail: "no rights".into() });
        let ends = |count, lost_seconds| Ends { count, lost_seconds };
        status.ends.insert("evicted".into(), ends(2, 5_400.0));
        status.ends.insert("succeeded".into(), ends(7, 0.0));
        status.ends.insert("unknown".into(), ends(0, 0.0));
        let shown: Vec<_> = lines(&status).iter().map(|line| line.cells().join("|")).collect();
        assert_eq!(
            shown.get(..6),
            Some(
                [
                    "scheduler|farm|leader, can't create|backend gke: forbidden",
                    "queue|main|4 in hand|oldest 61 s old",
                    "backend|gke|refused, share 1 (configured 0.7), achieved 0.67|3 of 10 pending, 7 live, 2 tasks wait, forbidden",
                    "pause|job type a|in force|by ann at noon: bad",
                    "lost|job type a|declared lost|by ann at : ",
                    "held|forbidden|4 tasks|no rights",
                ]
                .map(str::to_owned)
                .as_slice()
            )
        );
        assert_eq!(shown[shown.len() - 2..], ["ended|evicted|2|1.5 h lost", "ended|succeeded|7|"]);
    }

    #[test]
    fn an_endpoint_on_every_address_is_asked_on_loopback() {
        for (listen, expect) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.1.2.3:80", "10.1.2.3:80"),
        ] {
            let listen = listen.parse().expect("an address");
            assert_eq!(reachable(listen).to_string(), expect);
        }
    }
}
