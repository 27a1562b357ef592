//! Counts what an API server was asked, by its own metrics.

use anyhow::Result;
use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;

use crate::{ControlPlane, Namespace};

/// The resources that a scheduler asks for.
const RESOURCES: [&str; 5] = ["jobs", "pods", "serviceaccounts", "configmaps", "leases"];

/// Requests for them so far, whoever made them. Without controllers few others do.
pub async fn count(plane: &ControlPlane) -> Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = plane.admin_client().request_text(request).await?;
    let counted = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("scope=\"namespace\"") | line.contains("scope=\"resource\"")
            && RESOURCES.iter().any(|kind| line.contains(&format!("resource=\"{kind}\"")))
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    Ok(text.lines().filter(counted).filter_map(value).sum())
}

/// How many Jobs there are.
pub async fn jobs(namespace: &Namespace) -> Result<usize> {
    let api = namespace.api::<Job>();
    let (mut n, mut params) = (0, ListParams::default().limit(500));
    loop {
        let page = api.list_metadata(&params).await?;
        n += page.items.len();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(n),
        }
    }
}
