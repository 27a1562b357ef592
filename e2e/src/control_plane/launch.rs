//! The processes of a control plane: ports, arguments, order of start and stop.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::net::TcpStream;

use super::{Access, Options, admin_client};
use crate::binaries::{Binaries, Program};
use crate::certificates::{Certificates, write_private};
use crate::cluster_objects::FAKE;
use crate::component::Component;
use crate::eventually::{Seen, eventually};
use crate::kubeconfig::Kubeconfig;
use crate::leftovers::RunDir;
use crate::stages;

/// A cold start takes 3 s on two idle cores; a busy machine takes many times that.
const PATIENCE: Duration = Duration::from_secs(90);
/// An API server told to stop drains its watches for up to a minute; nothing here is
/// worth waiting for.
const GRACE: Duration = Duration::from_millis(1500);
/// Free ports are found by asking, and may be taken before they are used.
const ATTEMPTS: usize = 3;

/// Running processes and how to start them again.
pub(super) struct Running {
    components: BTreeMap<Program, Component>,
    recipe: Recipe,
    // Last: the folder goes after the processes that write into it.
    dir: RunDir,
}

struct Recipe {
    binaries: Binaries,
    certificates: Certificates,
    admin_token: String,
    ports: Ports,
    dir: PathBuf,
    apiserver_arguments: Vec<String>,
    controller_manager_arguments: Vec<String>,
}

#[derive(Clone, Copy)]
struct Ports {
    client: u16,
    peer: u16,
    apiserver: u16,
}

impl Ports {
    fn free() -> Result<Self> {
        // All held at once, so that they differ.
        let held: Vec<_> = (0..3)
            .map(|_| TcpListener::bind(("127.0.0.1", 0)))
            .collect::<Result<_, _>>()
            .context("find free ports")?;
        let ports: Vec<_> = held
            .iter()
            .map(|listener| listener.local_addr().map(|address| address.port()))
            .collect::<Result<_, _>>()
            .context("read a port")?;
        match ports[..] {
            [client, peer, apiserver] => Ok(Self { client, peer, apiserver }),
            _ => bail!("found {} ports of three", ports.len()),
        }
    }
}

/// Starts everything that `options` asks for.
pub(super) async fn launch(options: &Options) -> Result<(Running, String)> {
    let programs: &[Program] =
        if options.controllers { &Program::ALL } else { &Program::WITHOUT_CONTROLLERS };
    let binaries = Binaries::find(programs).await?;
    let dir = RunDir::claim(options.dir.as_deref())?;
    let path = dir.path().to_path_buf();
    let admin_token = uuid::Uuid::new_v4().simple().to_string();
    write_private(
        &path.join("tokens.csv"),
        &format!("{admin_token},admin,admin,\"system:masters\"\n"),
    )?;
    write_private(&path.join("kwok.yaml"), &stages::configuration(&options.stages))?;
    let mut running = Running {
        components: BTreeMap::new(),
        recipe: Recipe {
            binaries,
            certificates: Certificates::generate(&path)?,
            admin_token: admin_token.clone(),
            ports: Ports::free()?,
            dir: path,
            apiserver_arguments: options.apiserver_arguments.clone(),
            controller_manager_arguments: options.controller_manager_arguments.clone(),
        },
        dir,
    };
    let mut attempt = 1;
    while let Err(error) = running.start_storage_and_server().await {
        let taken = format!("{error:#}").contains("address already in use");
        if !taken || attempt == ATTEMPTS {
            return Err(error);
        }
        attempt += 1;
        running.components.clear();
        running.recipe.ports = Ports::free()?;
    }
    if options.controllers {
        for program in [Program::ControllerManager, Program::Scheduler, Program::Kwok] {
            running.spawn(program)?;
        }
    }
    Ok((running, admin_token))
}

impl Running {
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn access(&self) -> Access {
        Access {
            server_url: self.recipe.server_url(),
            ca_pem: self.recipe.certificates.ca_pem.clone(),
            ca_file: self.recipe.certificates.ca.clone(),
            admin_kubeconfig: self.recipe.admin_kubeconfig(),
        }
    }

