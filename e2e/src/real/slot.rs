//! Which real node of this machine a run has: a number, from which its folder, address, bridge and
//! control groups follow. A lock says that the run lives; what a run that died left under a number
//! is cleaned away before any number is given out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cgroups::Cgroups;
use super::{leavings, sysctls};

/// On a disk, not in memory: containers' files lie here. A short path, since a socket's is at most
/// 107 bytes long.
const BASE: &str = "/var/lib/katabatch-e2e";
/// More than anybody runs side by side.
const SLOTS: u8 = 9;
const SYSCTLS: &str = "sysctls.json";

/// A number that is this run's until it is dropped. Cleans up then.
pub struct Slot {
    names: Names,
    lock: Option<File>,
}

/// What follows from a number.
#[derive(Debug, Clone)]
pub struct Names {
    /// The number, from one.
    pub number: u8,
    /// The folder of everything.
    pub dir: PathBuf,
}

impl Names {
    fn of(number: u8) -> Self {
        Self { number, dir: Path::new(BASE).join(format!("node-{number}")) }
    }

    /// The node's name.
    pub fn node(&self) -> String {
        format!("real-{}", self.number)
    }

    /// The kubelet's address, on lo.
    pub fn address(&self) -> String {
        format!("10.99.0.{}", self.number)
    }

    /// The pods' network.
    pub fn subnet(&self) -> String {
        format!("10.98.{}.0/24", self.number)
    }

    /// The pods' bridge; a name of at most 15 bytes.
    pub fn bridge(&self) -> String {
        format!("kb-e2e-{}", self.number)
    }

    /// The name of the control groups.
    pub fn cgroup(&self) -> String {
        format!("katabatch-e2e-{}", self.number)
    }

    /// The control groups.
    ///
    /// # Errors
    /// As [`Cgroups::named`].
    pub fn cgroups(&self) -> Result<Cgroups> {
        Cgroups::named(&self.cgroup())
    }

    /// containerd's socket, by which its shims are known too.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }
}

impl Slot {
    /// Cleans up after runs that died, takes a free number and makes its folder.
    ///
    /// # Errors
    /// When all are taken, or something of a dead run can't be removed.
    pub fn claim() -> Result<Self> {
        // No slot is made before the turn is over: one that is dropped takes a turn.
        let turn = turn()?;
        let mut free = None;
        for number in 1..=SLOTS {
            let names = Names::of(number);
            let Some(lock) = locked(number)? else { continue };
            if names.dir.exists() {
                eprintln!("cleaning up {} after a run that died", names.node());
                leavings::remove(&names)?;
            }
            // The others' locks go with this loop.
            free = free.or(Some((names, lock)));
        }
        let Some((names, lock)) = free else {
            bail!("all {SLOTS} real nodes of this machine are taken");
        };
        sysctls::save(&Path::new(BASE).join(SYSCTLS))?;
        fs::create_dir_all(&names.dir)
            .with_context(|| format!("create {}", names.dir.display()))?;
        drop(turn);
        Ok(Self { names, lock: Some(lock) })
    }

    /// What follows from the number.
    pub fn names(&self) -> &Names {
        &self.names
    }

    fn give_back(&mut self) -> Result<()> {
        let _turn = turn()?;
        leavings::remove(&self.names)?;
        drop(self.lock.take());
        for number in 1..=SLOTS {
            if locked(number)?.is_none() {
                return Ok(());
            }
        }
        leavings::remove_shared();
        sysctls::restore(&Path::new(BASE).join(SYSCTLS))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            eprintln!("{} is not wholly removed: {error:#}", self.names.node());
        }
    }
}

/// One run at a time looks at the numbers.
fn turn() -> Result<File> {
    fs::create_dir_all(BASE).with_context(|| format!("create {BASE}"))?;
    let file = File::create(Path::new(BASE).join("turn.lock")).context("create the lock")?;
    file.lock().context("wait for the lock")?;
    Ok(file)
}

/// The number's lock, unless its run lives.
fn locked(number: u8) -> Result<Option<File>> {
    let path = Path::new(BASE).join(format!("node-{number}.lock"));
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    Ok(file.try_lock().is_ok().then_some(file))
}
