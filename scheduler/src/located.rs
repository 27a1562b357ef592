//! What a file says, with the line on which it says it.
//!
//! Configuration, the farm's own files and entity files are all read through a [`tree`] that keeps
//! lines, and then by a [`reading`] that collects every problem of a file before it gives up, each
//! with file, line and key. What a key means is the reader's own to know.

pub mod duration;
pub mod entities;
pub mod problem;
pub mod reading;
pub mod spans;
pub mod tree;
