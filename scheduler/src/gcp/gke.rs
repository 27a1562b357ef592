//! GKE clusters: one is found by its project and name over all locations, and what is needed to
//! speak to its API server is taken from what GKE says of it.
//!
//! Which cluster is wanted is the caller's to say. GKE is asked by REST: six fields are needed.

mod endpoint;
mod find;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::rest::{Rest, RestError};

pub use endpoint::Reached;

/// Google's own endpoint.
const GOOGLE: &str = "https://container.googleapis.com";
/// So often a listing that may be incomplete, or was not answered, is asked for again.
const TRIES: u32 = 3;
const PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

/// Which cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Its project: an id or a number.
    pub project: Option<String>,
    /// Its name.
    pub name: String,
    /// Its region or zone; `None`: whichever has one of that name.
    pub location: Option<String>,
    /// Where the GKE API is asked; `None`: at Google. For private endpoints and mocks.
    pub endpoint: Option<String>,
}

/// A cluster as GKE tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GkeCluster {
    /// `NAME in LOCATION of project PROJECT`.
    pub shown: String,
    /// How its API server is reached.
    pub reached: Reached,
    /// What is odd but does no harm.
    pub warnings: Vec<String>,
}

/// Why there is no cluster to speak to. Each says what to do in its [`hint`](Self::hint).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GkeError {
    /// No project is named.
    #[error("the project of GKE cluster `{name}` is not known: K8S_PROJECT is not set")]
    NoProject {
        /// The cluster.
        name: String,
    },
    /// There is none of that name.
    #[error("project {project} has no GKE cluster `{name}`{place}: it has {}", names(.there))]
    Absent {
        /// The project.
        project: String,
        /// The name.
        name: String,
        /// ` in LOCATION`, where one was asked for.
        place: String,
        /// The clusters that are there: `NAME in LOCATION`.
        there: Vec<String>,
    },
    /// There are several of that name.
    #[error("project {project} has a GKE cluster `{name}` in each of {}", .locations.join(", "))]
    Ambiguous {
        /// The project.
        project: String,
        /// The name.
        name: String,
        /// Where.
        locations: Vec<String>,
    },
    /// It was not found, and GKE did not look everywhere.
    #[error(
        "GKE cluster `{name}` of project {project} was not found, but the list is incomplete: \
         nothing came from {}", .missing.join(", ")
    )]
    Incomplete {
        /// The project.
        project: String,
        /// The name.
        name: String,
        /// The locations that did not answer.
        missing: Vec<String>,
    },
    /// These credentials may not look.
    #[error("the clusters of project {project} may not be listed: {why}")]
    Denied {
        /// The project.
        project: String,
        /// What Google said.
        why: String,
    },
    /// The API is off in this project.
    #[error("the GKE API is not enabled in project {project}: {why}")]
    Disabled {
        /// The project.
        project: String,
        /// What Google said.
        why: String,
    },
    /// There is no such project.
    #[error("there is no project {project}: {why}")]
    UnknownProject {
        /// The project.
        project: String,
        /// What Google said.
        why: String,
    },
    /// GKE did not answer.
    #[error("GKE can't be asked for the clusters of project {project}: {error}")]
    Unanswered {
        /// The project.
        project: String,
        /// What happened.
        error: RestError,
    },
    /// It is there, but its API server can't be reached by what GKE says of it.
    #[error("GKE cluster {shown} can't be used: {why}")]
    Unusable {
        /// The cluster.
        shown: String,
        /// What is wrong.
        why: String,
    },
}

fn names(there: &[String]) -> String {
    if there.is_empty() { "none".to_owned() } else { there.join(", ") }
}

impl GkeError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoProject { .. } => "set env.K8S_PROJECT in project.yaml (or K8S_PROJECT in the \
                environment), or `gke: {project: …}` of the backend"
                .to_owned(),
            Self::Absent { .. } => "set cluster_name in project.yaml, or `gke: {cluster: …}` of \
                the backend, to one that is there"
                .to_owned(),
            Self::Ambiguous { locations, .. } => {
                let one = locations.first().map(String::as_str).unwrap_or("LOCATION");
                format!("say which one: `gke: {{location: {one}}}` of the backend")
            }
            Self::Incomplete { .. } => "try again in some minutes, or name the place: \
                `gke: {location: …}` of the backend"
                .to_owned(),
            Self::Denied { project, .. } => format!(
                "give the account that katabatch runs as roles/container.developer: gcloud \
                 projects add-iam-policy-binding {project} --role roles/container.developer \
                 --member serviceAccount:EMAIL"
            ),
            Self::Disabled { project, .. } => {
                format!("gcloud services enable container.googleapis.com --project {project}")
            }
            Self::UnknownProject { .. } => "is it the project's id (not its name), and may this \
                account see it?"
                .to_owned(),
            Self::Unanswered { error: RestError::Token(_), .. } => "run `gcloud auth \
                application-default login`, or give this workload a Google service account"
                .to_owned(),
            Self::Unanswered { .. } => {
                "can this machine reach container.googleapis.com?".to_owned()
            }
            Self::Unusable { .. } => {
                "is the cluster up? see `gcloud container clusters describe`, \
                or use a kubeconfig"
                    .to_owned()
            }
        }
    }

    /// Whether asking again later may help, with nothing changed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Incomplete { .. } => true,
            Self::Unanswered { error, .. } => error.is_transient(),
            _ => false,
        }
    }
}

/// Finds a cluster; a few times where that may help.
///
/// # Errors
/// [`GkeError`].
pub async fn find(rest: &Rest, wanted: &Wanted) -> Result<GkeCluster, GkeError> {
    let given = wanted.project.as_deref().map(str::trim).filter(|project| !project.is_empty());
    let project =
        given.ok_or_else(|| GkeError::NoProject { name: wanted.name.clone() })?.to_owned();
    let mut left = TRIES;
    loop {
        left -= 1;
        match list(rest, wanted, &project).await.and_then(|all| find::pick(&all, wanted, &project))
        {
            Err(error) if error.is_transient() && left > 0 => {
                tracing::warn!(%error, "looking for the GKE cluster again");
                tokio::time::sleep(PAUSE).await;
            }
            found => return found,
        }
    }
}

async fn list(rest: &Rest, wanted: &Wanted, project: &str) -> Result<find::Listing, GkeError> {
    let endpoint = wanted.endpoint.as_deref().unwrap_or(GOOGLE).trim_end_matches('/');
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    // Dashes are what ids are made of; encoded they would be the same to Google, but not to people.
    let place = |text: &str| encode(text).replace("%2D", "-");
    let location = wanted.location.as_deref().map_or_else(|| "-".to_owned(), place);
    let url = format!("{endpoint}/v1/projects/{}/locations/{location}/clusters", place(project));
    let answer = rest.call(Method::GET, &url, None).await;
    let answer = answer.map_err(|error| find::refused(error, project))?;
    serde_json::from_value(answer).map_err(|error| GkeError::Unanswered {
        project: project.to_owned(),
        error: RestError::Lost { host: endpoint.to_owned(), why: error.to_string() },
    })
}
