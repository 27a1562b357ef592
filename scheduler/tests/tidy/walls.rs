//! Who may use whom inside the library, as ARCHITECTURE.md says it, held by reading paths.
//!
//! Only shipped code is judged: tests may reach further. A module that is not in the table is a
//! fault, so that each new one gets its walls on the day that it is made.

use std::collections::BTreeSet;

use super::source::Source;

/// One module (and all below it) of the library.
struct Wall {
    module: &'static str,
    /// The modules it may use. A name stands for that module and what is below it, a name that
    /// ends in `!` for that one alone.
    may_use: &'static [&'static str],
    crates: Crates,
}

/// The dependencies that a module may use; `std` always.
enum Crates {
    /// These.
    Only(&'static [&'static str]),
    /// All but these.
    AllBut(&'static [&'static str]),
}
use Crates::{AllBut, Only};

/// Small crates without a runtime, a client or a template engine.
const PURE: &[&str] = &[
    "hex",
    "jiff",
    "percent_encoding",
    "regex",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "url",
    "uuid",
];
/// What talks to a cluster or a web server.
const CLIENTS: &[&str] =
    &["kube", "k8s_openapi", "hyper", "hyper_util", "http_body_util", "tower", "reqwest", "axum"];
/// What the pipeline leaves to the other side of its traits.
const OUTSIDE: &[&str] = &[
    "kube",
    "k8s_openapi",
    "hyper",
    "hyper_util",
    "http",
    "http_body_util",
    "tower",
    "reqwest",
    "axum",
    "rusqlite",
    "tera",
    "nix",
    "clap",
    "indicatif",
    "rand",
    "rustls",
    "serde_saphyr",
];
/// Everything.
const ALL: &[&str] = &[""];

