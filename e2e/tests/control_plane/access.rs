//! Tokens and kubeconfigs: what a scheduler's own account may do is what its Role says.

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use katabatch_e2e::{Behaviour, Case, Proxy};
use kube::api::{ListParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

use crate::jobs::job;

const ROLE: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: scheduler}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: scheduler}
rules:
- {apiGroups: [batch], resources: [jobs], verbs: [create, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: scheduler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: scheduler}
subjects:
- {kind: ServiceAccount, name: scheduler, namespace: NAMESPACE}
"#;

/// A client from the kubeconfig that a person or the scheduler would be given.
async fn client_of(case: &Case, server: Option<&str>) -> Result<Client> {
    let namespace = case.namespace.name();
    case.plane.apply_yaml_in(namespace, &ROLE.replace("NAMESPACE", namespace)).await?;
    let token = case.plane.token_for(namespace, "scheduler").await?;
    let path = case.plane.kubeconfig_for(&token, namespace, server)?;
    let read = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn is_forbidden<T>(outcome: Result<T, kube::Error>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => bail!("not a 403: {error}"),
        Ok(_) => bail!("it was allowed"),
    }
}

pub async fn a_role_is_all_a_token_may_do(case: Case) -> Result<()> {
    let client = client_of(&case, None).await?;
    let mine: Api<Job> = Api::default_namespaced(client.clone());
    let job = job("mine", &case.plane.worker_image(), Behaviour::Default)?;
    mine.create(&PostParams::default(), &job).await?;
    ensure!(mine.list(&ListParams::default()).await?.items.len() == 1);

    is_forbidden(mine.get("mine").await)?;
    is_forbidden(Api::<Job>::all(client.clone()).list(&ListParams::default()).await)?;
    let secrets: Api<Secret> = Api::default_namespaced(client);
    is_forbidden(secrets.list(&ListParams::default()).await)
}

pub async fn a_kubeconfig_leads_through_the_proxy(case: Case) -> Result<()> {
    let proxy = Proxy::start(&case.plane).await?;
    let client = client_of(&case, Some(proxy.url())).await?;
    let mine: Api<Job> = Api::default_namespaced(client);
    mine.list(&ListParams::default()).await?;
    is_forbidden(mine.get("none").await)?;
    let expected = [(("get", Some(403)), 1), (("list", Some(200)), 1)];
    let counters = proxy.counters();
    let seen: Vec<_> = counters
        .iter()
        .map(|((verb, _, status), count)| ((verb.as_str(), *status), *count))
        .collect();
    ensure!(seen == expected, "{counters:?}");
    Ok(())
}
