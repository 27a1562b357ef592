//! One control plane for a whole test binary: started by the first test that asks for
//! it, stopped by the harness' `main` (a static is never dropped).

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tokio::sync::OnceCell;

use crate::control_plane::{ControlPlane, Options};
use crate::unavailable::Unavailable;

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
        match ControlPlane::external_or_start(Options::default()).await {
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

/// Stops it, if it was started.
pub fn stop() {
    if let Some(Ok(plane)) = PLANE.get() {
        plane.stop();
    }
}
