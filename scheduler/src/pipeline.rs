//! The stages that a task moves through.

pub mod resolve;
