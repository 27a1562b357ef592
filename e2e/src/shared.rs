//! One control plane for a whole test binary: started by the first test that asks for
//! it, stopped by the harness' `main` (a static is never dropped).

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tokio::sync::OnceCell;

use crate::control_plane::{ControlPlane, Options};
use crate::unavailable::Unavailable;

/// The variable that names a folder for logs that outlive the run.
pub const DIR_VARIABLE: &str = "KATABATCH_E2E_DIR";

static PLANE: OnceCell<Result<Arc<ControlPlane>, Failure>> = OnceCell::const_new();

/// Why there is none. Kept, so that the second test doesn't wait for the same failure.
#[derive(Clone)]
enum Failure {
    Unavailable(Unavailable),
    Broken(String),
}

/// The run's control plane; an external cluster if the environment names one.
///
/// # Errors
/// [`Unavailable`] when the machine lacks what it takes; otherwise why it didn't start.
pub async fn shared() -> Result<Arc<ControlPlane>> {
    let started = PLANE.get_or_init(|| async {
        let options = Options { dir: kept_dir(), ..Options::default() };
        match ControlPlane::external_or_start(options).await {
            Ok(plane) => Ok(Arc::new(plane)),
            Err(error) => Err(match error.downcast::<Unavailable>() {
                Ok(unavailable) => Failure::Unavailable(unavailable),
                Err(error) => Failure::Broken(format!("{error:#}")),
            }),
        }
    });
    match started.await.clone() {
        Ok(plane) => Ok(plane),
        Err(Failure::Unavailable(unavailable)) => Err(unavailable.into()),
        Err(Failure::Broken(text)) => Err(anyhow!(text)),
    }
}

/// A folder of this run's own under `KATABATCH_E2E_DIR`, whose logs stay when the run is
/// over: what a hosted workflow keeps of a failure.
fn kept_dir() -> Option<PathBuf> {
    let base = env::var_os(DIR_VARIABLE).filter(|dir| !dir.is_empty())?;
    Some(PathBuf::from(base).join(format!("run-{}", std::process::id())))
}

/// Stops it, if it was started.
pub fn stop() {
    if let Some(Ok(plane)) = PLANE.get() {
        plane.stop();
    }
}
