//! Google Cloud: how its APIs are reached, and as whom.
//!
//! Leaves out what is asked of them: each queue, catalog or backend speaks its own API. Datastore is
//! here, since the catalog and the flags both live in it, and Cloud Storage, which files, inputs and
//! outputs are in.

pub mod channel;
pub mod credentials;
pub mod datastore;
pub mod gke;
pub mod iam;
pub mod rest;
pub mod storage;
pub mod tokens;
