//! Which cluster a backend is on: what its configuration says, else what its surroundings say, in
//! one stated order. Pure, given the surroundings.

use std::fmt;
use std::path::PathBuf;

use crate::gcp::gke::Wanted;

/// What is said of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; `None` is its current one.
    pub context: Option<String>,
    /// A GKE cluster that the backend's configuration asks for, what it leaves out filled in.
    pub gke: Option<Wanted>,
    /// The backend's configuration asks for the cluster that this process is in.
    pub in_cluster: bool,
    /// The GKE cluster that the farm's own project.yaml names; without a project, none is named.
    pub farm: Wanted,
}

/// What this process's surroundings say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `KUBECONFIG` names a file.
    pub variable: bool,
    /// This is a pod (`KUBERNETES_SERVICE_HOST`).
    pub in_cluster: bool,
    /// There is a `~/.kube/config`.
    pub home: bool,
}

impl Surroundings {
    /// Those of this process.
    pub fn look() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            variable: set("KUBECONFIG").is_some(),
            in_cluster: set("KUBERNETES_SERVICE_HOST").is_some(),
            home: set("HOME").is_some_and(|home| PathBuf::from(home).join(".kube/config").exists()),
        }
    }
}

/// Where a cluster's address and credentials are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A kubeconfig: this file, or where kubectl looks.
    Kubeconfig(Option<PathBuf>, Option<String>),
    /// The pod's own account, in the cluster that it runs in.
    InCluster,
    /// A GKE cluster, with Google's credentials.
    Gke(Wanted),
}

/// Chooses. What is configured comes first; then `KUBECONFIG`, which somebody set on purpose;
/// then the cluster that project.yaml names, where ClusterFuzz's own service makes its Jobs,
/// wherever it runs itself; then what is merely around: the cluster that this is a pod of, and
/// the kubeconfig at home. The second value says why.
pub fn choose(cluster: &Cluster, around: Surroundings) -> (Place, &'static str) {
    let Cluster { kubeconfig, context, gke, in_cluster, farm } = cluster;
    if kubeconfig.is_some() || context.is_some() {
        let place = Place::Kubeconfig(kubeconfig.clone(), context.clone());
        return (place, "the backend's configuration names it");
    }
    if let Some(gke) = gke {
        return (Place::Gke(gke.clone()), "the backend's configuration has `gke`");
    }
    if *in_cluster {
        return (Place::InCluster, "the backend's configuration has `in_cluster`");
    }
    if around.variable {
        return (Place::Kubeconfig(None, None), "KUBECONFIG is set");
    }
    if farm.project.is_some() {
        return (Place::Gke(farm.clone()), "project.yaml names it, and KUBECONFIG is not set");
    }
    if around.in_cluster {
        return (Place::InCluster, "this is a pod, and project.yaml names no K8S_PROJECT");
    }
    if around.home {
        let why = "it is at home, and project.yaml names no K8S_PROJECT";
        return (Place::Kubeconfig(None, None), why);
    }
    (Place::Gke(farm.clone()), "there is neither a kubeconfig nor a pod's account")
}

/// The cluster that was chosen, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// What it is: `GKE cluster NAME in LOCATION of project PROJECT`, `kubeconfig FILE`, `the
    /// cluster of this pod`.
    pub how: String,
    /// Why this one.
    pub why: &'static str,
    /// Its API server's URL.
    pub server: String,
    /// What is odd but does no harm.
    pub warnings: Vec<String>,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.how, self.server, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(project: Option<&str>) -> Wanted {
        Wanted { project: project.map(str::to_owned), name: "c".into(), ..Wanted::default() }
    }

    #[test]
    fn what_is_configured_comes_first_then_what_was_set_on_purpose_then_what_is_around() {
        let none = Cluster { farm: wanted(None), ..Cluster::default() };
        let farm = Cluster { farm: wanted(Some("farm")), ..Cluster::default() };
        let file = |cluster: &Cluster| Cluster {
            kubeconfig: Some("/k".into()),
            gke: Some(wanted(Some("own"))),
            ..cluster.clone()
        };
        let context = Cluster { context: Some("x".into()), ..farm.clone() };
        let gke = Cluster { gke: Some(wanted(Some("own"))), ..farm.clone() };
        let pod = Cluster { in_cluster: true, ..farm.clone() };
        let all = Surroundings { variable: true, in_cluster: true, home: true };
        let variable = Surroundings { in_cluster: false, home: false, ..all };
        let around = Surroundings { variable: false, ..all };
        let home = Surroundings { home: true, ..Surroundings::default() };
        let kubectl = || Place::Kubeconfig(None, None);
        for (cluster, surroundings, expect) in [
            (&file(&farm), all, Place::Kubeconfig(Some("/k".into()), None)),
            (&context, all, Place::Kubeconfig(None, Some("x".into()))),
            (&gke, all, Place::Gke(wanted(Some("own")))),
            (&pod, all, Place::InCluster),
            (&farm, all, kubectl()),
            (&none, variable, kubectl()),
            (&farm, around, Place::Gke(wanted(Some("farm")))),
            (&none, around, Place::InCluster),
            (&none, home, kubectl()),
            (&none, Surroundings::default(), Place::Gke(wanted(None))),
        ] {
            let (place, why) = choose(cluster, surroundings);
            assert_eq!(place, expect, "{cluster:?} {surroundings:?}: {why}");
        }
    }
}
