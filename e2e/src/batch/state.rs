//! The jobs of a Batch on this machine, and what each request does with them.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Fault;
use super::answers::{Answer, Asked};

/// The most jobs or tasks of a page, so that lists have several.
const PAGE: usize = 50;

/// A job.
#[derive(Debug, Clone)]
pub struct Job {
    /// `projects/…/locations/…`.
    pub parent: String,
    /// The job, as Batch would tell it.
    pub body: Value,
    /// The request that made it.
    pub request: String,
    /// How often it was made, which must be once.
    number: usize,
}

/// A request that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// What was answered; none: the connection was closed.
    pub status: Option<u16>,
}

/// All that a Batch knows.
#[derive(Debug, Default)]
pub struct State {
    /// The regions that there are.
    pub regions: BTreeSet<String>,
    /// The jobs, by parent and id.
    pub jobs: BTreeMap<(String, String), Job>,
    /// Every so many creates meet a fault; of several the first that fits.
    pub faults: Vec<(usize, Fault)>,
    /// `countByState` is not to be had: 404, as where it is not enabled.
    pub uncounted: bool,
    /// The token that requests must carry, if any must.
    pub token: Option<String>,
    /// What befell: all requests in order.
    pub seen: Vec<Seen>,
    /// Request ids that came with more than one body.
    pub misused: Vec<String>,
    requests: BTreeMap<String, (Value, Option<(String, String)>)>,
    creates: usize,
    made: usize,
}

impl State {
    pub(super) fn with_regions(regions: &[&str]) -> Self {
        let regions = regions.iter().map(|region| (*region).to_owned()).collect();
        Self { regions, ..Self::default() }
    }

