//! Whether a Kubernetes account may act as a Google account (Workload Identity Federation for
//! GKE): read from the Google account's IAM policy, and added to it where that is wanted.
//!
//! What is bound is judged purely, in `bound`. The project's own policy, which can bind the role
//! for all accounts at once, is not looked at: an absence is no proof, and said so.

mod bound;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::rest::{Rest, RestError};

pub use bound::{Binding, Bound, Member, bound};

/// Google's own endpoint.
const GOOGLE: &str = "https://iam.googleapis.com";
/// The role that lets a Kubernetes account act as a Google account.
const ROLE: &str = "roles/iam.workloadIdentityUser";
/// Writes of a policy that lost against another writer's are made again so often.
const TRIES: u32 = 4;

/// The IAM API, for the policies of service accounts.
#[derive(Debug, Clone)]
pub struct Iam {
    rest: Rest,
    endpoint: String,
}

/// How an account's identity stands, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It may act as its Google account.
    Good,
    /// It may or may not.
    Unsure {
        /// Why.
        why: String,
        /// What makes sure.
        hint: String,
    },
    /// The Google account's policy does not let it.
    Missing {
        /// What is missing.
        why: String,
        /// The command that adds it.
        hint: String,
    },
    /// The policy can't be read.
    Unreadable {
        /// What was said.
        why: String,
        /// What to do.
        hint: String,
    },
}

impl Iam {
    /// The API at `endpoint`, else at Google.
    pub fn new(rest: Rest, endpoint: Option<&str>) -> Self {
        let endpoint = endpoint.unwrap_or(GOOGLE).trim_end_matches('/').to_owned();
        Self { rest, endpoint }
    }

    /// Whether `member` may act as the Google account `email`.
    ///
    /// # Errors
    /// The policy can't be read.
    pub async fn may_act_as(&self, member: &Member, email: &str) -> Result<Bound, RestError> {
        Ok(bound(&self.policy(email).await?, member))
    }

    /// How `member` stands towards the Google account `email`.
    pub async fn standing(&self, member: &Member, email: &str) -> Standing {
        let command = command(member, email);
        match self.may_act_as(member, email).await {
            Ok(Bound::Yes) => Standing::Good,
            Ok(Bound::Maybe(binding)) => Standing::Unsure {
                why: match binding {
                    Binding::Conditional => format!("{ROLE} on {email} is bound conditionally"),
                    Binding::Set => format!("{ROLE} on {email} is bound to a set of accounts"),
                },
                hint: format!("if pods are refused: {command}"),
            },
            Ok(Bound::No) => Standing::Missing {
                why: format!("{ROLE} on {email} is missing, unless the project's policy has it"),
                hint: command,
            },
            Err(error) => Standing::Unreadable {
                hint: match &error {
                    RestError::Refused { status: 404, .. } => {
                        "is the email in batch.yaml right?".to_owned()
                    }
                    RestError::Refused { status: 403, .. } => {
                        format!("roles/iam.securityReviewer lets check look; to be safe: {command}")
                    }
                    _ => String::new(),
                },
                why: format!("the IAM policy of {email} can't be read: {error}"),
            },
        }
    }

    /// Lets `member` act as `email`, leaving the rest of the policy as it is. Whether anything
    /// was changed.
    ///
    /// # Errors
    /// The policy can't be read or written.
    pub async fn grant(&self, member: &Member, email: &str) -> Result<bool, RestError> {
        let mut left = TRIES;
        loop {
            left -= 1;
            let policy = self.policy(email).await?;
            if bound(&policy, member) == Bound::Yes {
                return Ok(false);
            }
            // The etag goes back with the policy: a write over another's is refused.
            let body = json!({ "policy": bound::with(policy, member) });
            let url = self.url(email, "setIamPolicy");
            match self.rest.call(Method::POST, &url, Some(&body)).await {
                Ok(_) => return Ok(true),
                Err(RestError::Refused { status: 409, .. }) if left > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The policy, with the conditions of its bindings (version 3).
    async fn policy(&self, email: &str) -> Result<Value, RestError> {
        let body = json!({ "options": { "requestedPolicyVersion": 3 } });
        self.rest.call(Method::POST, &self.url(email, "getIamPolicy"), Some(&body)).await
    }

    fn url(&self, email: &str, verb: &str) -> String {
        let email = utf8_percent_encode(email, NON_ALPHANUMERIC).to_string();
        // As people write them; Google takes both.
        let email = email.replace("%2E", ".").replace("%2D", "-").replace("%40", "@");
        format!("{}/v1/projects/-/serviceAccounts/{email}:{verb}", self.endpoint)
    }
}

/// The command that lets `member` act as `email`.
pub fn command(member: &Member, email: &str) -> String {
    format!(
        "gcloud iam service-accounts add-iam-policy-binding {email} --role {ROLE} --member \
         \"{}\"{}",
        member.classic(),
        bound::project_of(email).map(|project| format!(" --project {project}")).unwrap_or_default()
    )
}
