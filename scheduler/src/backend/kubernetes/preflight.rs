//! Asks a cluster whether it would take our Jobs: permissions, objects that must be there, nodes,
//! a server-side dry run. Changes nothing. Used by `check`, with the rights of who runs it, and the
//! permissions by `run`. What is made of the answers is not said here.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

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

/// How many objects one page has, and the most pages that are read: 50,000 objects tell enough.
const PAGE: u32 = 500;
const MOST_PAGES: usize = 100;

/// A cluster's namespace, to be asked.
#[derive(Clone)]
pub struct Preflight {
    client: Client,
    namespace: String,
}

/// The answer to one question.
pub type Answer<T> = Result<T, String>;

/// What was looked up by someone who may not be allowed to.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen<T> {
    /// It is there.
    There(T),
    /// It is not there.
    Absent,
    /// Who asks may not know; what the API server said.
    Forbidden(String),
}

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

    /// The namespace asked about.
    pub fn name(&self) -> &str {
        &self.namespace
    }

    /// Whether the namespace is there.
    ///
    /// # Errors
    /// Why it is not known, other than for want of permission.
    pub async fn namespace(&self) -> Answer<Seen<()>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(match seen(api.get_opt(&self.namespace).await)? {
            Seen::There(_) => Seen::There(()),
            Seen::Absent => Seen::Absent,
            Seen::Forbidden(said) => Seen::Forbidden(said),
        })
    }

    /// Which of [`PERMISSIONS`] are missing, as `verb resource`.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn missing_permissions(&self) -> Answer<Vec<String>> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let reviews = PERMISSIONS.iter().map(|(verb, group, resource)| {
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
            let api = api.clone();
            async move {
                let answer = api.create(&PostParams::default(), &review).await.map_err(say)?;
                let allowed = answer.status.is_some_and(|status| status.allowed);
                Ok::<_, String>((!allowed).then(|| format!("{verb} {resource}")))
            }
        });
        let missing = futures::future::try_join_all(reviews).await?;
        Ok(missing.into_iter().flatten().collect())
    }

    /// The RuntimeClass of that name.
    ///
    /// # Errors
    /// Why it is not known, other than for want of permission.
    pub async fn runtime_class(&self, name: &str) -> Answer<Seen<RuntimeClass>> {
        let api: Api<RuntimeClass> = Api::all(self.client.clone());
        seen(api.get_opt(name).await)
    }

    /// All nodes.
    ///
    /// # Errors
    /// Why they are not known, other than for want of permission.
    pub async fn nodes(&self) -> Answer<Seen<Vec<Node>>> {
        self.all(|_| true).await
    }

    /// The pods of all namespaces that `keep` says.
    ///
    /// # Errors
    /// Why they are not known, other than for want of permission.
    pub async fn pods(&self, keep: impl Fn(&Pod) -> bool) -> Answer<Seen<Vec<Pod>>> {
        self.all(keep).await
    }

    /// All objects of a kind that `keep` says, page by page.
    async fn all<K>(&self, keep: impl Fn(&K) -> bool) -> Answer<Seen<Vec<K>>>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        for _ in 0..MOST_PAGES {
            let page = match seen(api.list(&params).await.map(Some))? {
                Seen::There(page) => page,
                Seen::Absent => break,
                Seen::Forbidden(said) => return Ok(Seen::Forbidden(said)),
            };
            all.extend(page.items.into_iter().filter(|item| keep(item)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        Ok(Seen::There(all))
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

fn seen<T>(found: Result<Option<T>, kube::Error>) -> Answer<Seen<T>> {
    match found {
        Ok(Some(found)) => Ok(Seen::There(found)),
        Ok(None) => Ok(Seen::Absent),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(Seen::Forbidden(redact(&status.message).into_owned()))
        }
        Err(error) => Err(say(error)),
    }
}

fn say(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => redact(&status.message).into_owned(),
        other => redact(&other.to_string()).into_owned(),
    }
}
