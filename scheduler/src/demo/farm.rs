//! The demo's settings: the farm's own files, the flags, and katabatch's configuration.

use super::Place;

/// The queue's file, beside the configuration.
pub(super) const SPOOL: &str = "spool.sqlite";

/// The base OS version whose queue the demo reads.
pub(super) const VERSION: &str = "ubuntu-24-04";

/// Not OSS-Fuzz's own name: there every job counts as a Linux one, and the demo has one that no
/// mapping fits.
pub(super) const PROJECT_YAML: &str = "\
env:
  PROJECT_NAME: katabatch-demo
  APPLICATION_ID: katabatch-demo
  K8S_PROJECT: katabatch-demo
cluster_name: demo
";

pub(super) const BATCH_YAML: &str = "\
project: katabatch-demo
mapping:
  LINUX-PREEMPTIBLE-UNPRIVILEGED:
    clusterfuzz_release: prod
    docker_image: gcr.io/clusterfuzz-images/oss-fuzz/worker
    versioned_docker_images:
      ubuntu-24-04: gcr.io/clusterfuzz-images/oss-fuzz/worker:ubuntu-24-04
    user_data: file://linux-init.yaml
    disk_size_gb: 110
    disk_type: pd-standard
    service_account_email: untrusted-worker@katabatch-demo.iam.gserviceaccount.com
    preemptible: true
    machine_type: n1-standard-1
    subconfigs:
      - name: central1
        weight: 1
  LINUX-NONPREEMPTIBLE-UNPRIVILEGED:
    clusterfuzz_release: prod
    docker_image: gcr.io/clusterfuzz-images/oss-fuzz/worker
    versioned_docker_images:
      ubuntu-24-04: gcr.io/clusterfuzz-images/oss-fuzz/worker:ubuntu-24-04
    user_data: file://linux-init.yaml
    disk_size_gb: 110
    disk_type: pd-standard
    service_account_email: untrusted-worker@katabatch-demo.iam.gserviceaccount.com
    preemptible: false
    machine_type: n1-standard-1
    subconfigs:
      - name: central1
        weight: 1
subconfigs:
  central1:
    region: us-central1
    network: projects/katabatch-demo/global/networks/batch
    subnetwork: projects/katabatch-demo/regions/us-central1/subnetworks/central1
";

pub(super) const FLAGS_YAML: &str = "\
k8s_jobs_frequency: {enabled: true, value: 1.0}
k8s_jobs_pending_limit: {enabled: true, value: 200}
";

/// `katabatch.yaml`. `slow` is the job type that is given little time.
pub(super) fn configuration(place: &Place, slow: Option<&str>) -> String {
    let backend = match place {
        Place::Local { worker, jobs } => format!(
            "  - name: local\n    local: {{command: {}, dir: work, jobs: {jobs}}}\n",
            scalar(worker)
        ),
        Place::Cluster { kubeconfig, namespace } => {
            let kubeconfig = kubeconfig.as_ref().map(|path| path.to_string_lossy());
            let kubeconfig = kubeconfig
                .map(|path| format!("kubeconfig: {}, ", scalar(&path)))
                .unwrap_or_default();
            let namespace = scalar(namespace);
            format!("  - name: cluster\n    kubernetes: {{{kubeconfig}namespace: {namespace}}}\n")
        }
    };
    let profiles = slow.map_or_else(String::new, |job_type| {
        format!("profiles:\n  job_types:\n    {}: {{deadline: 2s}}\n", scalar(job_type))
    });
    format!(
        "apiVersion: katabatch.dev/v1alpha1\n\
         scheduler: demo\n\
         clusterfuzz: {{config_dir: clusterfuzz-config}}\n\
         queues:\n  - name: main\n    spool: {{path: {SPOOL}}}\n    base_os_version: {VERSION}\n\
         backends:\n{backend}\
         catalog: {{file: entities.jsonl}}\n\
         flags: {{file: flags.yaml}}\n\
         {profiles}"
    )
}

/// A JSON value, which is a YAML one too.
fn scalar<T: serde::Serialize + ?Sized>(value: &T) -> String {
    // Texts and lists of texts can't fail to be written.
    serde_json::to_string(value).unwrap_or_default()
}
