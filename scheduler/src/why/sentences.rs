//! The words of an answer: for each state what is so, and what would have to change. Pure.

use super::{About, Answer, InCatalog, Sentence, Stop};
use crate::domain::breaker::Cause;
use crate::domain::end::EndKind;
use crate::domain::outcome::{HoldKind, RejectKind};
use crate::ledger::record::{EndRecord, Held, Rejected};

/// How many of the last ends must be alike to be called a habit.
const HABIT: usize = 3;

/// All that there is to say, the most important first: what is wrong with the job type itself, then
/// what stops every other one too, then what goes well.
pub fn of(answer: &Answer) -> Vec<Sentence> {
    let mut all: Vec<Sentence> = of_catalog(answer).into_iter().collect();
    let troubled: Vec<bool> = answer
        .workloads
        .iter()
        .map(|about| {
            let before = all.len();
            // Where nothing waits for the breaker, what opened it is the news.
            let holds = about.record.held.contains_key(HoldKind::BreakerOpen.label());
            let mut breaker = of_breaker(about);
            all.extend(breaker.take_if(|_| holds));
            all.extend(of_held(about));
            all.extend(of_stuck(about));
            all.extend(breaker);
            all.extend(of_rejected(about));
            all.extend(of_habit(about));
            all.len() > before
        })
        .collect();
    all.extend(answer.stopped.iter().map(of_stop));
    let unseen = answer.workloads.is_empty() && answer.catalog == InCatalog::Known;
    if unseen && answer.stopped.is_empty() {
        let text = format!("no task of {} has been seen", answer.job_type);
        let change = "tasks come from the queues: see whether any is published for it, and in which \
                      subscription (`katabatch queue list`)";
        all.push(say("", "unseen", text, Some(change)));
    }
    for (about, troubled) in answer.workloads.iter().zip(troubled) {
        all.extend(of_jobs(about, !troubled && answer.stopped.is_empty()));
    }
    all
}

/// Nothing is taken from the queues meanwhile, so that a job type's tasks may wait there unseen.
fn of_stop(stop: &Stop) -> Sentence {
    let kind = HoldKind::ALL.iter().find(|kind| kind.label() == stop.state);
    let (why, change) = kind.map_or(("no backend takes tasks", None), |kind| hold(*kind));
    let text = format!("nothing new is created now: {why}{}", ending(&stop.detail));
    say("", &stop.state, text, change)
}

fn say(command: &str, state: &str, text: String, change: Option<&str>) -> Sentence {
    let (command, state) = (command.to_owned(), state.to_owned());
    Sentence { command, state, text, change: change.map(str::to_owned) }
}

fn of_catalog(answer: &Answer) -> Option<Sentence> {
    match &answer.catalog {
        InCatalog::Known => None,
        InCatalog::Unknown => Some(say(
            "",
            "unknown_job_type",
            format!("the catalog has no job type {}", answer.job_type),
            Some(
                "look at the spelling, or add its Job entity; its tasks are held, and rejected once \
                 the catalog has said so for 30 minutes",
            ),
        )),
        InCatalog::Unread(why) => Some(say(
            "",
            "catalog_unread",
            format!("whether there is such a job type is not known: {why}"),
            None,
        )),
    }
}

fn of_held(about: &About) -> Vec<Sentence> {
    // What an open breaker holds is said with it.
    let said = |label: &str| about.breaker.is_some() && label == HoldKind::BreakerOpen.label();
    let held = about.record.held.iter().filter(|(label, _)| !said(label));
    let mut held: Vec<(&String, &Held)> = held.collect();
    held.sort_by_key(|(_, held)| std::cmp::Reverse(held.tasks));
    let sentence = |(label, held): (&String, &Held)| {
        let kind = HoldKind::ALL.iter().find(|kind| kind.label() == *label);
        let (why, change) = kind.map_or(("they wait", None), |kind| hold(*kind));
        let since = held.since.map(|at| format!(", the first since {at:.0}")).unwrap_or_default();
        let detail = ending(&held.detail);
        let tasks = counted(held.tasks, "task is", "tasks are");
        say(&about.command, label, format!("{tasks} held{since}: {why}{detail}"), change)
    };
    held.into_iter().map(sentence).collect()
}