    pub(super) fn component(&self, program: Program) -> Result<&Component> {
        self.components.get(&program).with_context(|| format!("{} doesn't run", program.name()))
    }

    /// The components that have ended by themselves.
    pub(super) fn ended(&mut self) -> impl Iterator<Item = &Component> {
        self.components.values_mut().filter_map(|component| match component.is_running() {
            true => None,
            false => Some(&*component),
        })
    }

    /// The ends of the logs: of those that have ended if any, else of all.
    pub(super) fn log_tails(&mut self) -> String {
        let tail = |component: &Component, state, lines| {
            format!("{} {state}; its log:\n{}\n", component.name(), component.log_tail(lines))
        };
        let ended: String =
            self.ended().map(|component| tail(component, "has ended", 20)).collect();
        match ended.is_empty() {
            true => self.components.values().map(|component| tail(component, "runs", 5)).collect(),
            false => ended,
        }
    }

    /// Where the store answers.
    pub(super) fn store_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.recipe.ports.client)
    }

    /// Ends one component and waits until it is gone.
    pub(super) async fn stop(&mut self, program: Program) -> Result<()> {
        self.end(program, GRACE).await
    }

    /// Kills one component, as a machine that loses power would.
    pub(super) async fn kill(&mut self, program: Program) -> Result<()> {
        self.end(program, Duration::ZERO).await
    }

    async fn end(&mut self, program: Program, grace: Duration) -> Result<()> {
        let mut component = self
            .components
            .remove(&program)
            .with_context(|| format!("{} doesn't run", program.name()))?;
        tokio::task::spawn_blocking(move || {
            if !grace.is_zero() {
                component.ask_to_stop();
            }
            component.finish(Instant::now() + grace)
        })
        .await
        .context("the wait for its end was interrupted")?
    }

    pub(super) async fn start_apiserver(&mut self) -> Result<()> {
        self.spawn(Program::ApiServer)?;
        let client = admin_client(
            &self.recipe.server_url(),
            &self.recipe.certificates.ca_pem,
            &self.recipe.admin_token,
        )?;
        self.until_ready(Program::ApiServer, || {
            let client = client.clone();
            async move {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                client.request_text(request).await?;
                Ok(Seen::Done(()))
            }
        })
        .await
    }

    async fn start_storage_and_server(&mut self) -> Result<()> {
        // The ports may be new ones.
        Kubeconfig {
            server: &self.recipe.server_url(),
            ca: Some(&self.recipe.certificates.ca),
            token: &self.recipe.admin_token,
            namespace: "default",
        }
        .write(self.recipe.admin_kubeconfig())?;
        // Keys are new each time: what an earlier run stored is of no use.
        let _ = std::fs::remove_dir_all(self.recipe.dir.join("etcd"));
        self.spawn(Program::Etcd)?;
        let port = self.recipe.ports.client;
        self.until_ready(Program::Etcd, || async move {
            TcpStream::connect(("127.0.0.1", port)).await?;
            Ok(Seen::Done(()))
        })
        .await?;
        self.start_apiserver().await
    }

    fn spawn(&mut self, program: Program) -> Result<()> {
        let component = Component::spawn(
            program.name(),
            self.recipe.binaries.path(program)?,
            &self.recipe.arguments(program),
            // KWOK would read and make files in the home folder.
            &[("KWOK_WORKDIR", self.recipe.dir.join("kwok").display().to_string())],
            &self.recipe.dir,
        )?;
        self.components.insert(program, component);
        Ok(())
    }

    /// Waits for `look`, but not for a process that has already ended.
    async fn until_ready<F, Fut>(&mut self, program: Program, mut look: F) -> Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<Seen<()>>>,
    {
        let component = self
            .components
            .get_mut(&program)
            .with_context(|| format!("{} doesn't run", program.name()))?;
        let outcome = eventually(program.name(), PATIENCE, || {
            let running = component.is_running();
            let seen = look();
            async move {
                match running {
                    true => Ok(match seen.await? {
                        Seen::Done(()) => Seen::Done(Ok(())),
                        Seen::NotYet(what) => Seen::NotYet(what),
                    }),
                    false => Ok(Seen::Done(Err(anyhow!("it ended by itself")))),
                }
            }
        })
        .await
        .and_then(|ended| ended);
        outcome.map_err(|error| {
            anyhow!(
                "{} doesn't start: {error:#}; the end of its log:\n{}",
                program.name(),
                component.log_tail(20)
            )
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The store last: a server without it says so at length.
        let etcd = self.components.remove(&Program::Etcd);
        let mut rest: Vec<_> = std::mem::take(&mut self.components).into_values().collect();
        for component in &mut rest {
            component.ask_to_stop();
        }
        let deadline = Instant::now() + GRACE;
        for component in &mut rest {
            say_if_failed(component.finish(deadline));
        }
        if let Some(mut etcd) = etcd {
            etcd.ask_to_stop();
            say_if_failed(etcd.finish(Instant::now() + GRACE));
        }
    }
}

fn say_if_failed(outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("{error:#}");
    }
}

