//! `outputs`: where the tasks' output objects are, so that one that is there is seen.

use crate::located::reading::Field;

/// Reads the section: the bucket's name.
pub(super) fn read(field: &Field<'_>) -> Option<String> {
    let section = field.section()?;
    let bucket = section.required("bucket", "write the bucket's name, such as gs://my-outputs");
    section.finish();
    bucket?.read(|text| {
        let name = text.strip_prefix("gs://").unwrap_or(text);
        let name = name.strip_suffix('/').unwrap_or(name);
        if is_bucket(name) {
            return Ok(name.to_owned());
        }
        let hint =
            "write its name alone, such as gs://my-outputs: outputs are named as their inputs";
        Err((format!("`{text}` is no bucket"), hint.to_owned()))
    })
}

/// Whether `name` can be a bucket's (Cloud Storage, "About Cloud Storage buckets"): lower-case
/// letters, digits, `-`, `_` and `.`, 3 to 222 of them, a letter or digit at both ends.
pub(super) fn is_bucket(name: &str) -> bool {
    let alphanumeric = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    (3..=222).contains(&bytes.len())
        && bytes.iter().all(|c| alphanumeric(c) || b"-_.".contains(c))
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    fn parse(text: &str) -> Result<Option<String>, String> {
        let text = format!("apiVersion: katabatch.dev/v1alpha1\n{text}");
        let config = Config::parse(Path::new("/c/k.yaml"), &text);
        config.map(|config| config.outputs).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_bucket_is_named_with_its_scheme_or_without() {
        for (text, expect) in [
            ("", None),
            ("outputs: {bucket: gs://my-outputs}", Some("my-outputs")),
            ("outputs: {bucket: gs://my-outputs/}", Some("my-outputs")),
            ("outputs: {bucket: a.b_c}", Some("a.b_c")),
        ] {
            assert_eq!(parse(text), Ok(expect.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn what_is_no_bucket_is_told() {
        for (text, expect) in [
            ("outputs: {bucket: gs://b/folder}", "outputs.bucket: `gs://b/folder` is no bucket"),
            ("outputs: {bucket: My-Outputs}", "`My-Outputs` is no bucket"),
            ("outputs: {}", "write the bucket's name"),
            ("outputs: {buket: abc}", "did you mean `bucket`?"),
        ] {
            let errors = parse(text).expect_err(text);
            assert!(errors.contains(expect), "{text}: {errors}");
        }
    }
}
