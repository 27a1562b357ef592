//! The repository's files as tidy reads them: Rust sources with comments and literals blanked out
//! and test code marked, other texts as they are. No rule is here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Folders that hold nothing of ours.
const FOREIGN: &[&str] = &["target", ".git", "corpus", "artifacts"];
/// How a text file's name may end. `run` and `control-plane` are shell scripts of `.ci`.
const TEXTS: &[&str] = &[".md", ".toml", ".yaml", ".yml", ".rs", ".tera", ".go", "/run", "-plane"];

/// One Rust file.
#[derive(Debug, Clone)]
pub struct Source {
    /// From the repository's root, such as `scheduler/src/gate.rs`.
    pub path: String,
    /// The text as it is.
    pub text: String,
    /// The text with comments and the insides of literals blanked; lines stay where they are.
    pub code: String,
    /// As `code`, with test code blanked too.
    pub shipped: String,
    /// For a file that is test code only: the file, without `.rs`, that its tests hang together by.
    pub test_root: Option<String>,
}

/// The repository.
#[derive(Debug)]
pub struct Tree {
    /// Where it lies.
    pub root: PathBuf,
    /// Its Rust files.
    pub sources: Vec<Source>,
    /// All its texts, Rust files too, with their paths.
    pub texts: Vec<(String, String)>,
}

impl Tree {
    /// The repository that this package lies in, read once.
    pub fn get() -> &'static Self {
        static TREE: OnceLock<Tree> = OnceLock::new();
        TREE.get_or_init(Self::read)
    }

    fn read() -> Self {
        let package = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo for every test");
        let root = PathBuf::from(package).join("..").canonicalize().expect("the repository");
        let mut texts = Vec::new();
        walk(&root, &root, &mut texts);
        texts.sort();
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let mut sources: Vec<_> = rust.map(|(path, text)| Source::new(path, text)).collect();
        assert!(sources.len() > 10, "only {} sources under {}", sources.len(), root.display());
        mark_test_files(&mut sources);
        Self { root, sources, texts }
    }

    /// The text of one file, empty if it is not there.
    pub fn text(&self, path: &str) -> String {
        self.texts.iter().find(|(p, _)| p == path).map(|(_, t)| t.clone()).unwrap_or_default()
    }
}

fn walk(root: &Path, folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder that can be read").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !FOREIGN.contains(&name.as_str()) {
                walk(root, &path, into);
            }
            continue;
        }
        let relative = path.strip_prefix(root).expect("below the root").display().to_string();
        if TEXTS.iter().any(|end| relative.ends_with(end))
            && let Ok(text) = fs::read_to_string(&path)
        {
            into.push((relative, text));
        }
    }
}

impl Source {
    /// A source at `path`.
    pub fn new(path: &str, text: &str) -> Self {
        let code = blank(text);
        let test_root = test_binary(path);
        let shipped = if test_root.is_some() { String::new() } else { without_tests(&code) };
        Self { path: path.into(), text: text.into(), code, shipped, test_root }
    }

    /// The module's path in its crate (`backend::local`), empty for the crate's root; `None` for
    /// files outside of `scheduler/src`.
    pub fn module(&self) -> Option<String> {
        let path = self.path.strip_prefix("scheduler/src/")?.strip_suffix(".rs")?;
        Some(if path == "lib" { String::new() } else { path.replace('/', "::") })
    }

    /// Lines of `of` (this source's `code` or `shipped`) that hold one of the words as a whole.
    pub fn lines_with(&self, of: &str, words: &[&str]) -> Vec<(usize, String)> {
        let hit = |line: &str| words.iter().find(|word| has_word(line, word)).copied();
        of.lines()
            .enumerate()
            .filter_map(|(at, line)| hit(line).map(|word| (at + 1, word.to_owned())))
            .collect()
    }
}

/// For a file of a package's `tests` folder: the test binary that it is a part of.
fn test_binary(path: &str) -> Option<String> {
    let (package, inside) = path.split_once("/tests/")?;
    let name = inside.split(['/', '.']).next()?;
    (!package.contains('/')).then(|| format!("{package}/tests/{name}"))
}

/// Whether `line` holds `word`, not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(joins)
            && (word.ends_with(|c| !joins(c)) || !line[at + word.len()..].starts_with(joins))
    })
}

/// The modules that a file declares: `pub mod x;`, `mod x;`.
pub fn modules(text: &str) -> Vec<String> {
    let declared = |line: &str| {
        let line = line.trim().strip_prefix("pub ").unwrap_or(line.trim());
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
    };
    text.lines().filter_map(declared).collect()
}

