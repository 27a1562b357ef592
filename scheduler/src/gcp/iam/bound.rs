//! What a policy binds a Kubernetes account to: pure.
//!
//! A member may be written in the classic way (`serviceAccount:P.svc.id.goog[N/A]`), or as a
//! principal or a set of principals of the pool (GKE, "Principal identifiers for Workload Identity
//! Federation for GKE").

use serde_json::{Value, json};

use super::ROLE;

/// A Kubernetes account as IAM knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The project of the cluster, whose pool the account is in.
    pub project: String,
    /// The account's namespace.
    pub namespace: String,
    /// Its name.
    pub account: String,
}

/// Whether the role is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// It is.
    Yes,
    /// It is under a condition, or to a set that may hold the account.
    Maybe(Binding),
    /// This policy does not bind it.
    No,
}

/// Why it is not certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The binding has a condition.
    Conditional,
    /// The binding is to a set of which it can't be told whether the account is in it.
    Set,
}

impl Member {
    /// As it is written most often.
    pub fn classic(&self) -> String {
        let Self { project, namespace, account } = self;
        format!("serviceAccount:{project}.svc.id.goog[{namespace}/{account}]")
    }

    /// Whether a member of a binding is or holds this one.
    fn is(&self, member: &str) -> Option<Bound> {
        if member == self.classic() || member == "allUsers" || member == "allAuthenticatedUsers" {
            return Some(Bound::Yes);
        }
        let (kind, path) = member.split_once("://")?;
        let path = path.strip_prefix("iam.googleapis.com/projects/")?;
        // The project is a number there, which is not known here: the pool's name has its id.
        let (_, path) = path.split_once("/locations/global/workloadIdentityPools/")?;
        let pool = format!("{}.svc.id.goog/", self.project);
        let rest = path.strip_prefix(&pool)?;
        let Self { namespace, account, .. } = self;
        let subject = format!("subject/ns/{namespace}/sa/{account}");
        let yes = |is: bool| is.then_some(Bound::Yes);
        match (kind, rest) {
            ("principal", rest) => yes(rest == subject),
            ("principalSet", "*") => Some(Bound::Yes),
            ("principalSet", rest) => match rest.split_once('/') {
                Some(("namespace", name)) => yes(name == namespace),
                // A cluster's pods by the cluster's URL, or by an attribute.
                Some(_) => Some(Bound::Maybe(Binding::Set)),
                None => {
                    rest.starts_with("kubernetes.cluster").then_some(Bound::Maybe(Binding::Set))
                }
            },
            _ => None,
        }
    }
}

/// Whether `policy` lets `member` act as the account that it is of.
pub fn bound(policy: &Value, member: &Member) -> Bound {
    let bindings = policy.get("bindings").and_then(Value::as_array).into_iter().flatten();
    let mut best = Bound::No;
    for binding in bindings.filter(|binding| gives_the_role(binding)) {
        let members = binding.get("members").and_then(Value::as_array).into_iter().flatten();
        for found in members.filter_map(Value::as_str).filter_map(|other| member.is(other)) {
            let conditional = binding.get("condition").is_some_and(|c| !c.is_null());
            match found {
                Bound::Yes if conditional => best = Bound::Maybe(Binding::Conditional),
                Bound::Yes => return Bound::Yes,
                maybe => best = maybe,
            }
        }
    }
    best
}

fn gives_the_role(binding: &Value) -> bool {
    binding.get("role").and_then(Value::as_str) == Some(ROLE)
}

/// The policy with `member` bound, without a condition.
pub(super) fn with(mut policy: Value, member: &Member) -> Value {
    if !policy.is_object() {
        policy = json!({});
    }
    let added = json!({ "role": ROLE, "members": [member.classic()] });
    match policy.get_mut("bindings").and_then(Value::as_array_mut) {
        Some(bindings) => {
            let plain =
                |b: &&mut Value| gives_the_role(b) && b.get("condition").is_none_or(Value::is_null);
            let members = bindings
                .iter_mut()
                .find(plain)
                .and_then(|binding| binding.get_mut("members")?.as_array_mut());
            match members {
                Some(members) => members.push(member.classic().into()),
                None => bindings.push(added),
            }
        }
        None => {
            policy["bindings"] = json!([added]);
        }
    }
    policy
}