#[rustfmt::skip]
const WALLS: &[Wall] = &[
    Wall { module: "domain", may_use: &[], crates: Only(PURE) },
    Wall { module: "clock", may_use: &[], crates: Only(&["jiff", "tokio"]) },
    Wall { module: "located", may_use: &["domain", "catalog::entity", "flags!"], crates: AllBut(CLIENTS) },
    Wall { module: "config", may_use: &["domain", "located", "gate::routes"], crates: AllBut(CLIENTS) },
    Wall { module: "queue", may_use: &["domain"], crates: AllBut(CLIENTS) },
    Wall { module: "queue::memory", may_use: &["domain", "clock", "queue!"], crates: AllBut(CLIENTS) },
    Wall { module: "queue::pubsub", may_use: &["domain", "clock", "queue!", "gcp"], crates: AllBut(CLIENTS) },
    Wall { module: "queue::push", may_use: &["domain", "clock", "queue!"], crates: AllBut(CLIENTS) },
    Wall { module: "queue::spool", may_use: &["domain", "clock", "queue!", "located"], crates: AllBut(CLIENTS) },
    Wall { module: "catalog", may_use: &["domain"], crates: AllBut(CLIENTS) },
    Wall { module: "catalog::environment", may_use: &["domain"], crates: Only(PURE) },
    Wall { module: "catalog::file", may_use: &["domain", "clock", "catalog", "located", "config::watch", "config::files"], crates: AllBut(CLIENTS) },
    Wall { module: "catalog::cached", may_use: &["domain", "clock", "catalog!", "catalog::entity"], crates: AllBut(CLIENTS) },
    Wall { module: "catalog::datastore", may_use: &["domain", "catalog!", "catalog::entity", "gcp::datastore"], crates: AllBut(CLIENTS) },
    Wall { module: "flags", may_use: &["domain"], crates: AllBut(CLIENTS) },
    Wall { module: "flags::change", may_use: &["domain", "flags!", "located::problem"], crates: Only(PURE) },
    Wall { module: "flags::datastore", may_use: &["domain", "flags!", "flags::change", "gcp::datastore"], crates: AllBut(CLIENTS) },
    Wall { module: "flags::file", may_use: &["domain", "clock", "flags!", "flags::change", "flags::store", "located", "config::files"], crates: AllBut(CLIENTS) },
    Wall { module: "flags::store", may_use: &["domain", "flags"], crates: AllBut(CLIENTS) },
    Wall { module: "gate", may_use: &["domain", "flags!"], crates: Only(PURE) },
    Wall { module: "controls", may_use: &["domain"], crates: Only(PURE) },
    Wall { module: "leadership", may_use: &["domain"], crates: AllBut(CLIENTS) },
    Wall { module: "leadership::lock_file", may_use: &["clock", "leadership!"], crates: AllBut(CLIENTS) },
    Wall { module: "records", may_use: &["domain"], crates: AllBut(CLIENTS) },
    Wall { module: "render", may_use: &["domain"], crates: AllBut(&["kube", "tokio", "hyper", "hyper_util", "http", "http_body_util", "tower", "reqwest", "axum", "async_trait", "futures"]) },
    Wall { module: "backend", may_use: &["domain"], crates: AllBut(CLIENTS) },
    Wall { module: "backend::kubernetes", may_use: &["domain", "clock", "render", "backend!", "gcp", "leadership!", "records!"], crates: AllBut(&["rusqlite", "tera", "clap"]) },
    Wall { module: "backend::outputs", may_use: &["domain", "backend!", "gcp::storage!"], crates: AllBut(CLIENTS) },
    Wall { module: "backend::signing", may_use: &["domain", "backend!", "gcp::storage!"], crates: AllBut(CLIENTS) },
    Wall { module: "backend::gcp_batch", may_use: &["domain", "clock", "backend!", "gcp::tokens", "records!", "leadership!"], crates: AllBut(&["kube", "k8s_openapi", "rusqlite", "tera", "clap", "axum"]) },
    Wall { module: "backend::local", may_use: &["domain", "clock", "backend!"], crates: AllBut(CLIENTS) },
    Wall { module: "pipeline", may_use: &["domain", "clock", "queue!", "catalog!", "catalog::entity", "flags!", "backend!", "gate", "controls", "leadership!", "records!"], crates: AllBut(OUTSIDE) },
    Wall { module: "pipeline::resolve", may_use: &["domain", "catalog!", "catalog::entity", "catalog::environment", "flags!", "config", "pipeline!", "located::problem"], crates: Only(PURE) },
    Wall { module: "ledger", may_use: &["domain", "clock", "backend!", "pipeline::tally"], crates: AllBut(CLIENTS) },
    Wall { module: "why", may_use: &["domain", "ledger::record"], crates: Only(PURE) },
    Wall { module: "gcp", may_use: &["domain", "clock"], crates: AllBut(&[]) },
    Wall { module: "status", may_use: &[], crates: Only(&["serde"]) },
    Wall { module: "metrics", may_use: &["domain", "status", "pipeline::stages"], crates: Only(&["prometheus_client"]) },
    Wall { module: "http", may_use: &["domain", "clock", "status", "metrics", "pipeline::stages", "queue::push", "config::http", "why"], crates: AllBut(&["kube", "k8s_openapi", "reqwest", "hyper", "rusqlite", "tera"]) },
    Wall { module: "check", may_use: &["domain", "config", "flags!", "gate", "located::problem"], crates: AllBut(&["kube", "tokio", "hyper", "hyper_util", "http", "http_body_util", "tower", "reqwest", "axum", "async_trait", "futures"]) },
    Wall { module: "telemetry", may_use: &["domain"], crates: AllBut(&["kube", "tera"]) },
    Wall { module: "demo", may_use: &["domain", "catalog", "config", "located", "queue", "clock"], crates: AllBut(CLIENTS) },
    Wall { module: "service", may_use: ALL, crates: AllBut(&[]) },
    Wall { module: "cli", may_use: ALL, crates: AllBut(&[]) },
    Wall { module: "main", may_use: ALL, crates: AllBut(&[]) },
];
/// Only these may use [`TOP`].
const ABOVE: &[&str] = &["service", "cli", "main"];
/// The composition root and what is above it.
const TOP: &[&str] = &["service", "cli", "main"];

