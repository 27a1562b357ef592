//! `profiles`: the settings of workloads' Jobs, in layers: ClusterFuzz's own values, then
//! `default`, the mapping's, the command's and the job type's.

use std::collections::BTreeMap;

use super::policy::WorkloadPattern;
use super::profile_layer::Layer;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::Profile;
use crate::located::reading::Field;

/// All layers, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles {
    /// ClusterFuzz's values with the `default` layer applied.
    base: Profile,
    mappings: BTreeMap<String, Layer>,
    commands: BTreeMap<String, Layer>,
    job_types: BTreeMap<String, Layer>,
    exceptions: Vec<WorkloadPattern>,
}

impl Default for Profiles {
    fn default() -> Self {
        Self::read(None, Vec::new())
    }
}

impl Profiles {
    /// The settings of one workload.
    pub fn resolve(&self, mapping: &str, key: &WorkloadKey) -> Profile {
        let mut profile = self.base.clone();
        let layers = [
            self.mappings.get(mapping),
            self.commands.get(key.command.as_str()),
            self.job_types.get(key.job_type.as_str()),
        ];
        for layer in layers.into_iter().flatten() {
            layer.apply(&mut profile);
        }
        profile.host_network_exception = self.exceptions.iter().any(|e| e.matches(key));
        profile
    }

    /// The commands that have settings of their own.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.commands.keys().map(String::as_str)
    }

    pub(super) fn read(field: Option<Field<'_>>, exceptions: Vec<WorkloadPattern>) -> Self {
        let mut profiles = Self {
            base: Profile::default(),
            mappings: BTreeMap::new(),
            commands: BTreeMap::new(),
            job_types: BTreeMap::new(),
            exceptions,
        };
        let Some(section) = field.and_then(|f| f.section()) else { return profiles };
        if let Some(default) = section.set("default").and_then(|f| Layer::read(&f)) {
            default.apply(&mut profiles.base);
        }
        profiles.mappings = layers(section.set("mappings"));
        profiles.commands = layers(section.set("commands"));
        profiles.job_types = layers(section.set("job_types"));
        section.finish();
        profiles
    }
}

fn layers(field: Option<Field<'_>>) -> BTreeMap<String, Layer> {
    let entries = field.and_then(|f| f.entries()).unwrap_or_default();
    entries
        .into_iter()
        .filter_map(|(name, field)| Some((name.to_owned(), Layer::read(&field)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Config, ConfigErrors};
    use super::*;
    use crate::domain::workload::Disk;

    fn config(profiles: &str) -> Result<Config, ConfigErrors> {
        let text = format!("apiVersion: katabatch.dev/v1alpha1\nprofiles: {profiles}\n");
        Config::parse(Path::new("k.yaml"), &text)
    }

    fn key(command: &str, job_type: &str) -> WorkloadKey {
        WorkloadKey { command: command.into(), job_type: job_type.into() }
    }

    #[test]
    fn without_layers_a_profile_has_clusterfuzzs_values() {
        let profile = Profiles::default().resolve("M", &key("fuzz", "j"));
        assert_eq!(profile, Profile::default());
        assert_eq!(profile.ttl.as_secs(), 93_600);
    }

    #[test]
    fn later_layers_replace_scalars_and_lists_and_merge_mappings() {
        let config = config(
            "{default: {cpu: 1, deadline: 1h, env: {A: '1', B: '1', C: '1'}, tolerations: [{operator: Exists}]}, \
              mappings: {M: {cpu: 2, env: {B: '2'}, priority_class: low}}, \
              commands: {fuzz: {cpu: 3, env: {C: null}, tolerations: []}}, \
              job_types: {j: {cpu: 4, deadline: null, priority_class: null, disk: job}}}",
        )
        .expect("a configuration");
        let cpu = |mapping: &str, command: &str, job_type: &str| {
            config.profiles.resolve(mapping, &key(command, job_type)).cpu.as_str().to_owned()
        };
        assert_eq!(cpu("other", "minimize", "k"), "1");
        assert_eq!(cpu("M", "minimize", "k"), "2");
        assert_eq!(cpu("M", "fuzz", "k"), "3");
        assert_eq!(cpu("M", "fuzz", "j"), "4");
        let profile = config.profiles.resolve("M", &key("fuzz", "j"));
        let env: Vec<_> = profile.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(env, ["A=1", "B=2"]);
        assert_eq!((profile.deadline, profile.priority_class), (None, None));
        assert_eq!((profile.tolerations.len(), profile.disk), (0, Disk::FromJob));
    }

    #[test]
    fn what_kubernetes_or_the_contract_would_refuse_is_refused_here() {
        for (layer, expect) in [
            ("{labels: {task_name: x}}", "labels.task_name: `task_name` is set by katabatch"),
            ("{labels: {katabatch.dev/task: x}}", "is set by katabatch"),
            ("{labels: {a: 'x y'}}", "`x y` is no label value"),
            ("{node_selector: {'-a': x}}", "is no label key"),
            ("{env: {A=B: x}}", "can't name an environment variable"),
            ("{env: {A: true}}", "put it in quotes, \"true\""),
            ("{env: {UWORKER_INPUT_DOWNLOAD_URL: x}}", "is the task's own input"),
            ("{scratch: {/dev/shm: 1Gi}}", "set its size by `shm`"),
            ("{scratch: {tmp: 1Gi}}", "is no absolute, plain path"),
            ("{scratch: {/a/../b: 1Gi}}", "is no absolute, plain path"),
            ("{disk: big}", "write none, job"),
            ("{cpu: 0}", "above zero"),
            ("{cpu: 1Gb}", "is no Kubernetes quantity"),
            ("{restart_policy: Always}", "write upstream"),
            ("{dns_policy: None}", "is no DNS policy"),
            ("{ttl: 1500ms}", "write whole seconds"),
            ("{deadline: 0s}", "is zero"),
            ("{backoff_limit: -1}", "write a whole number from 0"),
            ("{tolerations: [{value: x}]}", "tolerations[0]: has no key"),
            (
                "{tolerations: [{key: a, toleration_seconds: 3}]}",
                "did you mean `tolerationSeconds`?",
            ),
            ("{runtime_class: Kata}", "can't be the name of an object"),
            ("{privileged: yes}", "write true or false"),
        ] {
            let error = config(&format!("{{default: {layer}}}")).expect_err(layer).to_string();
            assert!(error.contains(expect), "{layer}: {error}");
        }
    }
}
