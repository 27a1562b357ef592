//! A cluster that already runs and that is not ours to stop, such as kind in a hosted
//! workflow: the same suite, less what needs the processes in hand.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::{Access, ControlPlane, Kind, install_crypto};

/// The variable that names the kubeconfig of a cluster to use instead of a new one.
pub const KUBECONFIG_VARIABLE: &str = "KATABATCH_E2E_KUBECONFIG";

/// The variable that names the image of test Jobs, for a cluster that really runs them.
pub const IMAGE_VARIABLE: &str = "KATABATCH_E2E_IMAGE";

impl ControlPlane {
    /// The cluster of the kubeconfig's current context. Its nodes and its RuntimeClass
    /// are its own matter.
    ///
    /// # Errors
    /// When the file can't be read or the server doesn't answer.
    pub async fn external(kubeconfig: &Path) -> Result<Self> {
        install_crypto();
        let read = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("read {}", kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .context("use the kubeconfig's current context")?;
        config.default_retry = false;
        let server_url = config.cluster_url.to_string();
        let ca_pem =
            config.root_cert.iter().flatten().map(|der| pem(der)).collect::<Result<String>>()?;
        let dir = tempfile::tempdir().context("create a folder for kubeconfigs")?;
        let ca_file = dir.path().join("ca.crt");
        std::fs::write(&ca_file, &ca_pem).context("write the CA")?;
        let client = Client::try_from(config).context("make the administrator's client")?;
        client.apiserver_version().await.with_context(|| {
            format!(
                "{server_url} doesn't answer; hint: is the cluster of {KUBECONFIG_VARIABLE} up?"
            )
        })?;
        Ok(Self {
            access: Access {
                server_url: server_url.trim_end_matches('/').to_owned(),
                ca_pem,
                ca_file,
                admin_kubeconfig: PathBuf::from(kubeconfig),
            },
            client,
            controllers: true,
            kind: Kind::External { dir },
        })
    }
}

fn pem(der: &[u8]) -> Result<String> {
    // Kubernetes' own bytes are base64 in JSON.
    let encoded = serde_json::to_value(ByteString(der.to_vec())).context("encode the CA")?;
    let encoded = encoded.as_str().context("base64 is text")?;
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    Ok(format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n")))
}
