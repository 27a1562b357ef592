//! Keys and certificates of one control plane, made anew for each start: one CA, one
//! serving certificate for 127.0.0.1, one that the API server shows to kubelets, one key that signs
//! service-account tokens.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Where the files lie that the components are told of.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The CA that signed the serving certificate.
    pub ca: PathBuf,
    /// The same CA as text.
    pub ca_pem: String,
    /// The API server's certificate.
    pub serving: PathBuf,
    /// Its key.
    pub serving_key: PathBuf,
    /// What the API server shows to a kubelet whose logs it asks for.
    pub kubelet_client: PathBuf,
    /// Its key.
    pub kubelet_client_key: PathBuf,
    /// The key that signs service-account tokens.
    pub service_account_key: PathBuf,
    /// Its public half.
    pub service_account_public: PathBuf,
}

impl Certificates {
    /// Makes them all and writes them into `dir`, keys readable by the owner only.
    ///
    /// # Errors
    /// When a key can't be made or a file can't be written.
    pub fn generate(dir: &Path) -> Result<Self> {
        let ca_key = KeyPair::generate().context("make the CA's key")?;
        let mut ca = CertificateParams::new(Vec::new())?;
        ca.distinguished_name.push(DnType::CommonName, "katabatch e2e CA");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_pem = ca.self_signed(&ca_key).context("sign the CA")?.pem();
        let issuer = Issuer::new(ca, ca_key);

        let serving_key = KeyPair::generate().context("make the API server's key")?;
        let mut serving = CertificateParams::new(vec![
            "127.0.0.1".into(),
            "localhost".into(),
            "kubernetes.default.svc".into(),
        ])?;
        serving.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let serving_pem = serving
            .signed_by(&serving_key, &issuer)
            .context("sign the API server's certificate")?
            .pem();

        let client_key = KeyPair::generate().context("make the key for kubelets")?;
        let mut client = CertificateParams::new(Vec::new())?;
        client.distinguished_name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client_pem = client
            .signed_by(&client_key, &issuer)
            .context("sign the certificate for kubelets")?
            .pem();

        let accounts = KeyPair::generate().context("make the service-account key")?;

        let files = Self {
            ca: dir.join("ca.crt"),
            ca_pem,
            serving: dir.join("apiserver.crt"),
            serving_key: dir.join("apiserver.key"),
            kubelet_client: dir.join("kubelet-client.crt"),
            kubelet_client_key: dir.join("kubelet-client.key"),
            service_account_key: dir.join("service-account.key"),
            service_account_public: dir.join("service-account.pub"),
        };
        write_private(&files.ca, &files.ca_pem)?;
        write_private(&files.serving, &serving_pem)?;
        write_private(&files.serving_key, &serving_key.serialize_pem())?;
        write_private(&files.kubelet_client, &client_pem)?;
        write_private(&files.kubelet_client_key, &client_key.serialize_pem())?;
        write_private(&files.service_account_key, &accounts.serialize_pem())?;
        write_private(&files.service_account_public, &accounts.public_key_pem())?;
        Ok(files)
    }
}

/// Writes a file that only its owner may read.
///
/// # Errors
/// When the file can't be written.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("open {} for writing", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))
}
