//! What an end-to-end run of katabatch stands on: a real control plane without a
//! container engine, a proxy that injects faults in front of it, and a test
//! harness that says why a tier is left out. The scheduler itself is not here.
//!
//! What the environment may say:
//!
//! | variable | meaning |
//! |---|---|
//! | `KUBEBUILDER_ASSETS` | a folder with the control plane's programs, looked at first |
//! | `XDG_CACHE_HOME` | where programs that were built are kept (`~/.cache`) |
//! | `KATABATCH_E2E_KUBECONFIG` | use this cluster instead of starting one |
//! | `KATABATCH_E2E_IMAGE` | an image for test Jobs that such a cluster can run to success |
//! | `KATABATCH_E2E_DIR` | keep each test binary's data and logs in a folder under this one |
//! | `KATABATCH_E2E_WITHOUT=real` | leave the tests out whose pods run on this machine |
//! | `KATABATCH_REQUIRE=all` | a tier that is missing fails its tests, instead of ignoring them |

pub mod batch;
pub mod bench;
pub mod binaries;
pub mod certificates;
pub mod cluster_objects;
pub mod component;
pub mod control_plane;
pub mod datastore_emulator;
pub mod emulator;
pub mod eventually;
pub mod farm;
pub mod faults;
mod format;
pub mod gcs;
pub mod google;
pub mod google_rest;
pub mod http_client;
pub mod kubeconfig;
pub mod leftovers;
pub mod ndb;
pub mod process;
pub mod proxy;
pub mod python;
pub mod rbac;
pub mod real;
pub mod scheduler;
pub mod shared;
pub mod site;
pub mod stages;
pub mod tier;
pub mod unavailable;
pub mod up;

pub use control_plane::{ControlPlane, Namespace, Options};
pub use eventually::eventually;
pub use proxy::Proxy;
pub use stages::Behaviour;
pub use tier::{Case, Suite, Tier};
pub use unavailable::Unavailable;