/// The names of the dependencies in a Cargo.toml, as code writes them.
pub fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split("\n[dependencies]").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// Every use that goes through a wall.
pub fn judge(sources: &[Source], dependencies: &BTreeSet<String>) -> Vec<String> {
    let modules: BTreeSet<String> = sources.iter().filter_map(Source::module).collect();
    let mut faults = Vec::new();
    for source in sources {
        let Some(module) = source.module().filter(|module| !module.is_empty()) else { continue };
        if source.shipped.trim().is_empty() {
            continue;
        }
        let Some(wall) = wall_of(&module) else {
            faults.push(format!(
                "{}: module `{module}` has no wall in tests/tidy/walls.rs",
                source.path
            ));
            continue;
        };
        for (line, path) in paths(&source.shipped, &module) {
            let through = match path.strip_prefix("crate::") {
                Some(inside) => !may_use(wall, &module_of(inside, &modules)),
                None => {
                    let name = path.split("::").next().unwrap_or_default();
                    dependencies.contains(name) && !wall.crates.allow(name)
                }
            };
            if through {
                let wall = wall.module;
                faults.push(format!("{}:{line}: `{wall}` must not use `{path}`", source.path));
            }
        }
    }
    faults
}

impl Crates {
    fn allow(&self, name: &str) -> bool {
        match self {
            Only(these) => these.contains(&name),
            AllBut(these) => !these.contains(&name),
        }
    }
}

fn is_or_below(module: &str, above: &str) -> bool {
    above.is_empty()
        || module.strip_prefix(above).is_some_and(|r| r.is_empty() || r.starts_with("::"))
}

fn wall_of(module: &str) -> Option<&'static Wall> {
    let around = WALLS.iter().filter(|wall| is_or_below(module, wall.module));
    around.max_by_key(|wall| wall.module.len())
}

fn may_use(wall: &Wall, used: &str) -> bool {
    if TOP.iter().any(|top| is_or_below(used, top)) {
        return ABOVE.contains(&wall.module);
    }
    // What is inside of the same wall is its own business.
    if wall_of(used).is_some_and(|other| other.module == wall.module) {
        return true;
    }
    wall.may_use.iter().any(|allowed| match allowed.strip_suffix('!') {
        Some(alone) => used == alone,
        None => is_or_below(used, allowed),
    })
}

/// The module that a path inside of the crate leads to.
fn module_of(path: &str, modules: &BTreeSet<String>) -> String {
    let mut parts: Vec<&str> = path.split("::").collect();
    while !parts.is_empty() && !modules.contains(&parts.join("::")) {
        parts.pop();
    }
    parts.join("::")
}

/// All paths in `code` with their lines; those inside of the crate begin with `crate::`, with
/// `super` and `self` resolved for a file that is `module`.
pub fn paths(code: &str, module: &str) -> Vec<(usize, String)> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let starts = tokens[i].1.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && (i == 0 || tokens[i - 1].1 != "::");
        if starts && tokens.get(i + 1).is_some_and(|next| next.1 == "::") {
            let line = tokens[i].0;
            let mut branches = Vec::new();
            i = tree(&tokens, i, String::new(), &mut branches);
            found.extend(branches.iter().map(|path| (line, resolved(path, module))));
        } else {
            i += 1;
        }
    }
    found
}

/// Reads the path at `i` with all branches of its groups; returns where it ends.
fn tree(tokens: &[(usize, &str)], mut i: usize, before: String, into: &mut Vec<String>) -> usize {
    let join = |before: &str, part: &str| {
        if before.is_empty() { part.to_owned() } else { format!("{before}::{part}") }
    };
    let mut path = before;
    loop {
        match tokens.get(i).map(|token| token.1) {
            Some("{") => {
                i += 1;
                while tokens.get(i).is_some_and(|token| token.1 != "}") {
                    let next = tree(tokens, i, path.clone(), into);
                    i = next.max(i + 1);
                }
                return i + 1;
            }
            Some(part) if part.starts_with(|c: char| c.is_alphanumeric() || "_*".contains(c)) => {
                path = join(&path, part);
                i += 1;
            }
            _ => break,
        }
        if tokens.get(i).is_none_or(|token| token.1 != "::") {
            break;
        }
        i += 1;
    }
    into.push(path);
    i
}

