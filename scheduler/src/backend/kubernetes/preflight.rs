//! Asks a cluster whether it would take our Jobs: permissions, objects that must be there, a
//! server-side dry run. Changes nothing. Used by `check`, with the rights of who runs it.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::domain::redact::redact;

/// What the scheduler does in its namespace, as (verb, API group, resource): what `deploy/rbac.yaml`
/// grants, which the end-to-end tests prove to be enough and no more.
pub const PERMISSIONS: &[(&str, &str, &str)] = &[
    ("create", "batch", "jobs"),
    ("delete", "batch", "jobs"),
    ("get", "batch", "jobs"),
    ("list", "batch", "jobs"),
    ("watch", "batch", "jobs"),
    ("list", "", "pods"),
    ("watch", "", "pods"),
    ("get", "", "pods/log"),
    ("list", "", "events"),
    ("create", "", "serviceaccounts"),
    ("get", "", "serviceaccounts"),
    ("create", "", "configmaps"),
    ("get", "", "configmaps"),
    ("update", "", "configmaps"),
    ("create", "coordination.k8s.io", "leases"),
    ("get", "coordination.k8s.io", "leases"),
    ("update", "coordination.k8s.io", "leases"),
];

/// A cluster's namespace, to be asked.
pub struct Preflight {
    client: Client,
    namespace: String,
}

/// The answer to one question.
pub type Answer<T> = Result<T, String>;

impl Preflight {
    /// Asks about `namespace` through `client`.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    /// The API server's version.
    ///
    /// # Errors
    /// Why it did not answer.
    pub async fn version(&self) -> Answer<String> {
        self.client.apiserver_version().await.map(|info| info.git_version).map_err(say)
    }

    /// Whether the namespace is there; `None` when we may not know.
    ///
    /// # Errors
    /// Why it is not known, other than for want of permission.
    pub async fn namespace(&self) -> Answer<Option<bool>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        known(api.get_opt(&self.namespace).await)
    }

    /// Which of [`PERMISSIONS`] are missing, as `verb resource`.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn missing_permissions(&self) -> Answer<Vec<String>> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let mut missing = Vec::new();
        for (verb, group, resource) in PERMISSIONS {
            let (whole, part) = resource.split_once('/').unwrap_or((resource, ""));
            let attributes = ResourceAttributes {
                namespace: Some(self.namespace.clone()),
                verb: Some((*verb).to_owned()),
                group: Some((*group).to_owned()),
                resource: Some(whole.to_owned()),
                subresource: (!part.is_empty()).then(|| part.to_owned()),
                ..ResourceAttributes::default()
            };
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let answer = api.create(&PostParams::default(), &review).await.map_err(say)?;
            if !answer.status.is_some_and(|status| status.allowed) {
                missing.push(format!("{verb} {resource}"));
            }
        }
        Ok(missing)
    }

    /// Whether the RuntimeClass is there; `None` when we may not know.
    ///
    /// # Errors
    /// Why it is not known, other than for want of permission.
    pub async fn runtime_class(&self, name: &str) -> Answer<Option<bool>> {
        let api: Api<RuntimeClass> = Api::all(self.client.clone());
        known(api.get_opt(name).await)
    }

    /// The annotation that ties a ServiceAccount to a Google one: `None` when the account is not
    /// there, `Some(None)` when it is not annotated.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn account(&self, name: &str) -> Answer<Option<Option<String>>> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let account = api.get_opt(name).await.map_err(say)?;
        Ok(account
            .map(|account| account.metadata.annotations?.remove("iam.gke.io/gcp-service-account")))
    }

    /// Has the API server judge a Job, admission included, without keeping it.
    ///
    /// # Errors
    /// What it refuses.
    pub async fn dry_run(&self, job: &Job) -> Answer<()> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match api.create(&params, job).await {
            // One of that name is there already: the server got that far.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop).map_err(say),
        }
    }
}

fn known<T>(found: Result<Option<T>, kube::Error>) -> Answer<Option<bool>> {
    match found {
        Ok(found) => Ok(Some(found.is_some())),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(say(error)),
    }
}

fn say(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => redact(&status.message).into_owned(),
        other => redact(&other.to_string()).into_owned(),
    }
}
