//! The whole configuration file: defaults, problems and their places, and the example.

use super::backends::WeightConfig;
use super::*;
use crate::located::reading::Reading;

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(Path::new("/etc/katabatch/k.yaml"), text)
}

#[track_caller]
fn check(text: &str, expect: &[&str]) {
    let errors = parse(text).expect_err("problems").to_string();
    let lines: Vec<_> = errors.lines().map(|l| l.replace("/etc/katabatch/", "")).collect();
    assert_eq!(lines, expect);
}

#[test]
fn every_setting_has_a_default() {
    let config = parse("apiVersion: katabatch.dev/v1alpha1\n").expect("a configuration");
    assert_eq!(config.queues.len(), 1);
    assert_eq!(config.backends.len(), 1);
    assert_eq!(config.backends.first().map(|b| b.weight.default), Some(1.0));
    assert_eq!(config.farm_dir, Path::new("/etc/katabatch/clusterfuzz-config"));
    assert_eq!(config.flags.source, entities::FlagsFrom::Files(Vec::new()));
}

#[test]
fn all_problems_of_a_file_come_at_once_with_line_key_and_hint() {
    check(
        "apiVersion: katabatch.dev/v1\n\
         schedular: x\n\
         queues:\n\
         - name: main\n  \
           spool: {path: 5}\n  \
           ack: on_compl\n\
         - name: main\n\
         backends:\n\
         - name: gke\n  \
           kubernets: {}\n\
         - name: Laptop\n  \
           local: {command: []}\n  \
           weight: {default: 1.5}\n\
         limits: {held: many, lease: 1}\n\
         http: {listen: localhost}\n",
        &[
            "k.yaml:1: apiVersion: `katabatch.dev/v1` is not a version that this katabatch reads; write katabatch.dev/v1alpha1",
            "k.yaml:2: schedular: is not a known key; did you mean `scheduler`?",
            "k.yaml:5: queues[0].spool.path: is the number 5; text is wanted: put it in quotes, \"5\"",
            "k.yaml:6: queues[0].ack: `on_compl` is no ack mode; write on_created or on_completed",
            "k.yaml:7: queues[1].name: `main` is the name of the queue on line 4 too; give every queue a name of its own",
            "k.yaml:7: queues[1]: has no source; write `spool: {path: spool.sqlite}` or `pubsub: {subscription: …}`",
            "k.yaml:9: backends[0]: has no kind; write `kubernetes: {namespace: …}`, `gcp_batch:` or `local: {command: […]}`",
            "k.yaml:10: backends[0].kubernets: is not a known key; did you mean `kubernetes`?",
            "k.yaml:11: backends[1].name: `Laptop` is no backend name; write at most 63 lower-case letters, digits and `-`",
            "k.yaml:12: backends[1].local.command: is empty; write the program and its arguments as a list: [worker, --flag]",
            "k.yaml:13: backends[1].weight.default: is the number 1.5; write a number from 0 to 1",
            "k.yaml:14: limits.held: is the text `many`; write a whole number from 1 to 1000000",
            "k.yaml:14: limits.lease: is the number 1; write a length of time such as 90s, 10m or 1h30m",
            "k.yaml:15: http.listen: `localhost` is not an address; write one such as 127.0.0.1:8090",
        ],
    );
}

#[test]
fn a_cluster_is_said_in_one_way() {
    let backend = |cluster: &str| {
        let head = "apiVersion: katabatch.dev/v1alpha1\nbackends:\n- name: a\n  kubernetes: ";
        format!("{head}{{{cluster}}}\n")
    };
    for fine in ["kubeconfig: k, context: c", "context: c", "gke: {}", "in_cluster: true", ""] {
        parse(&backend(fine)).expect("one cluster");
    }
    for (two, second) in [
        ("kubeconfig: k, gke: {}", "gke"),
        ("context: c, gke: {location: x}", "gke"),
        ("gke: {}, in_cluster: true", "in_cluster"),
    ] {
        let said = format!(
            "k.yaml:4: backends[0].kubernetes.{second}: is a second cluster; write one of \
             kubeconfig, gke and in_cluster"
        );
        check(&backend(two), &[&said]);
    }
}

#[test]
fn what_has_no_effect_on_batch_is_refused() {
    let batch = |more: &str| {
        let head = "apiVersion: katabatch.dev/v1alpha1\nbackends:\n- name: a\n  gcp_batch: {}\n";
        format!("{head}{more}\n")
    };
    parse(&batch("  limits: {pending: {default: 5}, live: 9}")).expect("fine");
    for (more, key) in [
        ("  limits: {creates_per_second: 5}", "limits.creates_per_second"),
        ("  limits: {window: 5}", "limits.window"),
        ("  retain_finished: 1h", "retain_finished"),
        ("  templates: t", "templates"),
    ] {
        let said = format!("k.yaml:5: backends[0].{key}: has no effect on gcp_batch; take it out");
        check(&batch(more), &[&said]);
    }
}

#[test]
fn a_file_that_is_no_configuration_says_so() {
    check("", &["k.yaml:1: is empty; a mapping (key: value) is wanted"]);
    check(
        "scheduler: a\n",
        &["k.yaml:1: has no `apiVersion`; write `apiVersion: katabatch.dev/v1alpha1`"],
    );
    check(
        "apiVersion: katabatch.dev/v1alpha1\nscheduler: a\nscheduler: b\n",
        &["k.yaml:3: scheduler: is written twice; keep one of them"],
    );
    let syntax = parse("a: [\n").expect_err("no YAML").to_string();
    assert!(syntax.contains("k.yaml:") && syntax.contains("not valid YAML"), "{syntax}");
    let missing = Config::load(Path::new("/nowhere/k.yaml")).expect_err("no file").to_string();
    assert!(missing.contains("/nowhere/k.yaml: can't be read"), "{missing}");
}