fn of_breaker(about: &About) -> Option<Sentence> {
    let open = about.breaker.as_ref()?;
    let held = about.record.held.get(HoldKind::BreakerOpen.label()).map_or(0, |held| held.tasks);
    let tasks = counted(held, "task is", "tasks are");
    let change = match open.cause {
        Cause::ImagePull => {
            "push the image, or mend docker_image in batch.yaml or the account's right to pull; \
             one task is tried now and then, and all go on when one has started"
        }
        Cause::BadConfiguration => {
            "mend what the message names; one task is tried now and then, and all go on when one has \
             started"
        }
        Cause::PendingTooLong => {
            "add nodes that it fits on, or change the profile (resources, node_selector, tolerations); \
             all go on when one has started"
        }
        Cause::IdentityDenied => {
            "let the account be used (roles/iam.workloadIdentityUser), and see to its annotation; all go \
             on when one that is tried succeeds"
        }
        Cause::QuickFailures => {
            "look at the log's end; all go on when one that is tried succeeds or runs for 2 minutes"
        }
        Cause::HeldByRule => {
            "see to the cause, or change the rule (retries); all go on when one that is tried succeeds \
             or runs for 2 minutes"
        }
    };
    let failed = match open.times {
        0 | 1 => String::new(),
        times => format!(", and has opened {times} times in a row"),
    };
    let text = format!("{tasks} held: {open}{failed}");
    Some(say(&about.command, HoldKind::BreakerOpen.label(), text, Some(change)))
}