/// The project of a user-managed account's email; `None`: another kind of account.
pub(super) fn project_of(email: &str) -> Option<&str> {
    let (_, domain) = email.split_once('@')?;
    domain.strip_suffix(".iam.gserviceaccount.com")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        Member { project: "p".into(), namespace: "n".into(), account: "a".into() }
    }

    #[track_caller]
    fn check(policy: Value, expect: Bound) {
        assert_eq!(bound(&policy, &member()), expect, "{policy}");
    }

    fn to(members: &[&str]) -> Value {
        json!({"bindings": [
            {"role": "roles/iam.serviceAccountTokenCreator", "members": ["user:x@y"]},
            {"role": ROLE, "members": members},
        ]})
    }

    #[test]
    fn the_role_is_found_however_the_account_is_written() {
        let pool = "iam.googleapis.com/projects/12/locations/global/workloadIdentityPools";
        let own = format!("principal://{pool}/p.svc.id.goog/subject/ns/n/sa/a");
        let space = format!("principalSet://{pool}/p.svc.id.goog/namespace/n");
        let all = format!("principalSet://{pool}/p.svc.id.goog/*");
        for yes in ["serviceAccount:p.svc.id.goog[n/a]", &own, &space, &all] {
            check(to(&["serviceAccount:other", yes]), Bound::Yes);
        }
        for no in [
            "serviceAccount:p.svc.id.goog[n/b]",
            "serviceAccount:p.svc.id.goog[m/a]",
            "serviceAccount:q.svc.id.goog[n/a]",
            &own.replace("/sa/a", "/sa/ab"),
            &space.replace("namespace/n", "namespace/nn"),
            &all.replace("p.svc", "q.svc"),
            &all.replace("principalSet", "principal"),
            "user:n@p",
        ] {
            check(to(&[no]), Bound::No);
        }
        let cluster =
            format!("principalSet://{pool}/p.svc.id.goog/kubernetes.cluster/https://container…");
        check(to(&[&cluster]), Bound::Maybe(Binding::Set));
    }

    #[test]
    fn another_role_no_bindings_and_conditions_are_no_certain_yes() {
        check(json!({"etag": "x"}), Bound::No);
        check(json!({"bindings": "?"}), Bound::No);
        let classic = member().classic();
        check(json!({"bindings": [{"role": "roles/owner", "members": [classic]}]}), Bound::No);
        let when = json!({"role": ROLE, "members": [classic], "condition": {"expression": "x"}});
        check(json!({"bindings": [when]}), Bound::Maybe(Binding::Conditional));
        let plain = json!({"role": ROLE, "members": [classic], "condition": null});
        check(json!({"bindings": [when, plain]}), Bound::Yes);
    }

    #[test]
    fn a_grant_leaves_all_else_as_it_was() {
        let classic = member().classic();
        let when = json!({"role": ROLE, "members": ["user:x"], "condition": {"expression": "x"}});
        let other = json!({"role": "roles/owner", "members": ["user:y"]});
        let policy = json!({"etag": "e", "version": 3, "bindings": [other, when]});
        let granted = with(policy, &member());
        assert_eq!(granted["etag"], "e");
        assert_eq!(granted["version"], 3);
        let added = json!({"role": ROLE, "members": [classic]});
        assert_eq!(granted["bindings"], json!([other, when, added]));
        let again = with(json!({"bindings": [{"role": ROLE, "members": ["user:z"]}]}), &member());
        assert_eq!(again["bindings"], json!([{"role": ROLE, "members": ["user:z", classic]}]));
        assert_eq!(bound(&with(json!({"etag": "ACAB"}), &member()), &member()), Bound::Yes);
    }

    #[test]
    fn the_command_is_what_an_operator_runs() {
        let email = "fuzz@farm.iam.gserviceaccount.com";
        assert_eq!(
            super::super::command(&member(), email),
            "gcloud iam service-accounts add-iam-policy-binding fuzz@farm.iam.gserviceaccount.com \
             --role roles/iam.workloadIdentityUser --member \
             \"serviceAccount:p.svc.id.goog[n/a]\" --project farm"
        );
        assert_eq!(project_of("12-compute@developer.gserviceaccount.com"), None);
    }
}