#[test]
fn with_several_backends_a_weight_is_upstreams_unless_it_is_set() {
    let config = parse(
        "apiVersion: katabatch.dev/v1alpha1\nbackends:\n\
         - {name: a, kubernetes: {namespace: x}}\n\
         - {name: b, local: {command: [w]}, weight: {default: 1}, limits: {pending: {default: 10}}}\n\
         - {name: c, gcp_batch: }\n",
    )
    .expect("a configuration");
    let weights: Vec<_> = config.backends.iter().map(|b| b.weight.clone()).collect();
    assert_eq!(
        weights,
        [
            WeightConfig { flag: Some("k8s_jobs_frequency".into()), default: 0.0 },
            WeightConfig { flag: None, default: 1.0 },
            WeightConfig { flag: Some("gcp_batch_jobs_frequency".into()), default: 1.0 },
        ]
    );
    let pending: Vec<_> = config.backends.iter().map(|b| b.limits.pending).collect();
    assert_eq!(pending, [1_000, 10, 100_000]);
}

/// The example is the reference of all settings: it loads, and no key of the schema is left out.
/// What can't stand beside another key is there as a comment.
#[test]
fn the_example_loads_and_shows_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config.example.yaml");
    let text = std::fs::read_to_string(&path).expect("the example");
    let config = Config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(config.backends.len() > 1 && config.http.is_some());

    let instead = |line: &str| line.replacen("# ", "", usize::from(is_instead(line)));
    let text: String = text.lines().map(|line| instead(line) + "\n").collect();
    let reading = Reading::of(&path);
    let node = reading.parse(&text).expect("yaml");
    let top = reading.root(&node).section().expect("a mapping");
    let _ = read(top, Path::new(""));
    let mut shown = BTreeMap::new();
    for (key, present) in reading.asked() {
        *shown.entry(layer_as_one(&key)).or_insert(false) |= present;
    }
    let missing: Vec<_> = shown.iter().filter(|(_, present)| !**present).collect();
    assert!(missing.is_empty(), "not in config.example.yaml: {missing:?}");
}

/// A commented key, or one below it.
fn is_instead(line: &str) -> bool {
    line.starts_with("  # datastore:") || line.starts_with("  #   ")
}

/// A layer's settings are the same wherever it stands.
fn layer_as_one(key: &str) -> String {
    match key.split('.').collect::<Vec<_>>().as_slice() {
        ["profiles", "default", rest @ ..] if !rest.is_empty() => {
            format!("layer.{}", rest.join("."))
        }
        ["profiles", _, _, rest @ ..] if !rest.is_empty() => format!("layer.{}", rest.join(".")),
        _ => key.to_owned(),
    }
}

/// As the service uses it: the configuration and the farm's files that it names are one state.
#[test]
fn a_change_of_any_file_that_was_read_is_a_new_state_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("written");
    };
    write("k.yaml", "apiVersion: katabatch.dev/v1alpha1\nclusterfuzz: {config_dir: one}\n");
    for farm in ["one", "two"] {
        write(&format!("{farm}/project.yaml"), &format!("cluster_name: {farm}\n"));
        write(&format!("{farm}/batch/batch.yaml"), "mapping: {}\n");
    }
    let file = dir.path().join("k.yaml");
    let watched = watch::Watched::open(move |sources| {
        let config = Config::load_from(&file, sources).map_err(|e| e.to_string())?;
        farm::Farm::load(&config.farm_dir, None, sources).map_err(|e| e.to_string())
    })
    .expect("a farm");
    assert_eq!(watched.get().cluster_name, "one");

    write("one/batch/batch.yaml", "mapping: [\n");
    assert!(
        matches!(watched.poll(), watch::Reload::Failed(error) if error.contains("batch.yaml:"))
    );
    write("k.yaml", "apiVersion: katabatch.dev/v1alpha1\nclusterfuzz: {config_dir: two}\n");
    assert_eq!(watched.poll(), watch::Reload::Reloaded);
    assert_eq!(watched.get().cluster_name, "two");
    write("one/batch/batch.yaml", "mapping: {}\n");
    assert_eq!(watched.poll(), watch::Reload::Unchanged);
}

#[test]
fn routes_and_home_name_backends_that_are_there() {
    let backends = "apiVersion: katabatch.dev/v1alpha1\nbackends:\n\
                    - {name: here, local: {command: [w]}}\n- {name: a, kubernetes: {namespace: x}}\n\
                    - {name: b, kubernetes: {namespace: y}}\n";
    let home =
        |more: &str| parse(&format!("{backends}{more}")).map(|c| c.home.map(|h| h.to_string()));
    assert_eq!(home("").expect("read").as_deref(), Some("a"), "the first cluster");
    assert_eq!(home("home: b\n").expect("read").as_deref(), Some("b"));
    check(
        &format!("{backends}home: here\n"),
        &["k.yaml:6: home: backend `here` is no Kubernetes namespace; name one that is, or leave \
           the key out"],
    );
    check(
        &format!("{backends}routes:\n- {{job_types: [x], backends: [c]}}\n- {{backends: [a]}}\n"),
        &[
            "k.yaml:7: routes[0].backends[0]: no backend is called `c`; there are here, a, b",
            "k.yaml:8: routes[1]: says of no task that it is about it; give job_types, platforms \
             or labels",
        ],
    );
}
