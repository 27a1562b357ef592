//! The command line's parts.

pub mod demo_worker;
pub mod output;
pub mod queue;
