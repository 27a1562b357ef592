//! Google's Pub/Sub emulator as a tier of tests: the jar of the Cloud SDK, started by itself on a
//! free port (the SDK's own wrapper leaves its Java behind when it is stopped).

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::component::Component;
use crate::eventually::{Seen, eventually};
use crate::leftovers::RunDir;
use crate::tier::Tier;
use crate::unavailable::Unavailable;

/// A start takes 2 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
const HINT: &str = "install Java 17 and the Google Cloud SDK with its component pubsub-emulator";

/// A running emulator. Its data is in memory: stopping it forgets all.
pub struct PubSubEmulator {
    jar: PathBuf,
    port: u16,
    // A process can be waited for by one thread only.
    component: Mutex<Option<Component>>,
    // Last: the folder goes after the process that writes into it.
    dir: RunDir,
}

/// The tier of tests that need the emulator.
pub fn pubsub_tier() -> Arc<Tier> {
    Tier::new("pubsub-emulator", || async { find().map(drop) })
}

impl PubSubEmulator {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// [`Unavailable`] when the machine lacks what it takes; otherwise why it didn't start.
    pub async fn start() -> Result<Self> {
        let jar = find()?;
        let dir = RunDir::claim(None)?;
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .context("find a free port")?
            .port();
        let emulator = Self { jar, port, component: Mutex::default(), dir };
        emulator.start_again().await?;
        Ok(emulator)
    }

    /// Where it listens, as `PUBSUB_EMULATOR_HOST` wants it.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its process id; none once it was killed.
    pub fn pid(&self) -> Option<i32> {
        self.component().as_ref().map(Component::pid)
    }

    /// Suspends it: an outage after which it knows all that it knew. Meanwhile its connections
    /// stay open and say nothing.
    ///
    /// # Errors
    /// When it is gone, or does not stand still.
    pub async fn pause(&self) -> Result<()> {
        let stands_still = self.component().as_ref().context("it was killed")?.pause()?;
        eventually("the Pub/Sub emulator stands still", PATIENCE, || async {
            Ok(Seen::when(stands_still(), || "it runs".into()))
        })
        .await
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn resume(&self) -> Result<()> {
        self.component().as_ref().context("it was killed")?.resume()
    }

    /// Kills it where it stands.
    ///
    /// # Errors
    /// When it outlives even that.
    pub fn kill(&self) -> Result<()> {
        match self.component().take() {
            Some(mut component) => component.finish(Instant::now()),
            None => Ok(()),
        }
    }

    /// Starts it on the same port, and waits until it answers.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    pub async fn start_again(&self) -> Result<()> {
        let dir = self.dir.path();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let arguments = [
            "-Xmx512m".to_owned(),
            // On the command line, a sweep of what dead runs left behind knows it by this.
            format!("-Dkatabatch.dir={}", text(dir)),
            "-jar".to_owned(),
            text(&self.jar),
            "--host=127.0.0.1".to_owned(),
            format!("--port={}", self.port),
        ];
        let component =
            Component::spawn("pubsub-emulator", Path::new("java"), &arguments, &[], dir)?;
        let port = self.port;
        let started = eventually("the Pub/Sub emulator answers", PATIENCE, || async move {
            let answer = get(port).await?;
            Ok(Seen::when(answer.contains("200 OK"), || answer))
        });
        let started = started.await;
        let log = started.map_err(|e| anyhow!("{e:#}\n{}", component.log_tail(20)));
        *self.component() = Some(component);
        log
    }

    fn component(&self) -> MutexGuard<'_, Option<Component>> {
        self.component.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of an emulator's answer. It does not close the connection after it.
pub(crate) async fn get(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut answer = [0; 256];
    let n = timeout(Duration::from_secs(2), stream.read(&mut answer)).await??;
    Ok(String::from_utf8_lossy(answer.get(..n).unwrap_or_default()).into_owned())
}

/// The emulator's jar, if there is also a Java to run it.
fn find() -> Result<PathBuf> {
    let lib = platform(HINT)?.join("pubsub-emulator/lib");
    let is_jar =
        |name: &str| name.starts_with("cloud-pubsub-emulator") && name.ends_with("all.jar");
    let jars = fs::read_dir(&lib).into_iter().flatten().flatten();
    let jar = jars
        .map(|e| e.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_jar));
    let missing = || Unavailable::new(format!("{} has no emulator", lib.display()), HINT);
    Ok(jar.ok_or_else(missing)?)
}

/// The folder of the Cloud SDK's components, if there is also a Java to run them.
pub(crate) fn platform(hint: &str) -> Result<PathBuf, Unavailable> {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output
            .map_err(|error| Unavailable::new(format!("{program} can't be run: {error}"), hint))?;
        if !output.status.success() {
            return Err(Unavailable::new(format!("{program} fails: {}", output.status), hint));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    run("java", &["-version"])?;
    let root = run("gcloud", &["info", "--format=value(installation.sdk_root)"])?;
    Ok(Path::new(&root).join("platform"))
}
