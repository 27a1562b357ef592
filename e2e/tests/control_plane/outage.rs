//! An API server that stops and starts. On a control plane of its own: the other tests
//! go on with theirs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use katabatch_e2e::binaries::Program;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::{Case, ControlPlane, Options, eventually};
use tokio::time::timeout;

pub async fn the_api_server_goes_and_comes_back(case: Case) -> Result<()> {
    case.plane.require_local("stopping the API server")?;
    let plane = ControlPlane::start(Options { controllers: false, ..Options::default() }).await?;
    let client = plane.admin_client();
    let url = plane.server_url().to_owned();

    plane.stop_apiserver().await?;
    ensure!(client.apiserver_version().await.is_err());
    plane.start_apiserver().await?;
    ensure!(client.apiserver_version().await?.major == "1");
    ensure!(plane.server_url() == url);

    plane.pause(Program::ApiServer).await?;
    let frozen = timeout(Duration::from_millis(300), client.apiserver_version()).await;
    ensure!(frozen.is_err(), "a frozen server answered: {frozen:?}");
    plane.resume(Program::ApiServer)?;
    eventually("the server goes on", Duration::from_secs(30), || async {
        client.apiserver_version().await?;
        Ok(Seen::Done(()))
    })
    .await?;

    let dir = plane.logs_dir()?.to_path_buf();
    drop(plane);
    ensure!(!dir.exists(), "{} is left", dir.display());
    Ok(())
}

pub async fn a_start_that_fails_shows_the_log(case: Case) -> Result<()> {
    case.plane.require_local("starting an API server")?;
    let outcome = ControlPlane::start(Options {
        controllers: false,
        apiserver_arguments: vec!["--no-such-argument".into()],
        ..Options::default()
    });
    let error = outcome.await.err().context("it started")?;
    let text = format!("{error:#}");
    for expected in ["kube-apiserver doesn't start", "it ended by itself", "--no-such-argument"] {
        ensure!(text.contains(expected), "{expected:?} is not in: {text}");
    }
    Ok(())
}
