//! The messages of a demo: mostly good ones, and a dozen that show what becomes of bad ones.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rand::Rng;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use url::Url;

use super::entities::{ANDROID, BAD_DISK};
use super::inputs::{self, FOLDER};
use super::toy::Kind;
use super::{Expectation, JobType, Place, Plan};
use crate::domain::outcome::{HoldKind, RejectKind};

/// How many messages are bad or come to nothing.
pub(super) const BAD: usize = 12;

/// One in so many inputs crashes the toy parser.
const CRASHES: usize = 25;

/// How commands are spread: fuzzing is most of a farm's work.
const COMMANDS: [&str; 8] =
    ["fuzz", "fuzz", "fuzz", "fuzz", "fuzz", "progression", "corpus_pruning", "minimize"];

/// One message: its attributes.
pub(super) type Message = BTreeMap<&'static str, String>;

/// All that was made.
pub(super) struct Made {
    pub messages: Vec<Message>,
    /// Files by name.
    pub inputs: BTreeMap<String, Vec<u8>>,
    /// The job type whose one task would never end.
    pub slow_job_type: Option<String>,
    pub expected: Expectation,
}

/// A message as one JSON line.
pub(super) fn line(message: &Message) -> Vec<u8> {
    // A map of texts can't fail to be written.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Makes `plan.tasks` messages, in a mixed order.
pub(super) fn make(dir: &Path, plan: &Plan, catalog: &[JobType], random: &mut ChaCha8Rng) -> Made {
    let mut maker = Maker {
        dir,
        plan,
        random,
        made: Made {
            messages: Vec::new(),
            inputs: BTreeMap::new(),
            slow_job_type: None,
            expected: Expectation::default(),
        },
    };
    maker.good(catalog, plan.tasks.saturating_sub(BAD));
    maker.bad(catalog);
    let Maker { mut made, random, .. } = maker;
    made.messages.shuffle(random);
    made
}

struct Maker<'a> {
    dir: &'a Path,
    plan: &'a Plan,
    random: &'a mut ChaCha8Rng,
    made: Made,
}

