//! A fake of Cloud Storage (fake-gcs-server) as a tier of tests: built with Go once, into the cache,
//! and started by itself on a free port. Its objects are files, so that they outlive it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use katabatch::gcp::channel::Endpoint;
use katabatch::gcp::storage::client::CloudStorage;
use katabatch::gcp::storage::{Fetched, ObjectName, Objects as _};
use serde_json::json;

use crate::component::Component;
use crate::emulator::get;
use crate::eventually::{Seen, eventually};
use crate::leftovers::RunDir;
use crate::tier::Tier;
use crate::unavailable::Unavailable;

const NAME: &str = "fake-gcs-server";
const PACKAGE: &str = "github.com/fsouza/fake-gcs-server";
const VERSION: &str = "1.52.3";
const PATIENCE: Duration = Duration::from_secs(60);

/// The tier of tests that need the fake.
pub fn gcs_tier() -> Arc<Tier> {
    Tier::new(NAME, || async { FakeGcs::program().await.map(drop) })
}

/// A running fake.
pub struct FakeGcs {
    program: PathBuf,
    port: u16,
    component: Mutex<Option<Component>>,
    client: CloudStorage,
    // Last: the folder goes after the process that writes into it.
    dir: RunDir,
}

impl FakeGcs {
    /// The program, built if it is nowhere yet.
    ///
    /// # Errors
    /// [`Unavailable`] when it has to be built and can't be.
    pub async fn program() -> Result<PathBuf> {
        tokio::task::spawn_blocking(find_or_build).await.context("the build was interrupted")?
    }

    /// Starts one that has these buckets.
    ///
    /// # Errors
    /// [`Unavailable`] when the machine lacks what it takes; otherwise why it didn't start.
    pub async fn start(buckets: &[&str]) -> Result<Self> {
        let program = Self::program().await?;
        let dir = RunDir::claim(None)?;
        for bucket in buckets {
            fs::create_dir_all(dir.path().join("buckets").join(bucket)).context("make a bucket")?;
        }
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .context("find a free port")?
            .port();
        let url = format!("http://127.0.0.1:{port}");
        let client = CloudStorage::open(&Endpoint::choose(Some(&url), None, ""), None)?;
        let fake = Self { program, port, component: Mutex::default(), client, dir };
        fake.start_again().await?;
        Ok(fake)
    }

    /// Where it listens, as `STORAGE_EMULATOR_HOST` wants it.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills it where it stands; its objects stay.
    ///
    /// # Errors
    /// When it outlives even that.
    pub fn kill(&self) -> Result<()> {
        match self.component().take() {
            Some(mut component) => component.finish(Instant::now()),
            None => Ok(()),
        }
    }

    /// Starts it on the same port, with the objects that it had.
    ///
    /// # Errors
    /// When it does not answer, with the end of its log.
    pub async fn start_again(&self) -> Result<()> {
        let host = self.host();
        let root = self.dir.path().join("buckets").to_string_lossy().into_owned();
        let arguments = [
            ["-scheme", "http"],
            ["-host", "127.0.0.1"],
            ["-port", &self.port.to_string()],
            ["-public-host", &host],
            ["-backend", "filesystem"],
            ["-filesystem-root", &root],
        ];
        let arguments = arguments.concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let component = Component::spawn(NAME, &self.program, &arguments, &[], self.dir.path())?;
        let port = self.port;
        let started = eventually("the fake of Cloud Storage answers", PATIENCE, || async move {
            let answer = get(port).await?;
            Ok(Seen::when(answer.starts_with("HTTP/1.1"), || answer))
        });
        let started = started.await;
        let log = started.map_err(|e| anyhow!("{e:#}\n{}", component.log_tail(20)));
        *self.component() = Some(component);
        log
    }

    /// Writes an object, whatever was there.
    ///
    /// # Errors
    /// When it can't be written.
    pub async fn put(&self, address: &str, text: &str) -> Result<()> {
        self.client.write(&name(address)?, text.into(), None).await?;
        Ok(())
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When it can't be read, or is no text.
    pub async fn text(&self, address: &str) -> Result<String> {
        match self.client.read(&name(address)?, None).await? {
            Fetched::New { bytes, .. } => Ok(String::from_utf8(bytes)?),
            Fetched::Same => bail!("an object is the same as none"),
        }
    }

    fn component(&self) -> MutexGuard<'_, Option<Component>> {
        self.component.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(address: &str) -> Result<ObjectName> {
    ObjectName::parse(address).with_context(|| format!("{address} is no object"))
}

/// A key file of a service account that is nobody's, with a key made for this run: what signs with
/// it needs no network.
///
/// # Errors
/// When no key can be made.
pub fn key_file() -> Result<String> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).context("make a key")?;
    let account = json!({
        "type": "service_account",
        "project_id": "katabatch-e2e",
        "private_key_id": "e2e",
        "private_key": key.serialize_pem(),
        "client_email": ACCOUNT,
        "client_id": "1",
        "token_uri": "http://127.0.0.1:1/token",
    });
    Ok(account.to_string())
}

/// The account of [`key_file`].
pub const ACCOUNT: &str = "scheduler@katabatch-e2e.iam.gserviceaccount.com";

fn find_or_build() -> Result<PathBuf> {
    let cache = crate::binaries::cache_of(&format!("{NAME}-{VERSION}"))?;
    let program = cache.join(NAME);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    // Test binaries run side by side: the second one waits here, then finds it.
    let lock = File::create(cache.join(".lock")).context("create the cache's lock")?;
    lock.lock().context("lock the cache")?;
    if !program.is_file() {
        build(&cache)?;
    }
    Ok(program)
}

/// Builds it beside its final place and moves it there in one step.
fn build(cache: &Path) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix(".building-").tempdir_in(cache)?;
    let output = Command::new("go")
        .current_dir(scratch.path())
        .envs([("GOWORK", "off"), ("GOFLAGS", ""), ("CGO_ENABLED", "0")])
        .env("GOBIN", scratch.path())
        .args(["install", "-trimpath", "-ldflags=-s -w", &format!("{PACKAGE}@v{VERSION}")])
        .stdin(Stdio::null())
        .output();
    let hint = "install Go 1.24 or newer, and let it reach the Go module proxy";
    let output =
        output.map_err(|e| Unavailable::new(format!("no {NAME}, and no Go: {e}"), hint))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        return Err(Unavailable::new(format!("{NAME} can't be built: {last}"), hint).into());
    }
    fs::rename(scratch.path().join(NAME), cache.join(NAME)).context("move it into the cache")
}

/// What a process needs to take the fake for Cloud Storage, and to sign as [`ACCOUNT`].
///
/// # Errors
/// When the key file can't be written into `dir`.
pub fn environment(fake: &FakeGcs, dir: &Path) -> Result<Vec<(&'static str, String)>> {
    let file = dir.join("account.json");
    fs::write(&file, key_file()?).context("write the key file")?;
    Ok(vec![
        ("STORAGE_EMULATOR_HOST", fake.host()),
        ("GOOGLE_APPLICATION_CREDENTIALS", file.to_string_lossy().into_owned()),
    ])
}
