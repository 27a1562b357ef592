//! Google's two Datastore emulators as tiers of tests: the Firestore emulator in Datastore mode,
//! and the legacy one, which knows no IN. The jars of the Cloud SDK, started by themselves on free
//! ports (the SDK's own wrapper leaves its Java behind when it is stopped).

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::component::Component;
use crate::emulator::{get, platform};
use crate::eventually::{Seen, eventually};
use crate::leftovers::RunDir;
use crate::tier::Tier;
use crate::unavailable::Unavailable;

/// A start takes 3 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The Firestore emulator in Datastore mode: as Datastore is today.
    Firestore,
    /// The legacy Datastore emulator.
    Legacy,
}

impl Flavour {
    fn name(self) -> &'static str {
        match self {
            Self::Firestore => "firestore-emulator",
            Self::Legacy => "datastore-emulator",
        }
    }

    fn jar(self) -> &'static str {
        match self {
            Self::Firestore => "cloud-firestore-emulator/cloud-firestore-emulator.jar",
            Self::Legacy => "cloud-datastore-emulator/CloudDatastore.jar",
        }
    }

    fn arguments(self, port: u16) -> Vec<String> {
        let (main, more) = match self {
            Self::Firestore => (
                "com.google.cloud.datastore.emulator.firestore.CloudFirestore",
                "--database-mode=datastore-mode",
            ),
            Self::Legacy => ("com.google.cloud.datastore.emulator.CloudDatastore", "--testing"),
        };
        let port = format!("--port={port}");
        [main, "start", "--host=127.0.0.1", &port, more].map(str::to_owned).into()
    }

    /// The tier of tests that need it.
    pub fn tier(self) -> Arc<Tier> {
        Tier::new(self.name(), move || async move { find(self).map(drop) })
    }
}

/// A running emulator. Its data is in memory: stopping it forgets all.
pub struct DatastoreEmulator {
    flavour: Flavour,
    jar: PathBuf,
    port: u16,
    // A process can be waited for by one thread only.
    component: Mutex<Option<Component>>,
    // Last: the folder goes after the process that writes into it.
    dir: RunDir,
}

impl DatastoreEmulator {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// [`Unavailable`] when the machine lacks what it takes; otherwise why it didn't start.
    pub async fn start(flavour: Flavour) -> Result<Self> {
        let jar = find(flavour)?;
        let dir = RunDir::claim(None)?;
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .context("find a free port")?
            .port();
        let mut emulator = Self { flavour, jar, port, component: Mutex::default(), dir };
        emulator.start_again().await?;
        Ok(emulator)
    }

    /// Where it listens, as `DATASTORE_EMULATOR_HOST` wants it.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills it where it stands.
    ///
    /// # Errors
    /// When it outlives even that.
    pub fn kill(&mut self) -> Result<()> {
        match self.component.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            Some(mut component) => component.finish(Instant::now()),
            None => Ok(()),
        }
    }

    /// Starts it on the same port, and waits until it answers.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    pub async fn start_again(&mut self) -> Result<()> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut arguments = vec![
            "-Xmx512m".to_owned(),
            "-Duser.language=en".to_owned(),
            // On the command line, a sweep of what dead runs left behind knows it by this.
            format!("-Dkatabatch.dir={}", text(self.dir.path())),
            "-cp".to_owned(),
            text(&self.jar),
        ];
        arguments.extend(self.flavour.arguments(self.port));
        let (name, java) = (self.flavour.name(), Path::new("java"));
        let component = Component::spawn(name, java, &arguments, &[], self.dir.path())?;
        let port = self.port;
        let started = eventually("the Datastore emulator answers", PATIENCE, || async move {
            let answer = get(port).await?;
            Ok(Seen::when(answer.contains("200 OK"), || answer))
        });
        let started = started.await.map_err(|e| anyhow!("{e:#}\n{}", component.log_tail(20)));
        self.component = Mutex::new(Some(component));
        started
    }
}

/// The emulator's jar, if there is also a Java to run it.
fn find(flavour: Flavour) -> Result<PathBuf> {
    let component = match flavour {
        Flavour::Firestore => "cloud-firestore-emulator",
        Flavour::Legacy => "cloud-datastore-emulator",
    };
    let hint = format!("install Java 17 and the Google Cloud SDK with its component {component}");
    let jar = platform(&hint)?.join(flavour.jar());
    if jar.is_file() {
        return Ok(jar);
    }
    Err(Unavailable::new(format!("{} is not there", jar.display()), hint).into())
}
