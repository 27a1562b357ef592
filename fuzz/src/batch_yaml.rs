//! `batch.yaml` is read, or every problem names its file; one broken mapping breaks no other.

use std::path::Path;

use katabatch::config::batch_yaml::BatchYaml;

const GOOD: &str = "\nmapping:\n  FUZZ-TARGET-KNOWN-GOOD:\n    docker_image: gcr.io/a/b\n    \
                    service_account_email: worker@p.iam.gserviceaccount.com\n";

/// Reads `data` as `batch.yaml`.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let path = Path::new("batch.yaml");
    match BatchYaml::parse(path, &text) {
        Ok(batch) => {
            let again = BatchYaml::parse(path, &text);
            assert_eq!(again.ok().as_ref(), Some(&batch), "one file is read in one way");
            let broken = batch.mapping.values().filter(|mapping| mapping.is_err()).count();
            assert_eq!(broken == 0, batch.broken_mappings().is_empty());
        }
        Err(errors) => assert!(errors.to_string().contains("batch.yaml"), "{errors}"),
    }
    // Whatever a mapping holds, the one beside it stays usable.
    let one = text.replace(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'], " ");
    let quoted = serde_json::to_string(&one).expect("a string");
    let beside =
        format!("{GOOD}  OTHER:\n    docker_image: {quoted}\n    disk_size_gb: {quoted}\n");
    if let Ok(batch) = BatchYaml::parse(path, &beside) {
        let good = batch.mapping.get("FUZZ-TARGET-KNOWN-GOOD").expect("it is there");
        assert!(good.is_ok(), "{good:?}");
    }
}
