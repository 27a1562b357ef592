//! What `katabatch check` makes of what it has seen: the judgments, apart from whoever looked.
//!
//! Pure: each file here takes what was read (a subscription's settings, a RuntimeClass, nodes,
//! flags) and gives findings. Who reads it, within what time, and how it is printed is the
//! command's business.

pub mod findings;
pub mod flags;
pub mod needs;
pub mod nodes;
pub mod readers;
pub mod runtime_class;
pub mod spool;
pub mod subscription;
