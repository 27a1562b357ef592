//! A file's text replaced as a whole: a reader sees the old one or the new one, never a part.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

/// Puts `new` in the place of `old` in the file at `path`, with its owner and mode; a link to the
/// file stays one.
///
/// # Errors
/// What the file system says, or that the file no longer holds `old`. It is as it was then.
pub fn replace(path: &Path, old: &str, new: &str) -> io::Result<()> {
    let path = path.canonicalize()?;
    let about = fs::metadata(&path)?;
    let beside = beside(&path);
    let written = write(&beside, new, about.mode())
        .and_then(|()| keep_owner(&beside, about.uid(), about.gid()))
        .and_then(|()| {
            if fs::read_to_string(&path)? == old {
                return fs::rename(&beside, &path);
            }
            Err(io::Error::other("somebody else changed it in the meantime; try again"))
        });
    if written.is_err() {
        // What is left of the attempt is of no use; that it can't be removed changes nothing.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    path.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode & 0o7777))?;
    file.sync_all()
}

/// Under sudo the file must not become root's: the service could no longer read it.
fn keep_owner(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let about = fs::metadata(path)?;
    if (about.uid(), about.gid()) == (uid, gid) {
        return Ok(());
    }
    chown(path, Some(uid), Some(gid))
}
