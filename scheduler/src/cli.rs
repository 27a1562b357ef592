//! The command line: one file per subcommand, and how all of them print.

pub mod output;
pub mod queue;