/// What a reason means, and what would have to change.
fn hold(kind: HoldKind) -> (&'static str, Option<&'static str>) {
    match kind {
        HoldKind::PendingLimit => (
            "the pending limit is reached",
            Some(
                "they go on as Jobs that wait get their machines; look at what these wait for, or \
                 raise the limit (flag k8s_jobs_pending_limit)",
            ),
        ),
        HoldKind::LiveLimit => (
            "as many Jobs are unfinished as may be",
            Some("they go on as Jobs end; or raise limits.live of the backend"),
        ),
        HoldKind::RoomUnknown => (
            "how much room there is, is not known, so nothing is created",
            Some("they go on when the cluster's Jobs and pods can be listed"),
        ),
        HoldKind::NotLeader => ("another process of this scheduler leads", None),
        HoldKind::Throttled => ("the backend asked for a pause", None),
        HoldKind::BackendFailed | HoldKind::WebhookFailed => {
            ("the backend fails", Some("they are tried again; see to the cluster"))
        }
        HoldKind::BeingDeleted => ("their Jobs of before are still being deleted", None),
        HoldKind::NameTaken => (
            "their Jobs' names are taken by Jobs that are not ours",
            Some("delete those Jobs, after a look at who made them"),
        ),
        HoldKind::Quota => (
            "a quota of the namespace is used up",
            Some("raise the ResourceQuota, or wait for Jobs to end"),
        ),
        HoldKind::Forbidden | HoldKind::Unauthenticated => (
            "the scheduler may not do what it must",
            Some("give it the rights of deploy/rbac.yaml (`katabatch check` names what lacks)"),
        ),
        HoldKind::NamespaceGone => {
            ("the namespace is going or gone", Some("make the namespace again"))
        }
        HoldKind::JobRefused => (
            "the API server refuses their Job",
            Some("mend the profile or template, or the admission policy that denies it"),
        ),
        HoldKind::UnknownJobType => (
            "the catalog has no such job type",
            Some("add its Job entity; they are rejected once that was so for 30 minutes"),
        ),
        HoldKind::AmbiguousJobType => (
            "two differing entities have this job type's name",
            Some("delete one of the Job entities"),
        ),
        HoldKind::BadJobType => {
            ("the job type's entities can't be read", Some("mend the entity's environment"))
        }
        HoldKind::BadMapping => {
            ("batch.yaml has no usable mapping for it", Some("mend the mapping in batch.yaml"))
        }
        HoldKind::BadTemplate => {
            ("the template makes no Job of it", Some("mend the template (`katabatch render`)"))
        }
        HoldKind::PolicyRefused => (
            "the isolation policy refuses it",
            Some("change the profile; `katabatch render` shows what is refused"),
        ),
        HoldKind::AccountRefused => (
            "its service account is refused",
            Some("mend the account's annotation, or the mapping's service_account_email"),
        ),
        HoldKind::FlagsUnread => {
            ("the feature flags can't be read", Some("see to the flags' source"))
        }
        HoldKind::CatalogUnread => ("the catalog can't be read", Some("see to the catalog")),
        HoldKind::WeightThrottle => (
            "the weights add up to less than 1, which leaves a share of the time unused",
            Some("they get their turn; or raise a backend's weight flag"),
        ),
        HoldKind::NoBackend => (
            "no backend has a weight above zero",
            Some(
                "set a backend's weight flag above 0 (`katabatch flags set k8s_jobs_frequency 1`)",
            ),
        ),
        HoldKind::Swarming => ("the job type belongs to Swarming", None),
        HoldKind::NotYetValid => ("their input URLs are not valid yet", None),
        HoldKind::Panicked => ("handling them went wrong inside of the scheduler", None),
        HoldKind::FuseBlown => (
            "too many messages were rejected at once, so that nothing more is",
            Some("look at the quarantine, mend the cause, restart"),
        ),
        HoldKind::Paused => (
            "somebody has paused it",
            Some("`katabatch resume`, when the reason is gone (`katabatch controls list`)"),
        ),
        HoldKind::BreakerOpen => (
            "its breaker was open: what was made of it did not start, or failed at once",
            Some("mend what the message names; they go on when one that is tried does well"),
        ),
        HoldKind::WorkloadShare => (
            "its Jobs that wait to start are as many as its share of the pending limit",
            Some(
                "they go on as these start, or others need no room; or raise limits.workload_share",
            ),
        ),
        HoldKind::Bound => (
            "a route binds it to backends of which none has a weight",
            Some("set the weight flag of one of these backends above 0, or change the route"),
        ),
        HoldKind::ElsewhereUnknown => (
            "they may have been created on another backend, which can't be asked now",
            Some(
                "they go on when that backend answers; if it is gone for good, `katabatch backend \
                 declare-lost`",
            ),
        ),
        HoldKind::RegionsFull => (
            "every region that it may be in is full",
            Some(
                "they go on as jobs get machines; or give the mapping a subconfig in another region",
            ),
        ),
        HoldKind::StorageUnavailable => (
            "Cloud Storage or IAM can't be asked",
            Some("they are tried again; see to the network and Google's status"),
        ),
        HoldKind::StorageRefused => (
            "Cloud Storage refuses what is configured",
            Some("mend the bucket's name or the account's rights (`katabatch check` looks)"),
        ),
    }
}

fn of_stuck(about: &About) -> Vec<Sentence> {
    let sentence = |(kind, stuck): (&EndKind, &crate::domain::workload_now::Stuck)| {
        let jobs = counted(stuck.jobs, "Job", "Jobs");
        let (why, change) = match kind {
            EndKind::ImagePull => (
                "can't pull the image",
                "push the image, or mend docker_image in batch.yaml or the account's right to pull",
            ),
            EndKind::NeverStarted => (
                "get no machine",
                "add nodes, or let the profile ask for less (resources, node_selector, tolerations)",
            ),
            EndKind::BadConfiguration => {
                ("can't be started as they are", "mend what the message names")
            }
            _ => ("don't start", "mend what the message names"),
        };
        let text = format!("{jobs} {why}{}", ending(&stuck.detail));
        say(&about.command, kind.label(), text, Some(change))
    };
    about.record.now.stuck.iter().map(sentence).collect()
}

