//! A container image as one file that needs no registry: a docker archive (`manifest.json`, a
//! configuration, one layer) in the tar format of POSIX 1003.1 (ustar), which `ctr images import`
//! takes. Writes bytes; knows nothing of what is inside.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

const BLOCK: usize = 512;

/// The contents of one layer, in the order of the calls.
#[derive(Default)]
pub struct Layer(Tar);

impl Layer {
    /// A folder.
    ///
    /// # Errors
    /// When the path is too long for the format.
    pub fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        self.0.entry(Entry { path: &format!("{path}/"), mode, kind: b'5', target: "" }, &[])
    }

    /// A file.
    ///
    /// # Errors
    /// As [`Layer::folder`].
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.0.entry(Entry { path, mode, kind: b'0', target: "" }, bytes)
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// As [`Layer::folder`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.0.entry(Entry { path, mode: 0o777, kind: b'2', target }, &[])
    }
}

/// The archive of an image of that name, whose containers run `entrypoint`.
///
/// # Errors
/// When something is too long for the format.
pub fn image(name: &str, entrypoint: &[&str], layer: Layer) -> Result<Vec<u8>> {
    let layer = layer.0.finish();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": entrypoint,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
    })
    .to_string();
    let config_name = format!("{}.json", digest(config.as_bytes()));
    let manifest = json!([{
        "Config": config_name,
        "RepoTags": [name],
        "Layers": ["layer.tar"],
    }])
    .to_string();
    let mut archive = Tar::default();
    for (path, bytes) in [
        ("layer.tar", layer.as_slice()),
        (config_name.as_str(), config.as_bytes()),
        ("manifest.json", manifest.as_bytes()),
    ] {
        archive.entry(Entry { path, mode: 0o644, kind: b'0', target: "" }, bytes)?;
    }
    Ok(archive.finish())
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[derive(Default)]
struct Tar(Vec<u8>);

struct Entry<'a> {
    path: &'a str,
    mode: u32,
    kind: u8,
    target: &'a str,
}

impl Tar {
    fn entry(&mut self, entry: Entry<'_>, bytes: &[u8]) -> Result<()> {
        let header = header(&entry, bytes.len())?;
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(bytes);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }

    /// Two empty blocks end it.
    fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

/// Owner, group and time are zero: the same contents give the same bytes.
fn header(entry: &Entry<'_>, size: usize) -> Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, width: usize, bytes: &[u8]| -> Result<()> {
        let text = String::from_utf8_lossy(bytes);
        ensure!(bytes.len() <= width, "{text:?} is longer than the {width} bytes of its field");
        let field = block.get_mut(at..at + bytes.len()).context("a field of the header")?;
        field.copy_from_slice(bytes);
        Ok(())
    };
    put(0, 100, entry.path.as_bytes())?;
    put(100, 8, format!("{:07o}\0", entry.mode).as_bytes())?;
    put(108, 8, b"0000000\0")?;
    put(116, 8, b"0000000\0")?;
    put(124, 12, format!("{size:011o}\0").as_bytes())?;
    put(136, 12, b"00000000000\0")?;
    // The checksum is that of a header whose own field holds spaces.
    put(148, 8, b"        ")?;
    put(156, 1, &[entry.kind])?;
    put(157, 100, entry.target.as_bytes())?;
    put(257, 8, b"ustar\x0000")?;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    block[148..156].copy_from_slice(sum.as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn listed(archive: &[u8]) -> String {
        let mut tar = Command::new("tar")
            .args(["-tvf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tar starts");
        tar.stdin.take().expect("a pipe").write_all(archive).expect("it reads");
        let output = tar.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    #[test]
    fn tar_reads_what_is_written() {
        let mut layer = Layer::default();
        layer.folder("bin", 0o755).expect("it fits");
        layer.file("bin/busybox", 0o755, b"12345").expect("it fits");
        layer.link("bin/sh", "busybox").expect("it fits");
        let text = listed(&layer.0.finish());
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with("bin/"), "{text}");
        assert!(lines[1].starts_with("-rwxr-xr-x") && lines[1].contains(" 5 "), "{text}");
        assert!(lines[2].ends_with("bin/sh -> busybox"), "{text}");
    }

    #[test]
    fn an_image_names_its_layer_and_configuration() {
        let image = image("registry.test/a:1", &["/a"], Layer::default()).expect("it fits");
        let text = listed(&image);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(String::from_utf8_lossy(&image).contains("registry.test/a:1"));
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        assert!(Layer::default().file(&"x".repeat(101), 0o644, b"").is_err());
    }
}
