//! Where the kernel lets this process make memory cgroups, version 1 or 2, or what it lacks.
//!
//! What is made there for one task is [`group`]'s. Nothing here changes anything but
//! [`Cgroups::take`], and that only where a whole cgroup is this process's alone.
//!
//! Version 2 lets processes only be in leaves of the tree ("no internal processes", Linux,
//! cgroup-v2.rst), so that a place for tasks is a directory above or beside this process: its own
//! cgroup, once it has moved into a leaf of it, where nobody else is in there (a service or scope
//! that is delegated to it), else the nearest one above that may be written (a user's `app.slice`).

pub(super) mod group;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

/// Of the kernel's two interfaces, the one that has the memory controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// A hierarchy for memory alone.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A place for the tasks' cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    version: Version,
    /// Groups are made below.
    place: PathBuf,
    /// The cgroup to leave for a leaf of it before that can be (version 2).
    leave: Option<PathBuf>,
}

/// Why tasks run without memory limits here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{lacks}")]
pub struct NoCgroups {
    /// What is missing.
    pub lacks: String,
    /// What would be right.
    pub hint: &'static str,
}

const MEMORY: &str = "memory";

/// The leaf that this process moves into where it has a cgroup alone.
const LEAF: &str = "katabatch";

const V1_HINT: &str = "run katabatch as root, or in a memory cgroup whose directory is yours \
                       (cgcreate -a USER -t USER -g memory:katabatch)";
const V2_HINT: &str = "start it as `systemd-run --user --scope -p Delegate=yes katabatch …`, or \
                       from a service with `Delegate=memory`, or as root";

impl Cgroups {
    /// Looks for a place. Changes nothing.
    ///
    /// # Errors
    /// [`NoCgroups`] says what is missing and what to do.
    pub fn find() -> Result<Self, NoCgroups> {
        let home = Home::of_this_process()?;
        match home.version {
            Version::V1 => in_version_1(&home.own),
            Version::V2 => in_version_2(&home, std::process::id()),
        }
    }

    /// Makes the place ready to be used.
    ///
    /// # Errors
    /// The kernel refused what its files seemed to permit.
    pub fn take(&self) -> Result<(), NoCgroups> {
        let refused = |what: &Path, error: std::io::Error| NoCgroups {
            lacks: format!("{}: {error}", what.display()),
            hint: V2_HINT,
        };
        if let Some(own) = &self.leave {
            let leaf = own.join(LEAF);
            match std::fs::create_dir(&leaf) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(refused(&leaf, e));
                }
                _ => {}
            }
            let procs = leaf.join("cgroup.procs");
            std::fs::write(&procs, "0").map_err(|e| refused(&procs, e))?;
        }
        if self.version == Version::V2 {
            let control = self.place.join("cgroup.subtree_control");
            std::fs::write(&control, "+memory").map_err(|e| refused(&control, e))?;
        }
        Ok(())
    }

    /// The directory below which tasks' cgroups are made, for a person.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The cgroup of a task of the backend that owns `dir`, whose Job has this name.
    pub(super) fn group(&self, dir: &Path, job: &str) -> group::Group {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = dir.as_os_str().as_bytes();
        let backend = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, dir);
        let path = self.place.join(format!("katabatch-{}", backend.simple())).join(job);
        group::Group { version: self.version, path }
    }
}

/// Where this process itself is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Home {
    version: Version,
    /// Where the hierarchy is mounted: nothing above may be looked at.
    mount: PathBuf,
    /// The directory of the cgroup that it is in.
    pub(super) own: PathBuf,
}

