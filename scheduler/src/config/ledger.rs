//! `ledger`: where explanations are kept.

use std::path::{Path, PathBuf};

use super::files::SCHEME;
use super::outputs::is_bucket;
use super::path;
use crate::located::reading::Field;

/// Where explanations are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerConfig {
    /// The ledger's file.
    pub path: PathBuf,
    /// Where the ends of all logs go too.
    pub tails: Option<TailsConfig>,
}

/// A bucket, and what all names in it begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailsConfig {
    /// The bucket.
    pub bucket: String,
    /// Empty, or a folder that ends with `/`.
    pub prefix: String,
}

pub(super) fn read(field: Option<Field<'_>>, base: &Path) -> LedgerConfig {
    let mut config = LedgerConfig { path: base.join("ledger.sqlite"), tails: None };
    let Some(section) = field.and_then(|f| f.section()) else { return config };
    if let Some(file) = section.get("path").and_then(|f| path(&f, base)) {
        config.path = file;
    }
    config.tails = section.set("tails").and_then(|f| tails(&f));
    section.finish();
    config
}

fn tails(field: &Field<'_>) -> Option<TailsConfig> {
    field.read(|text| {
        let inside = text.strip_prefix(SCHEME).unwrap_or("");
        let (bucket, folder) = inside.split_once('/').unwrap_or((inside, ""));
        if !is_bucket(bucket) {
            let hint = "write gs://BUCKET or gs://BUCKET/FOLDER";
            return Err((format!("`{text}` names nothing in Cloud Storage"), hint.to_owned()));
        }
        let folder = folder.trim_end_matches('/');
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        Ok(TailsConfig { bucket: bucket.to_owned(), prefix })
    })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn check(tails: &str, expect: Option<(&str, &str)>) {
        let text =
            format!("apiVersion: katabatch.dev/v1alpha1\nledger: {{path: l, tails: {tails}}}\n");
        let config = Config::parse(Path::new("dir/c.yaml"), &text);
        let found = config.map(|config| config.ledger).ok();
        let found = found.map(|ledger| {
            assert_eq!(ledger.path, Path::new("dir/l"));
            ledger.tails.map(|tails| (tails.bucket, tails.prefix)).unwrap_or_default()
        });
        let expect = expect.map(|(bucket, prefix)| (bucket.to_owned(), prefix.to_owned()));
        assert_eq!(found, expect, "{tails}");
    }

    #[test]
    fn tails_go_to_a_bucket_or_a_folder_in_it() {
        check("gs://logs", Some(("logs", "")));
        check("gs://logs/a/b/", Some(("logs", "a/b/")));
        check("null", Some(("", "")));
        check("logs", None);
        check("gs://", None);
    }
}
