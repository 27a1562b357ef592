//! One Kubernetes control plane: started here from plain binaries, or one that already
//! runs somewhere (`KATABATCH_E2E_KUBECONFIG`). What is done with it lies in the files
//! below: `launch` (processes), `objects` (namespaces, tokens, manifests), `dump`.

mod dump;
mod external;
mod launch;
mod objects;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kube::Client;
use kube::config::{AuthInfo, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::time::interval;

use crate::binaries::Program;
use crate::component::Component;
use crate::eventually::{Seen, eventually};
use crate::unavailable::Unavailable;

pub use external::{IMAGE_VARIABLE, KUBECONFIG_VARIABLE};
pub use objects::Namespace;

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether Jobs make pods and pods run: controllers, scheduler, fake kubelets. Off,
    /// there is the API server alone, which is what a benchmark of creates wants.
    pub controllers: bool,
    /// How many fake nodes there are (with controllers).
    pub nodes: usize,
    /// Where data and logs go; a temporary folder, removed at the end, when absent.
    pub dir: Option<PathBuf>,
    /// KWOK Stage documents of the caller's own, beside the standard ones.
    pub stages: Vec<String>,
    /// More arguments for kube-apiserver.
    pub apiserver_arguments: Vec<String>,
    /// More arguments for kube-controller-manager.
    pub controller_manager_arguments: Vec<String>,
    /// Whether a node that runs pods comes beside the fake ones: these then take only pods that
    /// tolerate them, and the RuntimeClass counts no virtual machine, since there is none.
    pub beside_real: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: true,
            nodes: 4,
            dir: None,
            stages: Vec::new(),
            apiserver_arguments: Vec::new(),
            controller_manager_arguments: Vec::new(),
            beside_real: false,
        }
    }
}

/// A control plane, and the administrator's way into it. One started here ends with
/// this value.
pub struct ControlPlane {
    access: Access,
    client: Client,
    controllers: bool,
    kind: Kind,
}

/// How the administrator reaches the API server.
struct Access {
    server_url: String,
    ca_pem: String,
    ca_file: PathBuf,
    admin_kubeconfig: PathBuf,
}

enum Kind {
    Local {
        /// Absent while `stop` or a restart of the API server has it in hand.
        running: Mutex<Option<Box<launch::Running>>>,
        admin_token: String,
        dir: PathBuf,
    },
    External {
        dir: TempDir,
    },
}

impl ControlPlane {
    /// Starts one here and waits until it works: the API server is ready, and with
    /// controllers the nodes are Ready and the default service account is there.
    ///
    /// # Errors
    /// [`Unavailable`] when a program is missing and can't be built; otherwise what went
    /// wrong, with the end of the log of the component that failed.
    pub async fn start(options: Options) -> Result<Self> {
        install_crypto();
        let (running, admin_token) = launch::launch(&options).await?;
        let access = running.access();
        let client = admin_client(&access.server_url, &access.ca_pem, &admin_token)?;
        let plane = Self {
            client,
            controllers: options.controllers,
            kind: Kind::Local {
                dir: running.dir().to_path_buf(),
                running: Mutex::new(Some(Box::new(running))),
                admin_token,
            },
            access,
        };
        let furnished = tokio::select! {
            furnished = plane.furnish(&options) => furnished,
            () = plane.until_one_ends() => Err(anyhow!("a component ended by itself")),
        };
        furnished.map_err(|error| anyhow!("{error:#}\n{}", plane.what_the_logs_say()))?;
        Ok(plane)
    }

    /// The cluster that `KATABATCH_E2E_KUBECONFIG` names, else a new one.
    ///
    /// # Errors
    /// As [`ControlPlane::start`]; or when that cluster can't be reached.
    pub async fn external_or_start(options: Options) -> Result<Self> {
        match std::env::var_os(KUBECONFIG_VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => Self::external(Path::new(&path)).await,
            None => Self::start(options).await,
        }
    }

    /// Whether it was started here, so that its parts can be stopped and pods behave as
    /// told.
    pub fn is_local(&self) -> bool {
        matches!(self.kind, Kind::Local { .. })
    }

    /// For a test of something that only a control plane started here has.
    ///
    /// # Errors
    /// [`Unavailable`] when the cluster is somebody else's: the test is then ignored.
    pub fn require_local(&self, feature: &str) -> Result<()> {
        if self.is_local() {
            return Ok(());
        }
        Err(Unavailable::deliberate(
            format!("{feature} needs a control plane started here"),
            format!("run without {KUBECONFIG_VARIABLE}"),
        )
        .into())
    }

    /// An image whose container ends by itself with success. No fake node looks at it;
    /// for an external cluster `KATABATCH_E2E_IMAGE` names one that it can pull.
    pub fn worker_image(&self) -> String {
        std::env::var(IMAGE_VARIABLE).unwrap_or_else(|_| "registry.test/worker:1".into())
    }