impl Maker<'_> {
    fn good(&mut self, catalog: &[JobType], count: usize) {
        let Some(slow) = self.any(catalog) else { return };
        let quick: Vec<JobType> = catalog.iter().filter(|job| **job != slow).copied().collect();
        let local = matches!(self.plan.place, Place::Local { .. });
        for n in 0..count {
            let kind = match n {
                0 => Kind::Endless,
                1 => Kind::Lavish,
                // The one that has a second message: its input is no file.
                _ if n + 1 == count => Kind::Plain,
                _ if n % CRASHES == 2 => Kind::Buggy,
                _ => Kind::Plain,
            };
            let job = if kind == Kind::Endless { slow } else { self.any(&quick).unwrap_or(slow) };
            let command = self.any(&COMMANDS).unwrap_or("fuzz");
            let argument = self.input(n, kind);
            let mut message = self.message(command, job.name, argument);
            if let Some(version) = job.base_os_version {
                message.insert("base_os_version", version.to_owned());
            }
            self.made.messages.push(message);
            self.made.expected.created += 1;
            let ends = &mut self.made.expected.ends;
            match kind {
                _ if !local => {}
                Kind::Endless => ends.deadline_exceeded += 1,
                Kind::Buggy => ends.crashed += 1,
                Kind::Plain | Kind::Lavish => ends.succeeded += 1,
            }
        }
        if local {
            self.made.slow_job_type = Some(slow.name.to_owned());
        }
    }

    /// [`BAD`] messages.
    fn bad(&mut self, catalog: &[JobType]) {
        let now = self.plan.now;
        let dead = now.checked_sub(SignedDuration::from_hours(48)).unwrap_or(Timestamp::MIN);
        for n in 0..2 {
            let eta = if n == 0 { "soon" } else { "nan" };
            self.one(catalog, Fate::Rejected(RejectKind::BadMessage), &[("eta", eta)]);
            let url = self.signed(&format!("dead-{n}"), dead);
            self.one(catalog, Fate::Rejected(RejectKind::DeadUrl), &[("argument", &url)]);
            let job = format!("libfuzzer_asan_demo-gone-{n}");
            self.one(catalog, Fate::Held(HoldKind::UnknownJobType), &[("job", &job)]);
        }
        let bad_url = Fate::Rejected(RejectKind::BadUrl);
        self.one(catalog, bad_url, &[("argument", "demo-input without a scheme")]);
        let notification = Fate::Rejected(RejectKind::Notification);
        self.one(catalog, notification, &[("eventType", "OBJECT_FINALIZE")]);
        self.one(catalog, Fate::Held(HoldKind::BadJobType), &[("job", BAD_DISK)]);
        self.one(catalog, Fate::Held(HoldKind::BadMapping), &[("job", ANDROID)]);
        self.one(catalog, Fate::AnotherVersion, &[("base_os_version", "ubuntu-20-04")]);
        self.duplicate();
    }

    /// A message that would be good but for these attributes.
    fn one(&mut self, catalog: &[JobType], fate: Fate, attributes: &[(&'static str, &str)]) {
        let job = self.any(catalog).map_or("", |job| job.name);
        let name = format!("bad-{:02}", self.made.messages.len());
        let argument = self.signed(&name, self.plan.now);
        let mut message = self.message("fuzz", job, argument);
        for (name, value) in attributes {
            message.insert(name, (*value).to_owned());
        }
        self.made.messages.push(message);
        let expected = &mut self.made.expected;
        match fate {
            Fate::Rejected(kind) => *expected.rejected.entry(kind).or_default() += 1,
            Fate::Held(kind) => *expected.held.entry(kind).or_default() += 1,
            Fate::AnotherVersion => expected.another_version += 1,
        }
    }

    /// A second message of the last good task, whose input is signed anew.
    fn duplicate(&mut self) {
        let last = self.plan.tasks.saturating_sub(BAD + 1);
        let again = self.signed(&input_name(last), self.plan.now);
        let url = self.signed(&input_name(last), self.plan.now);
        let Some(first) = self.made.messages.get_mut(last) else { return };
        // Only the name of a Cloud Storage object tells that two messages are one task.
        first.insert("argument", url);
        let mut second = first.clone();
        second.insert("argument", again);
        self.made.messages.push(second);
        self.made.expected.already_there += 1;
    }

    fn message(&mut self, command: &str, job: &str, argument: String) -> Message {
        let eta = self.plan.now.as_second();
        let fraction = self.random.random_range(0..1000);
        BTreeMap::from([
            ("command", command.to_owned()),
            ("job", job.to_owned()),
            ("argument", argument),
            ("eta", format!("{eta}.{fraction:03}")),
        ])
    }

    /// The URL of a good task's input; makes its file where that is what it names.
    fn input(&mut self, n: usize, kind: Kind) -> String {
        let name = input_name(n);
        if let Place::Local { .. } = self.plan.place
            && let Ok(url) = Url::from_file_path(self.dir.join(FOLDER).join(&name))
        {
            let input = inputs::make(kind, self.random);
            self.made.inputs.insert(name, input);
            return url.into();
        }
        self.signed(&name, self.plan.now)
    }

    /// A URL of the form of a signed one. Nothing signed it, and nothing takes it.
    fn signed(&mut self, object: &str, at: Timestamp) -> String {
        let signature: [u8; 32] = self.random.random();
        let at = at.to_zoned(jiff::tz::TimeZone::UTC);
        format!(
            "https://storage.googleapis.com/uworker-input-demo/{object}?X-Goog-Algorithm=GOOG4-RSA-SHA256\
             &X-Goog-Credential=demo%40katabatch-demo.iam.gserviceaccount.com%2F{day}%2Fauto%2Fstorage%2Fgoog4_request\
             &X-Goog-Date={date}&X-Goog-Expires=86400&X-Goog-SignedHeaders=host&X-Goog-Signature={signature}",
            day = at.strftime("%Y%m%d"),
            date = at.strftime("%Y%m%dT%H%M%SZ"),
            signature = hex::encode(signature),
        )
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.random.random_range(0..of.len().max(1))).copied()
    }
}

enum Fate {
    Rejected(RejectKind),
    Held(HoldKind),
    AnotherVersion,
}

fn input_name(n: usize) -> String {
    format!("input-{n:05}")
}
