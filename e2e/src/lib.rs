//! What an end-to-end run of katabatch stands on: a real control plane without a
//! container engine, a proxy that injects faults in front of it, and a test
//! harness that says why a tier was left out. The scheduler itself is not here.

pub mod binaries;
pub mod certificates;
pub mod cluster_objects;
pub mod component;
pub mod control_plane;
pub mod eventually;
pub mod kubeconfig;
pub mod leftovers;
pub mod proxy;
pub mod shared;
pub mod stages;
pub mod tier;
pub mod unavailable;

pub use control_plane::{ControlPlane, Namespace, Options};
pub use eventually::eventually;
pub use proxy::Proxy;
pub use stages::Behaviour;
pub use tier::{Case, Suite, Tier};
pub use unavailable::Unavailable;