    /// A kubeconfig file with every right.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.access.admin_kubeconfig.clone()
    }

    /// The API server's URL.
    pub fn server_url(&self) -> &str {
        &self.access.server_url
    }

    /// The CA that signed the API server's certificate.
    pub fn ca_pem(&self) -> &str {
        &self.access.ca_pem
    }

    /// The file of that CA.
    pub fn ca_file(&self) -> &Path {
        &self.access.ca_file
    }

    /// A client with every right, which doesn't retry: a test sees what happened.
    pub fn admin_client(&self) -> Client {
        self.client.clone()
    }

    /// Where the components' logs lie, `<component>.log` each.
    ///
    /// # Errors
    /// [`Unavailable`] on an external cluster.
    pub fn logs_dir(&self) -> Result<&Path> {
        self.require_local("reading the components' logs")?;
        Ok(self.dir())
    }

    /// Stops every process. Dropping does the same; calling twice does nothing.
    pub fn stop(&self) {
        if let Kind::Local { running, .. } = &self.kind {
            // Taken out first, so that it ends without the lock held.
            let taken = running.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(taken);
        }
    }

    /// Stops the API server: connections are refused until it is started again.
    ///
    /// # Errors
    /// [`Unavailable`] on an external cluster.
    pub async fn stop_apiserver(&self) -> Result<()> {
        self.with_running("stopping the API server", |mut running| async move {
            let result = running.stop(Program::ApiServer).await;
            (running, result)
        })
        .await
    }

    /// Kills the API server, which then finishes nothing that it was at.
    ///
    /// # Errors
    /// [`Unavailable`] on an external cluster.
    pub async fn kill_apiserver(&self) -> Result<()> {
        self.with_running("killing the API server", |mut running| async move {
            let result = running.kill(Program::ApiServer).await;
            (running, result)
        })
        .await
    }

    /// The URL of the store, which keeps every version of every object for some minutes.
    ///
    /// # Errors
    /// [`Unavailable`] on an external cluster.
    pub fn store_url(&self) -> Result<String> {
        self.require_local("reading the store")?;
        self.look_at_running(|running| running.store_url()).context("the control plane is stopped")
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// When it doesn't come up; [`Unavailable`] on an external cluster.
    pub async fn start_apiserver(&self) -> Result<()> {
        self.with_running("starting the API server", |mut running| async move {
            let result = running.start_apiserver().await;
            (running, result)
        })
        .await
    }

    /// Freezes a component: it answers nothing, and its connections stay open.
    ///
    /// # Errors
    /// When it doesn't run; [`Unavailable`] on an external cluster.
    pub async fn pause(&self, program: Program) -> Result<()> {
        let stands_still = self.component(program, "pausing a component", Component::pause)?;
        eventually("it stands still", Duration::from_secs(30), || {
            let seen = Seen::when(stands_still(), || "a thread that runs".into());
            async { Ok(seen) }
        })
        .await
    }

    /// Lets a frozen component go on.
    ///
    /// # Errors
    /// As [`ControlPlane::pause`].
    pub fn resume(&self, program: Program) -> Result<()> {
        self.component(program, "resuming a component", Component::resume)
    }

    fn component<T>(
        &self,
        program: Program,
        feature: &str,
        act: impl FnOnce(&Component) -> Result<T>,
    ) -> Result<T> {
        self.require_local(feature)?;
        let Kind::Local { running, .. } = &self.kind else {
            bail!("it isn't local");
        };
        let running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.as_ref().context("the control plane is stopped")?;
        act(running.component(program)?)
    }

    /// Nothing more comes of waiting then.
    async fn until_one_ends(&self) {
        let mut ticks = interval(Duration::from_millis(200));
        while self.look_at_running(|running| running.ended().next().is_none()) != Some(false) {
            ticks.tick().await;
        }
    }

    /// The ends of the logs: of those that have ended if any, else of all.
    fn what_the_logs_say(&self) -> String {
        self.look_at_running(launch::Running::log_tails).unwrap_or_default()
    }

    fn look_at_running<T>(&self, look: impl FnOnce(&mut launch::Running) -> T) -> Option<T> {
        let Kind::Local { running, .. } = &self.kind else {
            return None;
        };
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_deref_mut().map(look)
    }

    async fn with_running<F, Fut>(&self, feature: &str, act: F) -> Result<()>
    where
        F: FnOnce(Box<launch::Running>) -> Fut,
        Fut: Future<Output = (Box<launch::Running>, Result<()>)>,
    {
        self.require_local(feature)?;
        let Kind::Local { running, .. } = &self.kind else {
            return Ok(());
        };
        let taken = running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .context("the control plane is stopped, or another call is at work on it")?;
        let (back, result) = act(taken).await;
        *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(back);
        result
    }

    fn dir(&self) -> &Path {
        match &self.kind {
            Kind::Local { dir, .. } => dir,
            Kind::External { dir } => dir.path(),
        }
    }
}

/// Two providers may be compiled in; without a choice made, the first TLS connection
/// would panic. A second call changes nothing.
pub(crate) fn install_crypto() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// The CA's certificates as bytes.
pub(crate) fn ca_der(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().context("read the CA")
}

/// Made by hand, not from the kubeconfig, so that no environment variable changes it.
fn admin_client(server: &str, ca_pem: &str, token: &str) -> Result<Client> {
    let mut config = Config::new(server.parse().context("read the server's URL")?);
    config.root_cert = Some(ca_der(ca_pem)?.iter().map(|der| der.to_vec()).collect());
    config.default_retry = false;
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    Client::try_from(config).context("make the administrator's client")
}
