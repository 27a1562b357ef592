//! Reloading: looks at configuration, farm and catalog files for ever, and says what came of it.

use std::sync::Arc;
use std::time::Duration;

use super::{Loaded, Lookups};
use crate::config::farm::Farm;
use crate::config::watch::{Reload, Watched};

/// How often files are looked at for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(2);

/// Looks at the files for ever, and says what it found.
pub(super) async fn keep_reloading(loaded: Arc<Watched<Loaded>>, lookups: Lookups) {
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        let (at, also) = (Arc::clone(&loaded), lookups.clone());
        // Files are read off the threads that must not wait. A panic there is this look's alone.
        let looked = tokio::task::spawn_blocking(move || {
            let before = at.get();
            let reload = at.poll();
            if reload == Reload::Reloaded && needs_restart(&before, &at.get()) {
                tracing::warn!(
                    "queues, backends, limits, http or sources changed: these take effect at the next start"
                );
            }
            (reload, also.poll())
        })
        .await;
        match looked {
            Ok((configuration, catalog)) => {
                say("the configuration", &configuration);
                say("the catalog", &catalog);
            }
            Err(error) => tracing::error!(%error, "looking for changed files failed"),
        }
    }
}

fn say(what: &str, reload: &Reload) {
    match reload {
        Reload::Unchanged => {}
        Reload::Reloaded => tracing::info!("{what} was reloaded"),
        Reload::Failed(problems) => {
            tracing::error!(
                "{what} changed and can't be used; the last good one stays: {problems}"
            );
        }
    }
}

/// Whether a part changed that is set up once, at the start: in our own file, or in the farm's.
fn needs_restart(before: &Loaded, after: &Loaded) -> bool {
    // The project of subscriptions, topics and Datastore, and the cluster, where the configuration
    // names none.
    let places = |farm: &Farm| {
        (farm.application_project.clone(), farm.project.clone(), farm.cluster_name.clone())
    };
    let moved = places(&before.farm) != places(&after.farm);
    let (before, after) = (&before.config, &after.config);
    moved
        || before.queues != after.queues
        || before.backends != after.backends
        || before.limits != after.limits
        || before.catalog != after.catalog
        || before.flags != after.flags
        || before.outputs != after.outputs
        || before.scheduler != after.scheduler
        || before.http != after.http
        || before.ledger != after.ledger
        || before.routes != after.routes
        || before.home != after.home
        || before.state_dir != after.state_dir
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::load;

    #[test]
    fn another_project_or_cluster_in_the_farms_own_file_needs_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let loaded = |project: &str, config: &str| {
            let farm = dir.path().join("clusterfuzz-config");
            std::fs::create_dir_all(farm.join("batch")).expect("a directory");
            std::fs::write(farm.join("batch/batch.yaml"), "mapping: {}\n").expect("written");
            std::fs::write(farm.join("project.yaml"), project).expect("written");
            let path = dir.path().join("k.yaml");
            let text = format!("apiVersion: katabatch.dev/v1alpha1\n{config}");
            std::fs::write(&path, text).expect("written");
            (*load(&path).expect("it loads").get()).clone()
        };
        let before = loaded("env: {APPLICATION_ID: a}\n", "");
        for (project, config, expect) in [
            ("env: {APPLICATION_ID: s~a, OTHER: x}\n", "", false),
            ("env: {APPLICATION_ID: a}\n", "policy: {strict: true}\n", false),
            ("env: {APPLICATION_ID: b}\n", "", true),
            ("env: {APPLICATION_ID: a}\ncluster_name: other\n", "", true),
            ("env: {APPLICATION_ID: a}\n", "scheduler: other\n", true),
        ] {
            let after = loaded(project, config);
            assert_eq!(needs_restart(&before, &after), expect, "{project}{config}");
        }
    }
}
