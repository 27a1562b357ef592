//! An environment string gives clean names and values, and a disk size is a size or a fault.

use katabatch::catalog::environment::{disk_size_gb, layered, parse};

/// Reads `data` as an environment string, and as a disk size.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let environment = parse(&text);
    for (name, value) in &environment {
        assert!(!name.contains(['=', '\n', '\r', ' ']), "{name:?}");
        assert!(!value.contains(['\n', '\r']), "{value:?}");
        assert_eq!(value.trim(), value);
    }
    assert_eq!(layered([&*text, &*text]), environment, "the same twice is the same");
    for value in environment.values().map(String::as_str).chain([&*text]) {
        match disk_size_gb(value) {
            Ok(size) => assert_ne!(size, Some(0), "0 is no size"),
            Err(error) => assert!(error.to_string().len() < 1_000, "an error of any length"),
        }
    }
}