    /// How many jobs have each input.
    pub fn inputs(&self) -> BTreeMap<String, usize> {
        let mut inputs = BTreeMap::new();
        for job in self.jobs.values() {
            for environment in tasks(&job.body) {
                let input = environment["variables"]["UWORKER_INPUT_DOWNLOAD_URL"].as_str();
                *inputs.entry(input.unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
        inputs
    }

    /// How many tasks each job has.
    pub fn sizes(&self) -> Vec<usize> {
        self.jobs.values().map(|job| tasks(&job.body).len()).collect()
    }

    /// Sets the state of every job.
    pub fn set_all(&mut self, state: &str) {
        for job in self.jobs.values_mut() {
            job.body["status"]["state"] = json!(state);
        }
    }

    /// How many requests had this method and were answered so.
    pub fn count(&self, method: &str, status: Option<u16>) -> usize {
        self.seen.iter().filter(|seen| seen.method == method && seen.status == status).count()
    }

    pub(super) fn answer(&mut self, asked: &Asked, body: Value) -> Answer {
        let expected = self.token.as_ref().map(|token| format!("Bearer {token}"));
        if expected.is_some() && asked.authorization != expected {
            let why = "Request had invalid authentication credentials.";
            return Answer::error(401, "UNAUTHENTICATED", why);
        }
        let parts: Vec<&str> = asked.parts.iter().map(String::as_str).collect();
        let (api, parent, rest) = match parts.as_slice() {
            [api, "projects", project, "locations", region, rest @ ..] => {
                if !self.regions.contains(*region) {
                    return Answer::not_found(&format!("projects/{project}/locations/{region}"));
                }
                (*api, format!("projects/{project}/locations/{region}"), rest)
            }
            _ => return Answer::not_found(&asked.path()),
        };
        match (api, &asked.method, rest) {
            ("v1", &Method::POST, ["jobs"]) => self.create(&parent, asked, body),
            ("v1", &Method::GET, ["jobs"]) => self.list(&parent, asked),
            ("v1", &Method::GET, ["jobs", id]) => self.get(&parent, id),
            ("v1", &Method::DELETE, ["jobs", id]) => self.delete(&parent, id),
            ("v1", &Method::GET, ["jobs", id, "taskGroups", "group0", "tasks"]) => {
                self.tasks(&parent, id, asked)
            }
            ("v1alpha", &Method::GET, ["jobs:countByState"]) => self.count_by_state(&parent, asked),
            _ => Answer::not_found(&asked.path()),
        }
    }

    fn create(&mut self, parent: &str, asked: &Asked, body: Value) -> Answer {
        self.creates += 1;
        let creates = self.creates;
        let met = self.faults.iter().find(|(every, _)| creates.is_multiple_of(*every));
        let fault = met.map(|(_, fault)| *fault);
        match fault {
            Some(Fault::Quota(seconds)) => return Answer::quota(seconds),
            Some(Fault::Forbidden) => {
                let why = "Permission 'batch.jobs.create' denied on resource";
                return Answer::error(403, "PERMISSION_DENIED", why);
            }
            Some(Fault::Failed) => {
                return Answer::error(503, "UNAVAILABLE", "The service is currently unavailable.");
            }
            Some(Fault::LostRequest) => return Answer::Closed,
            _ => {}
        }
        let answer = self.make(parent, asked, body);
        match (fault, answer) {
            (Some(Fault::LostAnswer), _) => Answer::Closed,
            (Some(Fault::FailedAfter), _) => Answer::error(500, "INTERNAL", "Internal error."),
            (Some(Fault::EmptyAnswer), _) => Answer::good(json!({})),
            (Some(Fault::Slow(after)), Answer::Said { status, retry_after, body, .. }) => {
                Answer::Said { status, retry_after, body, after }
            }
            (_, answer) => answer,
        }
    }

    fn make(&mut self, parent: &str, asked: &Asked, body: Value) -> Answer {
        if let Err(why) = judge(&body, asked) {
            return Answer::error(400, "INVALID_ARGUMENT", &why);
        }
        let (id, request) = (asked.query("jobId").to_owned(), asked.query("requestId").to_owned());
        let key = (parent.to_owned(), id.clone());
        if let Some((before, made)) = self.requests.get(&request) {
            if *before != body {
                self.misused.push(request.clone());
            }
            // The same request once more: its work is done.
            if let Some(job) = made.as_ref().and_then(|key| self.jobs.get(key)) {
                return Answer::good(job.body.clone());
            }
        }
        if self.jobs.contains_key(&key) {
            self.requests.insert(request, (body, None));
            let name = format!("Resource '{parent}/jobs/{id}' already exists");
            return Answer::error(409, "ALREADY_EXISTS", &name);
        }
        self.requests.insert(request.clone(), (body.clone(), Some(key.clone())));
        let mut job = body;
        job["name"] = json!(format!("{parent}/jobs/{id}"));
        job["uid"] = json!(format!("{id}-uid"));
        job["createTime"] = json!(Timestamp::now());
        job["status"] = json!({"state": "QUEUED"});
        self.made += 1;
        let made = Job { parent: parent.to_owned(), body: job.clone(), request, number: self.made };
        self.jobs.insert(key, made);
        Answer::good(job)
    }

    fn get(&self, parent: &str, id: &str) -> Answer {
        match self.jobs.get(&(parent.to_owned(), id.to_owned())) {
            Some(job) => Answer::good(job.body.clone()),
            None => Answer::not_found(&format!("{parent}/jobs/{id}")),
        }
    }

    fn delete(&mut self, parent: &str, id: &str) -> Answer {
        match self.jobs.remove(&(parent.to_owned(), id.to_owned())) {
            Some(_) => {
                Answer::good(json!({"name": format!("{parent}/operations/1"), "done": true}))
            }
            None => Answer::not_found(&format!("{parent}/jobs/{id}")),
        }
    }

    fn list(&self, parent: &str, asked: &Asked) -> Answer {
        let mut jobs: Vec<&Job> = self.jobs.values().filter(|job| job.parent == parent).collect();
        jobs.sort_by_key(|job| job.number);
        if asked.query("orderBy") == "create_time desc" {
            jobs.reverse();
        }
        let fields = asked.query("fields");
        let told = |job: &&Job| {
            let mut body = job.body.clone();
            if !fields.is_empty() && !fields.contains("taskEnvironments") {
                body["taskGroups"][0]["taskEnvironments"] = Value::Null;
                if let Some(group) = body["taskGroups"][0].as_object_mut() {
                    group.remove("taskEnvironments");
                }
            }
            body
        };
        page(asked, "jobs", jobs.iter().map(told).collect())
    }

    fn tasks(&self, parent: &str, id: &str, asked: &Asked) -> Answer {
        let Some(job) = self.jobs.get(&(parent.to_owned(), id.to_owned())) else {
            return Answer::not_found(&format!("{parent}/jobs/{id}"));
        };
        let told = job.body["tasks"].as_array().cloned().unwrap_or_default();
        page(asked, "tasks", told)
    }

    fn count_by_state(&self, parent: &str, asked: &Asked) -> Answer {
        if self.uncounted {
            return Answer::not_found("jobs:countByState");
        }
        let state = asked.query("states");
        let here = self.jobs.values().filter(|job| job.parent == parent);
        let count = here.filter(|job| job.body["status"]["state"] == state).count();
        Answer::good(json!({"jobCounts": {state: count.to_string()}}))
    }
}

fn tasks(job: &Value) -> &[Value] {
    let environments = job["taskGroups"][0]["taskEnvironments"].as_array();
    environments.map_or(&[], Vec::as_slice)
}

/// What Batch itself refuses.
fn judge(job: &Value, asked: &Asked) -> Result<(), String> {
    let group = &job["taskGroups"][0];
    if group["taskCount"] != json!(tasks(job).len().to_string()) {
        return Err("task_count must fit task_environments".into());
    }
    let id = asked.query("jobId");
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if id.len() > 63 || !id.starts_with(|c: char| c.is_ascii_lowercase()) || !id.bytes().all(valid)
    {
        return Err(format!("job_id `{id}` is invalid"));
    }
    if asked.query("requestId").len() != 36 {
        return Err("request_id must be a UUID".into());
    }
    Ok(())
}

fn page(asked: &Asked, key: &str, all: Vec<Value>) -> Answer {
    let size = asked.query("pageSize").parse().unwrap_or(PAGE).min(PAGE);
    let from: usize = asked.query("pageToken").parse().unwrap_or(0);
    let more = all.len() > from + size;
    let some: Vec<Value> = all.into_iter().skip(from).take(size).collect();
    let mut body = json!({ key: some });
    if more {
        body["nextPageToken"] = json!((from + size).to_string());
    }
    Answer::good(body)
}
