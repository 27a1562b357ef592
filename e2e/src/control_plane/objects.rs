//! What tests put into a control plane: namespaces, manifests, tokens, kubeconfigs.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Node, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ControlPlane, Kind, Options};
use crate::cluster_objects;
use crate::eventually::{Seen, eventually};
use crate::kubeconfig::Kubeconfig;

const PATIENCE: Duration = Duration::from_secs(60);
const FIELD_MANAGER: &str = "katabatch-e2e";

/// A namespace that nobody else uses.
#[derive(Clone)]
pub struct Namespace {
    name: String,
    client: Client,
}

impl Namespace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The administrator's view of one kind of objects in it.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Deletes it and all that is in it, without waiting for the end of that.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn delete(&self) -> Result<()> {
        Api::<NamespaceObject>::all(self.client.clone())
            .delete(&self.name, &DeleteParams::background())
            .await
            .with_context(|| format!("delete namespace {}", self.name))?;
        Ok(())
    }
}

impl ControlPlane {
    /// A fresh namespace named after `hint`, ready for pods.
    ///
    /// # Errors
    /// When it can't be created, or its default service account doesn't appear.
    pub async fn namespace(&self, hint: &str) -> Result<Namespace> {
        let hint: String = hint
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(48)
            .collect();
        let unique = Uuid::new_v4().simple().to_string();
        let name = format!("{}-{}", hint.trim_matches('-'), &unique[..8]);
        self.ensure_namespace(name.trim_start_matches('-')).await
    }

    /// The namespace of exactly this name, created unless it is there.
    ///
    /// # Errors
    /// As [`ControlPlane::namespace`].
    pub async fn ensure_namespace(&self, name: &str) -> Result<Namespace> {
        let object = serde_json::from_value(json!({ "metadata": { "name": name } }))
            .context("make the namespace object")?;
        match Api::<NamespaceObject>::all(self.admin_client())
            .create(&PostParams::default(), &object)
            .await
        {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error).with_context(|| format!("create namespace {name}")),
        }
        let namespace = Namespace { name: name.to_owned(), client: self.admin_client() };
        if self.controllers {
            self.until_pods_may_come(&namespace).await?;
        }
        Ok(namespace)
    }

    /// Pods are refused until their service account is there.
    async fn until_pods_may_come(&self, namespace: &Namespace) -> Result<()> {
        let accounts = namespace.api::<ServiceAccount>();
        eventually("the default service account", PATIENCE, || async {
            Ok(match accounts.get_opt("default").await? {
                Some(_) => Seen::Done(()),
                None => Seen::NotYet("none".into()),
            })
        })
        .await
    }

    /// Puts in what every control plane of ours has, and waits for it.
    pub(super) async fn furnish(&self, options: &Options) -> Result<()> {
        let Options { nodes, beside_real, .. } = *options;
        self.apply_yaml(&cluster_objects::runtime_class(!beside_real)?).await?;
        if !self.controllers {
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.admin_client());
        for index in 0..nodes {
            let node = serde_json::from_value(cluster_objects::node(index, beside_real))
                .context("make a node object")?;
            api.create(&PostParams::default(), &node).await.context("create a node")?;
        }
        eventually("the nodes", PATIENCE, || async {
            let list = api.list(&ListParams::default()).await?;
            let ready = list.items.iter().filter(|node| is_ready(node)).count();
            Ok(Seen::when(ready >= nodes, || format!("{ready} of {nodes} Ready")))
        })
        .await?;
        self.until_pods_may_come(&Namespace { name: "default".into(), client: self.admin_client() })
            .await
    }

    /// A token of a service account that exists, good for an hour.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn token_for(&self, namespace: &str, service_account: &str) -> Result<String> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        Api::<ServiceAccount>::namespaced(self.admin_client(), namespace)
            .create_subresource::<TokenRequest, TokenRequest>(
                "token",
                service_account,
                &PostParams::default(),
                &request,
            )
            .await
            .with_context(|| format!("ask for a token of {namespace}/{service_account}"))?
            .status
            .map(|status| status.token)
            .context("the answer holds no token")
    }

    /// A token with every right: the administrator's own, or on an external cluster that
    /// of a service account made for it.
    ///
    /// # Errors
    /// When that account can't be made.
    pub async fn admin_token(&self) -> Result<String> {
        if let Kind::Local { admin_token, .. } = &self.kind {
            return Ok(admin_token.clone());
        }
        let account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": FIELD_MANAGER, "namespace": "kube-system" },
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": FIELD_MANAGER },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{
                "kind": "ServiceAccount",
                "name": FIELD_MANAGER,
                "namespace": "kube-system",
            }],
        });
        self.apply_yaml(&format!("{account}\n---\n{binding}")).await?;
        self.token_for("kube-system", FIELD_MANAGER).await
    }

    /// Writes a kubeconfig with this token; `server` replaces the API server's URL (such
    /// as by a proxy's).
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn kubeconfig_for(
        &self,
        token: &str,
        namespace: &str,
        server: Option<&str>,
    ) -> Result<PathBuf> {
        let file = format!("{namespace}-{}.kubeconfig", Uuid::new_v4().simple());
        Kubeconfig {
            server: server.unwrap_or(&self.access.server_url),
            ca: Some(&self.access.ca_file),
            token,
            namespace,
        }
        .write(self.dir().join(file))
    }

    /// Applies each document of `text` (server-side apply); what names no namespace goes
    /// to `default`.
    ///
    /// # Errors
    /// When a document can't be read, or the server refuses it.
    pub async fn apply_yaml(&self, text: &str) -> Result<()> {
        self.apply_yaml_in("default", text).await
    }

    /// Like [`ControlPlane::apply_yaml`], with another namespace to fall back to.
    ///
    /// # Errors
    /// As there.
    pub async fn apply_yaml_in(&self, namespace: &str, text: &str) -> Result<()> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)
            .map_err(|error| anyhow!("this isn't YAML: {error}"))?;
        for document in documents.into_iter().filter(|value| !value.is_null()) {
            self.apply(namespace, document).await?;
        }
        Ok(())
    }

    async fn apply(&self, namespace: &str, document: Value) -> Result<()> {
        let object: DynamicObject =
            serde_json::from_value(document).context("this isn't a Kubernetes object")?;
        let types = object.types.as_ref().context("apiVersion or kind is missing")?;
        let gvk = GroupVersionKind::try_from(types).context("read apiVersion and kind")?;
        let (resource, capabilities) = pinned_kind(&self.client, &gvk)
            .await
            .with_context(|| format!("the server knows no {}", gvk.kind))?;
        let name = object.metadata.name.as_deref().context("it has no name")?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(self.admin_client(), &resource),
            Scope::Namespaced => {
                let namespace = object.metadata.namespace.as_deref().unwrap_or(namespace);
                Api::namespaced_with(self.admin_client(), namespace, &resource)
            }
        };
        let how = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(name, &how, &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {} {name}", gvk.kind))?;
        Ok(())
    }
}

fn is_ready(node: &Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