/// Files of `#[cfg(test)] mod x;`, and all below them, ship nothing.
fn mark_test_files(sources: &mut [Source]) {
    let mut test_only = Vec::new();
    for source in sources.iter() {
        let own_folder = match source.path.strip_suffix(".rs") {
            Some(path) if path.ends_with("/lib") || path.ends_with("/main") => {
                path.rsplit_once('/').map_or("", |p| p.0)
            }
            Some(path) => path,
            None => continue,
        };
        let shipped = modules(&source.shipped);
        let hidden = modules(&source.code).into_iter().filter(|m| !shipped.contains(m));
        test_only.extend(hidden.map(|module| format!("{own_folder}/{module}")));
    }
    // The outermost first, so that what is below it hangs together by it.
    test_only.sort();
    for source in sources {
        let below = |folder: &&String| {
            let rest = source.path.strip_prefix(folder.as_str());
            rest.is_some_and(|rest| rest.starts_with(['/', '.']))
        };
        if let Some(root) = test_only.iter().find(below) {
            source.shipped = String::new();
            // A part of a test binary hangs together by that.
            source.test_root.get_or_insert_with(|| root.clone());
        }
    }
}

/// `code` with what stands behind `#[cfg(test)]` blanked: an item in braces, or one up to a `;`.
fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    let mut from = 0;
    while let Some(at) = out[from..].find("#[cfg(test)]").map(|at| from + at) {
        let (mut depth, mut end) = (0_usize, out.len());
        for (i, c) in out[at..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (c == ';' || c == '}') {
                end = at + i + 1;
                break;
            }
        }
        let blank: String = out[at..end].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        out.replace_range(at..end, &blank);
        from = at;
    }
    out
}

/// Blanks comments and the insides of string and character literals. Everything that is not ASCII
/// goes too, so that bytes and characters are the same in what is left.
pub fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out: Vec<char> =
        chars.iter().map(|&c| if c == '\n' || c.is_ascii() { c } else { ' ' }).collect();
    let mut i = 0;
    while i < chars.len() {
        let word_before = i > 0 && (at(i - 1).is_alphanumeric() || at(i - 1) == '_');
        let raw =
            raw_hashes(&chars[i..]).filter(|_| !word_before || matches!(at(i - 1), 'b' | 'c'));
        let end = if at(i) == '/' && at(i + 1) == '/' {
            (i..chars.len()).find(|&j| chars[j] == '\n').unwrap_or(chars.len())
        } else if at(i) == '/' && at(i + 1) == '*' {
            block_end(&chars, i)
        } else if let Some(hashes) = raw {
            raw_end(&chars, i + hashes + 2, hashes)
        } else if at(i) == '"' || (at(i) == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'')) {
            literal_end(&chars, i)
        } else {
            i += 1;
            continue;
        };
        for c in &mut out[i..end] {
            if *c != '\n' {
                *c = ' ';
            }
        }
        i = end;
    }
    out.into_iter().collect()
}

/// The number of `#` of a raw string that starts here.
fn raw_hashes(chars: &[char]) -> Option<usize> {
    let hashes = chars.get(1..)?.iter().take_while(|c| **c == '#').count();
    (chars[0] == 'r' && chars.get(hashes + 1) == Some(&'"')).then_some(hashes)
}

fn raw_end(chars: &[char], from: usize, hashes: usize) -> usize {
    (from..chars.len())
        .find(|&j| {
            chars[j] == '"'
                && chars[j + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
        })
        .map_or(chars.len(), |j| j + 1 + hashes)
}

fn literal_end(chars: &[char], from: usize) -> usize {
    let mut i = from + 1;
    while i < chars.len() && chars[i] != chars[from] {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn block_end(chars: &[char], from: usize) -> usize {
    let (mut depth, mut i) = (0_usize, from);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 1),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 1),
            _ => {}
        }
        i += 1;
        if depth == 0 {
            break;
        }
    }
    i
}

#[test]
fn comments_and_literals_are_blanked_and_the_code_stays() {
    for (text, expect) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        (r#"f("x\"y", 'z', '\'')"#, "f(      ,    ,     )"),
        ("r#\"a\"b\"# + br\"c\" + d", "         + b     + d"),
        ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
        ("var\"x\"", "var   "),
    ] {
        assert_eq!(blank(text), expect, "{text}");
    }
}

#[test]
fn test_code_ships_nothing() {
    let text =
        "use a;\n#[cfg(test)]\nmod fake;\nfn f() {}\n#[cfg(test)]\nmod tests { fn g() {} }\n";
    let mut sources = [
        Source::new("scheduler/src/x.rs", text),
        Source::new("scheduler/src/x/fake.rs", "fn h() {}"),
    ];
    mark_test_files(&mut sources);
    assert!(sources[0].shipped.contains("fn f") && !sources[0].shipped.contains("fn g"));
    assert!(sources[0].code.contains("fn g"));
    assert_eq!(sources[1].shipped, "");
    assert_eq!(Source::new("scheduler/tests/y.rs", "fn z() {}").shipped, "");
}
