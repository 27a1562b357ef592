//! The program `katabatch`: parses the command line, starts logging, runs one command, and turns
//! its end into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    katabatch::cli::main()
}