impl Recipe {
    fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.apiserver)
    }

    fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// Every command line names the run's folder: that is how a later run knows it.
    fn arguments(&self, program: Program) -> Vec<String> {
        let dir = self.dir.display();
        let kubeconfig = self.admin_kubeconfig();
        let kubeconfig = kubeconfig.display();
        let Ports { client, peer, apiserver } = self.ports;
        let certificates = &self.certificates;
        match program {
            Program::Etcd => vec![
                "--name=e2e".into(),
                format!("--data-dir={dir}/etcd"),
                format!("--listen-client-urls=http://127.0.0.1:{client}"),
                format!("--advertise-client-urls=http://127.0.0.1:{client}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster=e2e=http://127.0.0.1:{peer}"),
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
            ],
            Program::ApiServer => [
                format!("--etcd-servers=http://127.0.0.1:{client}"),
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
                // The address is a loopback one, which an Endpoints object may not hold.
                "--endpoint-reconciler-type=none".into(),
                format!("--secure-port={apiserver}"),
                format!("--tls-cert-file={}", certificates.serving.display()),
                format!("--tls-private-key-file={}", certificates.serving_key.display()),
                format!("--client-ca-file={}", certificates.ca.display()),
                format!("--token-auth-file={dir}/tokens.csv"),
                "--authorization-mode=RBAC".into(),
                "--allow-privileged=true".into(),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!(
                    "--service-account-key-file={}",
                    certificates.service_account_public.display()
                ),
                format!(
                    "--service-account-signing-key-file={}",
                    certificates.service_account_key.display()
                ),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                format!("--kubelet-client-certificate={}", certificates.kubelet_client.display()),
                format!("--kubelet-client-key={}", certificates.kubelet_client_key.display()),
                "--kubelet-preferred-address-types=InternalIP,Hostname".into(),
            ]
            .into_iter()
            .chain(self.apiserver_arguments.iter().cloned())
            .collect(),
            Program::ControllerManager => [
                format!("--kubeconfig={kubeconfig}"),
                "--controllers=*,-node-ipam-controller".into(),
                "--kube-api-qps=500".into(),
                "--kube-api-burst=1000".into(),
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
                format!("--root-ca-file={}", certificates.ca.display()),
                format!(
                    "--service-account-private-key-file={}",
                    certificates.service_account_key.display()
                ),
            ]
            .into_iter()
            .chain(self.controller_manager_arguments.iter().cloned())
            .collect(),
            Program::Scheduler => vec![
                format!("--kubeconfig={kubeconfig}"),
                "--kube-api-qps=500".into(),
                "--kube-api-burst=1000".into(),
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
            ],
            Program::Kwok => vec![
                format!("--kubeconfig={kubeconfig}"),
                format!("--config={dir}/kwok.yaml"),
                "--manage-all-nodes=false".into(),
                // A node beside the fake ones may have a kubelet of its own.
                format!("--manage-nodes-with-annotation-selector={FAKE}=fake"),
            ],
            Program::Kubelet => Vec::new(),
        }
    }
}