impl Home {
    pub(super) fn of_this_process() -> Result<Self, NoCgroups> {
        let read = |file| std::fs::read_to_string(file).unwrap_or_default();
        Self::parse(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")).ok_or_else(|| {
            NoCgroups {
                lacks: "no cgroup hierarchy with the memory controller is mounted".into(),
                hint: "memory limits need Linux with cgroups mounted at /sys/fs/cgroup",
            }
        })
    }

    /// From `/proc/self/cgroup` (`ID:CONTROLLERS:PATH`) and `/proc/self/mountinfo` (proc(5)). Where
    /// version 1 has the memory controller, version 2 can't have it.
    fn parse(cgroup: &str, mountinfo: &str) -> Option<Self> {
        let line = |wanted: &dyn Fn(&str) -> bool| {
            let fields = |line: &str| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                wanted(controllers).then(|| path.to_owned())
            };
            cgroup.lines().find_map(fields)
        };
        let with_memory = |controllers: &str| controllers.split(',').any(|name| name == MEMORY);
        let (version, path) = match line(&with_memory) {
            Some(path) => (Version::V1, path),
            None => (Version::V2, line(&str::is_empty)?),
        };
        let mounted = |line: &str| {
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let (root, mount) = (before.next()?, before.next()?);
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1).unwrap_or_default());
            let fits = match version {
                Version::V1 => kind == "cgroup" && options.split(',').any(|o| o == MEMORY),
                Version::V2 => kind == "cgroup2",
            };
            // A container may see its own part of the tree only, mounted as if it were all.
            let below = Path::new(&path).strip_prefix(root).ok()?;
            fits.then(|| (PathBuf::from(mount), Path::new(mount).join(below)))
        };
        let (mount, own) = mountinfo.lines().find_map(mounted)?;
        // A path that leads up is of another namespace: nothing there is seen from here.
        let outside = own.components().any(|part| part == std::path::Component::ParentDir);
        (!outside).then_some(Self { version, mount, own })
    }
}

fn in_version_1(own: &Path) -> Result<Cgroups, NoCgroups> {
    if !writable(own) || !writable(&own.join("cgroup.procs")) {
        let lacks = format!("{} (cgroup v1) can't be written", own.display());
        return Err(NoCgroups { lacks, hint: V1_HINT });
    }
    Ok(Cgroups { version: Version::V1, place: own.to_owned(), leave: None })
}

fn in_version_2(home: &Home, me: u32) -> Result<Cgroups, NoCgroups> {
    let found = |place: &Path, leave| Cgroups { version: Version::V2, place: place.into(), leave };
    let own = &home.own;
    // The root cgroup alone may have processes beside groups, and none of its files is ours to set.
    if *own != home.mount && may_have_groups(own) && processes(own) == Some(vec![me]) {
        return Ok(found(own, Some(own.clone())));
    }
    let above = own.ancestors().skip(1).take_while(|dir| dir.starts_with(&home.mount));
    for dir in above {
        let ready = names(&dir.join("cgroup.subtree_control")).any(|name| name == MEMORY);
        if may_have_groups(dir) && (ready || processes(dir).is_some_and(|all| all.is_empty())) {
            return Ok(found(dir, None));
        }
    }
    let lacks = format!(
        "neither {} nor a cgroup above it is delegated to this user with the memory controller",
        own.display()
    );
    Err(NoCgroups { lacks, hint: V2_HINT })
}

/// Whether this process may make cgroups with memory limits there and move processes into them:
/// for that, the nearest common ancestor's `cgroup.procs` must be writable, too.
fn may_have_groups(dir: &Path) -> bool {
    names(&dir.join("cgroup.controllers")).any(|name| name == MEMORY)
        && ["", "cgroup.procs", "cgroup.subtree_control"].iter().all(|f| writable(&dir.join(f)))
}

fn writable(path: &Path) -> bool {
    access(path, AccessFlags::W_OK).is_ok()
}

fn names(file: &Path) -> impl Iterator<Item = String> + use<> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn processes(dir: &Path) -> Option<Vec<u32>> {
    let text = std::fs::read_to_string(dir.join("cgroup.procs")).ok()?;
    text.lines().map(|line| line.trim().parse().ok()).collect()
}