fn of_rejected(about: &About) -> Vec<Sentence> {
    let sentence = |(label, rejected): (&String, &Rejected)| {
        let change = match RejectKind::ALL.iter().find(|kind| kind.label() == *label) {
            Some(RejectKind::DeadUrl) => {
                "their URLs were dead, or would have been before the task's end: tasks must start \
                 sooner after they are published, or run shorter (expected_run)"
            }
            Some(RejectKind::UnknownJobType) => {
                "add the Job entity, then `katabatch queue quarantine retry`"
            }
            Some(RejectKind::BadUrl | RejectKind::BadMessage) => "see to who publishes them",
            _ => "look at them: `katabatch queue quarantine list`",
        };
        let last = rejected.last.map(|at| format!(", the last at {at:.0}")).unwrap_or_default();
        let messages = counted(rejected.count as usize, "message was", "messages were");
        let text = format!("{messages} rejected as {label}{last}{}", ending(&rejected.detail));
        say(&about.command, label, text, Some(change))
    };
    about.record.rejected.iter().map(sentence).collect()
}

/// The last ends, when they all went wrong in one way.
fn of_habit(about: &About) -> Option<Sentence> {
    let last = about.ends.last().filter(|end| end.kind != EndKind::Succeeded)?;
    let alike = about.ends.iter().rev().take_while(|end| end.kind == last.kind).count();
    let change = match last.kind {
        EndKind::OutOfMemory => Some("give the profile more memory"),
        EndKind::ImagePull => Some("push the image, or mend docker_image in batch.yaml"),
        EndKind::IdentityDenied => Some(
            "let the account be used (roles/iam.workloadIdentityUser), and see to its annotation",
        ),
        EndKind::NeverStarted => Some("add nodes, or let the profile ask for less"),
        EndKind::BadConfiguration => Some("mend what the message names"),
        EndKind::Deadline => {
            Some("give the profile a longer deadline, or see why it takes so long")
        }
        EndKind::Evicted => Some("give the profile more of what was used up"),
        EndKind::TaskFailure | EndKind::HookFailure => Some("look at the log's end"),
        _ => None,
    };
    (alike >= HABIT).then(|| {
        let text =
            format!("the last {alike} Jobs all ended as {}{}", last.kind, ending(&last.detail));
        say(&about.command, last.kind.label(), text, change)
    })
}

fn of_jobs(about: &About, fine: bool) -> Vec<Sentence> {
    let (now, record) = (&about.record.now, &about.record);
    let mut all = Vec::new();
    if now.running > 0 {
        let text = format!("{} now", counted(now.running, "Job runs", "Jobs run"));
        all.push(say(&about.command, "running", text, None));
    }
    let stuck: usize = now.stuck.values().map(|stuck| stuck.jobs).sum();
    if now.pending > stuck {
        let waiting = counted(now.pending - stuck, "Job waits", "Jobs wait");
        all.push(say(&about.command, "waiting", format!("{waiting} to start"), None));
    }
    let last = about.ends.last().map(last_end);
    if fine {
        let last = last.unwrap_or_else(|| "none has ended yet".to_owned());
        let scheduled = counted(record.scheduled as usize, "task has", "tasks have");
        let text = format!("all is well: {scheduled} got a Job; {last}");
        all.insert(0, say(&about.command, "well", text, None));
    } else if let Some(last) = last {
        all.push(say(&about.command, "last_end", last, None));
    }
    all
}

fn last_end(end: &EndRecord) -> String {
    let at = end.ended_at;
    format!("the last one ended at {at:.0}: {}{}", end.kind, ending(&end.detail))
}

fn ending(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

fn counted(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

#[cfg(test)]
mod tests;
