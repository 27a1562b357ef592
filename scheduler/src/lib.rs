//! katabatch turns a stream of queued fuzzing tasks into isolated batch jobs.
//!
//! `domain` is pure; `queue`, `catalog`, `flags` and `backend` are the walls to the outside world
//! (a trait each, with its implementations below it); `config` is the configuration and the farm's own
//! files, read through `located`, which keeps lines; `render` makes Jobs without any client;
//! `pipeline` moves tasks through the stages, knowing only traits; `service` is the one place that
//! puts real things together. ARCHITECTURE.md says who may use whom, and a test holds it.

pub mod backend;
pub mod catalog;
pub mod check;
pub mod cli;
pub mod clock;
pub mod config;
pub mod controls;
pub mod demo;
pub mod domain;
pub mod flags;
pub mod gate;
pub mod gcp;
pub mod http;
pub mod leadership;
pub mod ledger;
pub mod located;
pub mod metrics;
pub mod pipeline;
pub mod queue;
pub mod records;
pub mod render;
pub mod service;
#[cfg(test)]
mod simulation;
pub mod status;
pub mod telemetry;
pub mod why;