fn resolved(path: &str, module: &str) -> String {
    let mut at: Vec<&str> = module.split("::").collect();
    let mut rest: Vec<&str> = path.split("::").collect();
    if !matches!(rest[0], "self" | "super") {
        return path.to_owned();
    }
    while let Some(step @ ("self" | "super")) = rest.first().copied() {
        if step == "super" {
            at.pop();
        }
        rest.remove(0);
    }
    [&["crate"], at.as_slice(), rest.as_slice()].concat().join("::")
}

/// Words, `::` and single signs, each with its line.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    for (at, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let length = if rest.starts_with("::") { 2 } else { word.max(first.len_utf8()) };
            tokens.push((at + 1, &rest[..length]));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

#[cfg(test)]
mod samples {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let others = [
            "domain/task",
            "render",
            "backend",
            "pipeline",
            "backend/kubernetes",
            "backend/local",
            "queue",
            "queue/spool",
            "flags",
            "flags/file",
            "service",
        ];
        let mut sources = vec![Source::new(&format!("scheduler/src/{path}.rs"), text)];
        let others = others.map(|path| Source::new(&format!("scheduler/src/{path}.rs"), ""));
        sources.extend(others);
        let manifest = "[package]\n[dependencies]\nkube.workspace = true\nserde-saphyr = \"2\"\n\
                        tokio.workspace = true\n\n[dev-dependencies]\nproptest = \"1\"\n";
        judge(&sources, &dependencies(manifest))
    }

    #[test]
    fn a_use_through_a_wall_is_found_however_it_is_written() {
        for (path, bad) in [
            ("domain/name", "use tokio::time::Instant;"),
            ("domain/name", "fn f() { let x = kube::Client::new(); }"),
            ("domain/name", "use crate::queue::Queue;"),
            ("domain/name", "use super::super::queue::Queue;"),
            ("domain/name", "use crate::{domain::task::Task, queue::Queue};"),
            ("pipeline/intake", "use crate::queue::{Queue, spool::Spool};"),
            ("pipeline", "fn f(x: crate::queue::spool::Spool) {}"),
            ("gate", "use serde_saphyr::from_str;"),
            ("gate", "use crate::flags::file::Flags;"),
            ("backend/kubernetes/submit", "use crate::backend::local::Local;"),
            ("backend/local", "use crate::pipeline::Pipeline;"),
            ("render/fields", "use {std::fmt, kube::Api};"),
            ("queue/spool", "use crate::service::Service;"),
            ("novelty", "fn f() {}"),
        ] {
            assert_eq!(faults(path, bad).len(), 1, "{path}: {bad}: {:?}", faults(path, bad));
        }
    }

    #[test]
    fn what_the_table_allows_is_no_fault() {
        for (path, good) in [
            ("domain/name", "use super::task::Task; use std::collections::BTreeMap;"),
            ("domain/name", "// use kube::Client;\n#[cfg(test)]\nmod tests { use tokio::test; }"),
            ("pipeline/intake", "use super::Pipeline; use crate::queue::{Delivery, Queue};"),
            (
                "pipeline",
                "mod intake; use intake::x; use tokio::select; f::<crate::queue::Queue>();",
            ),
            ("backend/kubernetes/submit", "use super::api::Api; use crate::render::CheckedJob;"),
            ("cli/run", "use crate::service::Service; use crate::queue::spool::Spool;"),
        ] {
            assert_eq!(faults(path, good), Vec::<String>::new(), "{path}: {good}");
        }
    }

    #[test]
    fn a_manifest_gives_the_names_that_code_writes() {
        let names =
            dependencies("x\n[dependencies]\nserde-saphyr.workspace = true\n[lints]\ny = 1");
        assert_eq!(names, BTreeSet::from(["serde_saphyr".to_owned()]));
    }
}
