//! Looks at Cloud Storage: the farm's files there, the bucket of outputs, and whether an input that
//! is a `gs://` path could be signed.
//!
//! Nothing is written. A signature is made and thrown away, since nothing else tells that IAM would
//! make one: it is of an object that is not there, and no trace of it is left but in audit logs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::looks::Looks;
use crate::check::findings::Findings;
use crate::config::Config;
use crate::config::entities::{CatalogConfig, FlagsFrom};
use crate::config::files::remote_address;
use crate::config::queues::QueueSource;
use crate::gcp::credentials::Credentials;
use crate::gcp::storage::{ObjectName, Objects, StorageError};
use crate::service::Loaded;
use crate::service::cloud_storage::{open, signer};

const AREA: &str = "storage";
/// How long one look may take, retries included.
const WITHIN: Duration = Duration::from_secs(20);
/// An object that nobody has: asked for in the bucket of outputs, and signed for.
const NOBODYS: &str = "katabatch-check";

/// Looks at all that is configured; nothing where the farm has nothing on Google Cloud.
pub async fn check(loaded: &Loaded, offline: bool, looks: &Looks) -> Findings {
    let mut findings = Findings::about(AREA);
    let (files, bucket) = (files_of(&loaded.config), loaded.config.outputs.clone());
    let queues = &loaded.config.queues;
    let pubsub = queues.iter().any(|queue| matches!(queue.source, QueueSource::PubSub { .. }));
    if files.is_empty() && bucket.is_none() && !pubsub {
        return findings;
    }
    if offline {
        findings.not_checked("all", "--offline asks no Cloud Storage", "");
        return findings;
    }
    let credentials = Credentials::application_default(rand::random());
    let (seen, signed) =
        tokio::join!(objects(&credentials, files, bucket, looks), inputs(&credentials, looks));
    findings.extend(seen);
    findings.extend(signed);
    findings
}

/// The farm's files that are objects.
fn files_of(config: &Config) -> BTreeSet<ObjectName> {
    let own = ["project.yaml", "batch/batch.yaml"].map(|name| config.farm_dir.join(name));
    let catalog = match &config.catalog {
        CatalogConfig::Files(files) => files.as_slice(),
        CatalogConfig::Datastore { .. } => &[],
    };
    let flags = match &config.flags.source {
        FlagsFrom::Files(files) => files.as_slice(),
        FlagsFrom::Datastore { .. } => &[],
    };
    let all = own.iter().chain(catalog).chain(flags);
    all.filter_map(|path| remote_address(path)).filter_map(ObjectName::parse).collect()
}

async fn objects(
    credentials: &Credentials,
    files: BTreeSet<ObjectName>,
    bucket: Option<String>,
    looks: &Looks,
) -> Findings {
    let mut findings = Findings::about(AREA);
    if files.is_empty() && bucket.is_none() {
        return findings;
    }
    let objects = match open(credentials.clone()) {
        Ok(objects) => objects,
        Err(error) => {
            findings.fail("all", &error, &hint(&error, ""));
            return findings;
        }
    };
    let files = files.into_iter().map(|file| readable(Arc::clone(&objects), file, looks));
    for seen in futures::future::join_all(files).await {
        findings.extend(seen);
    }
    if let Some(bucket) = bucket {
        findings.extend(outputs(objects, bucket, looks).await);
    }
    findings
}

async fn readable(objects: Arc<dyn Objects>, file: ObjectName, looks: &Looks) -> Findings {
    let mut findings = Findings::about(AREA);
    let (name, of) = (file.to_string(), file.clone());
    match within(looks, &name, async move { objects.read(&of, None).await }).await {
        Ok(_) => findings.pass(&name, "can be read"),
        Err(error) => findings.fail(&name, &error, &hint(&error, &file.bucket)),
    }
    findings
}

async fn outputs(objects: Arc<dyn Objects>, bucket: String, looks: &Looks) -> Findings {
    let mut findings = Findings::about(AREA);
    let name = format!("gs://{bucket}");
    let object = ObjectName { bucket: bucket.clone(), name: NOBODYS.to_owned() };
    match within(looks, &name, async move { objects.exists(&object).await }).await {
        Ok(_) => findings.pass(&name, "outputs can be looked for"),
        Err(error) => {
            let detail = format!("outputs can't be looked for, so nothing is created: {error}");
            findings.fail(&name, detail, &hint(&error, &bucket));
        }
    }
    findings
}

/// Only tasks whose input is a path need it, and ClusterFuzz's own are signed: no failure.
async fn inputs(credentials: &Credentials, looks: &Looks) -> Findings {
    const SUBJECT: &str = "inputs";
    let mut findings = Findings::about(AREA);
    let object = ObjectName { bucket: NOBODYS.to_owned(), name: NOBODYS.to_owned() };
    let signer = signer(credentials);
    let signing = async move { signer.sign(&object, Duration::from_secs(1)).await.map(drop) };
    match within(looks, "signing", signing).await {
        Ok(()) => {
            let who = credentials.origin();
            findings.pass(SUBJECT, format!("those that are gs:// paths can be signed, by {who}"));
        }
        Err(error @ StorageError::Later(_)) => {
            let why = format!("whether those that are gs:// paths can be signed: {error}");
            findings.not_checked(SUBJECT, why, "see the credentials and the network");
        }
        Err(error) => {
            let detail = format!("tasks whose input is a gs:// path are held: {error}");
            findings.warn(SUBJECT, detail, "if there are such tasks, do as the detail says");
        }
    }
    findings
}

async fn within<T: Send + 'static>(
    looks: &Looks,
    what: &str,
    look: impl Future<Output = Result<T, StorageError>> + Send + 'static,
) -> Result<T, StorageError> {
    looks.at(what, WITHIN, look).await.map_err(StorageError::Later)?
}

fn hint(error: &StorageError, bucket: &str) -> String {
    match error {
        StorageError::Later(_) => {
            "is it up, and can this machine reach it? See STORAGE_EMULATOR_HOST and the network"
                .to_owned()
        }
        StorageError::Forbidden(_) => format!(
            "gcloud storage buckets add-iam-policy-binding gs://{bucket} \
             --member=serviceAccount:EMAIL --role=roles/storage.objectViewer"
        ),
        StorageError::Unauthenticated(_) => {
            "run `gcloud auth application-default login`, or give this workload a Google service \
             account"
                .to_owned()
        }
        StorageError::Absent(_) | StorageError::Overtaken(_) | StorageError::Refused(_) => {
            "is its name right? See the configuration".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_has_a_hint_of_its_own_and_only_a_missing_right_names_a_role() {
        let object = ObjectName { bucket: "b".into(), name: "o".into() };
        for (error, words) in [
            (StorageError::Later("x".into()), "reach it"),
            (StorageError::Forbidden("x".into()), "gs://b --member"),
            (StorageError::Unauthenticated("x".into()), "application-default login"),
            (StorageError::Absent(object), "name right"),
            (StorageError::Refused("x".into()), "name right"),
        ] {
            let said = hint(&error, "b");
            assert!(said.contains(words), "{error:?}: {said}");
            let role = said.contains("roles/storage.objectViewer");
            assert_eq!(role, matches!(error, StorageError::Forbidden(_)), "{said}");
        }
    }
}
