//! kubeconfig files: one cluster, one user with a bearer token, one context.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use crate::certificates::write_private;

/// What goes into one kubeconfig file.
#[derive(Debug, Clone, Copy)]
pub struct Kubeconfig<'a> {
    /// The server's URL; a plain `http://` one needs no CA.
    pub server: &'a str,
    /// The file of the CA to trust.
    pub ca: Option<&'a Path>,
    /// The bearer token.
    pub token: &'a str,
    /// The context's namespace.
    pub namespace: &'a str,
}

impl Kubeconfig<'_> {
    /// Writes the file (readable by its owner only) and gives its path back.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(&self, path: PathBuf) -> Result<PathBuf> {
        write_private(&path, &self.render())?;
        Ok(path)
    }

    /// JSON is YAML, and needs no quoting of ours.
    fn render(&self) -> String {
        let mut cluster = json!({ "server": self.server });
        if let Some(ca) = self.ca.filter(|_| self.server.starts_with("https://")) {
            cluster["certificate-authority"] = json!(ca);
        }
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "katabatch-e2e", "cluster": cluster }],
            "users": [{ "name": "katabatch-e2e", "user": { "token": self.token } }],
            "contexts": [{ "name": "katabatch-e2e", "context": {
                "cluster": "katabatch-e2e",
                "user": "katabatch-e2e",
                "namespace": self.namespace,
            }}],
            "current-context": "katabatch-e2e",
        });
        format!("{config:#}\n")
    }
}
