//! The one projected volume that work may have: a token of its own account for a Workload Identity
//! pool provider, by which Google knows the account directly (direct federation), with no Google
//! account in between.
//!
//! Such a token is none of the Kubernetes API: the API server takes only tokens whose audience is
//! its own (Kubernetes, "Service account token volume projection").

use k8s_openapi::api::core::v1::{ProjectedVolumeSource, VolumeProjection};

/// Where the providers of Workload Identity pools are; written with `//` or as a URL.
const PROVIDERS: &str = "iam.googleapis.com/projects/";

/// Whether a projected volume is that token; else what is wrong with it.
pub(super) fn judge(projected: &ProjectedVolumeSource) -> Result<(), String> {
    let sources = projected.sources.as_deref().unwrap_or_default();
    let [source] = sources else {
        return Err(format!("has {} sources, and only one token is allowed", sources.len()));
    };
    let VolumeProjection {
        cluster_trust_bundle: None,
        config_map: None,
        downward_api: None,
        pod_certificate: None,
        secret: None,
        service_account_token: Some(token),
    } = source
    else {
        return Err("has a source that is no serviceAccountToken".to_owned());
    };
    match token.audience.as_deref() {
        None | Some("") => {
            Err("holds the Kubernetes API token: its serviceAccountToken has no audience"
                .to_owned())
        }
        Some(audience) if is_provider(audience) => Ok(()),
        Some(audience) => Err(format!(
            "holds a token for `{audience}`, which is no Workload Identity pool provider"
        )),
    }
}

/// `//iam.googleapis.com/projects/N/locations/global/workloadIdentityPools/POOL/providers/NAME`,
/// the default audience of a provider, also as a URL.
fn is_provider(audience: &str) -> bool {
    let path = audience
        .strip_prefix("https://")
        .or_else(|| audience.strip_prefix("//"))
        .and_then(|rest| rest.strip_prefix(PROVIDERS));
    let Some(path) = path else { return false };
    let plain = |part: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !part.is_empty() && part.chars().all(fine)
    };
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [project, "locations", "global", "workloadIdentityPools", pool, "providers", name] => {
            plain(project) && plain(pool) && plain(name)
        }
        _ => false,
    }
}
