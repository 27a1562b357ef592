//! What must hold for every input from outside, whatever it is: one file a target, each with one
//! `check` that panics when it does not.
//!
//! The fuzz targets call these, and so does a test of the library (`hostile_input`), which runs them
//! over the seeds and random changes of them wherever the tests run.

pub mod batch_yaml;
pub mod environment;
pub mod message;
pub mod quantity;
pub mod redact;
pub mod rendered_job;
pub mod signed_url;
