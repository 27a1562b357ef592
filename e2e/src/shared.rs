//! One control plane for a whole test binary: started by the first test that asks for
//! it, stopped by the harness' `main` (a static is never dropped).

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tokio::sync::OnceCell;

use crate::control_plane::{ControlPlane, KUBECONFIG_VARIABLE, Options};
use crate::real::{self, RealNode};
use crate::unavailable::Unavailable;

/// The variable that names a folder for logs that outlive the run.
pub const DIR_VARIABLE: &str = "KATABATCH_E2E_DIR";
/// The variable that rules tiers out, separated by commas: `real` is one that can be.
pub const WITHOUT_VARIABLE: &str = "KATABATCH_E2E_WITHOUT";

static PLANE: OnceCell<Result<Arc<ControlPlane>, Failure>> = OnceCell::const_new();

static REAL: OnceCell<Result<Real, Failure>> = OnceCell::const_new();

/// A control plane and its real node.
#[derive(Clone)]
pub struct Real {
    /// The control plane.
    pub plane: Arc<ControlPlane>,
    /// The node, where every pod goes that doesn't tolerate the fake ones.
    pub node: Arc<RealNode>,
}

/// Why there is none. Kept, so that the second test doesn't wait for the same failure.
#[derive(Clone)]
enum Failure {
    Unavailable(Unavailable),
    Broken(String),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Unavailable>() {
            Ok(unavailable) => Self::Unavailable(unavailable),
            Err(error) => Self::Broken(format!("{error:#}")),
        }
    }
}

impl From<Failure> for anyhow::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable(unavailable) => unavailable.into(),
            Failure::Broken(text) => anyhow!(text),
        }
    }
}

/// The run's control plane; an external cluster if the environment names one.
///
/// # Errors
/// [`Unavailable`] when the machine lacks what it takes; otherwise why it didn't start.
pub async fn shared() -> Result<Arc<ControlPlane>> {
    let started = PLANE.get_or_init(|| async {
        let options = Options { dir: kept_dir(), ..Options::default() };
        ControlPlane::external_or_start(options).await.map(Arc::new).map_err(Failure::from)
    });
    Ok(started.await.clone()?)
}

/// The run's control plane with a node that runs pods.
///
/// # Errors
/// As [`shared`]; [`Unavailable`] also where real pods are ruled out.
pub async fn real() -> Result<Real> {
    let started = REAL.get_or_init(|| async { start_real().await.map_err(Failure::from) });
    Ok(started.await.clone()?)
}

async fn start_real() -> Result<Real> {
    let ruled_out = |what: &str, variable: &str| {
        Unavailable::deliberate(what.to_owned(), format!("run without {variable}"))
    };
    if env::var(WITHOUT_VARIABLE).is_ok_and(|tiers| tiers.split(',').any(|tier| tier == "real")) {
        return Err(ruled_out("real pods are ruled out", WITHOUT_VARIABLE).into());
    }
    if env::var_os(KUBECONFIG_VARIABLE).is_some_and(|path| !path.is_empty()) {
        return Err(ruled_out("a real node needs a control plane here", KUBECONFIG_VARIABLE).into());
    }
    real::require().await?;
    let options = Options {
        nodes: 1,
        beside_real: true,
        dir: kept_dir(),
        // A node that is lost is so after 50 s otherwise.
        controller_manager_arguments: vec!["--node-monitor-grace-period=20s".into()],
        ..Options::default()
    };
    let plane = Arc::new(ControlPlane::start(options).await?);
    let node = Arc::new(RealNode::start(&plane).await?);
    Ok(Real { plane, node })
}

/// A folder of this run's own under `KATABATCH_E2E_DIR`, whose logs stay when the run is
/// over: what a hosted workflow keeps of a failure.
fn kept_dir() -> Option<PathBuf> {
    let base = env::var_os(DIR_VARIABLE).filter(|dir| !dir.is_empty())?;
    Some(PathBuf::from(base).join(format!("run-{}", std::process::id())))
}

/// Stops what was started.
pub fn stop() {
    // A test may have a node of its own.
    real::stop_all();
    if let Some(Ok(real)) = REAL.get() {
        real.plane.stop();
    }
    if let Some(Ok(plane)) = PLANE.get() {
        plane.stop();
    }
}
