//! Google Cloud: how its APIs are reached, and as whom.
//!
//! Leaves out what is asked of them: each queue, catalog or backend speaks its own API.

pub mod channel;
