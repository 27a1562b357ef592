//! The gate by examples and properties.

use super::*;
use crate::domain::name::Subject;
use proptest::prelude::*;

/// A task that may go anywhere.
fn any(_: usize) -> bool {
    true
}

fn hash(n: usize) -> TaskHash {
    TaskHash::of(&"fuzz".into(), &"j".into(), &Subject::Message(n.to_string()))
}

fn weights(of: &[(&str, f64)]) -> Weights {
    let candidates: Vec<_> = of
        .iter()
        .map(|(name, weight)| Candidate {
            name: (*name).into(),
            flag: Some(format!("{name}_flag")),
            default_weight: *weight,
        })
        .collect();
    Weights::read(&candidates, &FlagSet::default())
}

fn counts(weights: &Weights, n: usize, now: Timestamp) -> Vec<usize> {
    let mut counts = vec![0; weights.shares.len() + 1];
    for task in 0..n {
        match weights.route(&hash(task), now, any) {
            Route::To(at) => counts[at] += 1,
            _ => counts[weights.shares.len()] += 1,
        }
    }
    counts
}

// Case 17.
#[test]
fn an_integer_weight_counts_and_no_weight_falls_to_the_default_with_a_warning() {
    let candidate = Candidate { name: "k8s".into(), flag: Some("f".into()), default_weight: 0.25 };
    let read = |value| {
        let flag = Flag { enabled: true, value, ..Flag::default() };
        let flags = FlagSet([("f".to_owned(), flag)].into());
        let weights = Weights::read(std::slice::from_ref(&candidate), &flags);
        (weights.shares[0].weight, weights.warnings.len())
    };
    assert_eq!(read(Some(1.0)), (1.0, 0));
    assert_eq!(read(Some(f64::NAN)), (0.25, 1));
    assert_eq!(read(Some(-1.0)), (0.25, 1));
    assert_eq!(read(None), (0.25, 0));
}

#[test]
fn a_flag_that_is_off_sends_its_share_back() {
    let candidates = [
        Candidate { name: "a".into(), flag: Some("fa".into()), default_weight: 0.5 },
        Candidate { name: "b".into(), flag: None, default_weight: 0.5 },
    ];
    let off = Flag { value: Some(1.0), ..Flag::default() };
    let weights = Weights::read(&candidates, &FlagSet([("fa".to_owned(), off)].into()));
    let counts = counts(&weights, 1000, Timestamp::UNIX_EPOCH);
    assert_eq!(counts[0], 0);
    assert!((400..600).contains(&counts[1]) && (400..600).contains(&counts[2]), "{counts:?}");
}

#[test]
fn weights_that_make_up_one_are_given_as_they_were_asked_for() {
    let weights = weights(&[("a", 0.3), ("b", 0.4), ("c", 0.2), ("d", 0.1), ("e", 0.0)]);
    assert_eq!(weights.warnings, Vec::<String>::new());
    assert_eq!(weights.to_string(), "a 0.3, b 0.4, c 0.2, d 0.1, e 0");
}

#[test]
fn weights_fill_up_to_one_in_order() {
    let weights = weights(&[("a", 0.7), ("b", 0.7), ("c", 1.0)]);
    let shares: Vec<f64> = weights.shares.iter().map(|s| s.weight).collect();
    assert!((shares[1] - 0.3).abs() < 1e-9 && shares[2] == 0.0, "{shares:?}");
    assert_eq!(weights.warnings.len(), 2);
}

// Case 14.
#[test]
fn weight_zero_is_never_chosen_and_all_zero_is_nowhere() {
    let tiny = weights(&[("k8s", 0.0), ("batch", 0.9995)]);
    assert_eq!(counts(&tiny, 3000, Timestamp::UNIX_EPOCH)[0], 0);
    assert_eq!(
        weights(&[("k8s", 0.0)]).route(&hash(1), Timestamp::UNIX_EPOCH, any),
        Route::Nowhere
    );
}

#[test]
fn a_throttled_task_gets_its_turn_in_another_slot() {
    let weights = weights(&[("a", 0.1)]);
    for task in 0..20 {
        let turn = (0..200).any(|slot| {
            let now = Timestamp::from_second(slot * 60).expect("a time");
            weights.route(&hash(task), now, any) == Route::To(0)
        });
        assert!(turn, "task {task} starves");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn shares_come_out_as_asked_and_only_the_moved_share_moves(
        a in 0.05_f64..0.6, moved in 0.0_f64..0.3
    ) {
        let n = 4000;
        let before = weights(&[("a", a), ("b", 1.0 - a)]);
        let after = weights(&[("a", a + moved), ("b", 1.0 - a - moved)]);
        let share = counts(&before, n, Timestamp::UNIX_EPOCH)[0] as f64 / n as f64;
        prop_assert!((share - a).abs() < 0.04, "{share} for {a}");
        let at = |w: &Weights, t| w.route(&hash(t), Timestamp::UNIX_EPOCH, any);
        let back = (0..n).filter(|&t| at(&before, t) == Route::To(0) && at(&after, t) != Route::To(0));
        prop_assert_eq!(back.count(), 0);
    }
}

#[test]
fn a_bound_task_goes_where_it_may_and_nowhere_when_that_has_no_weight() {
    let weights = weights(&[("linux", 0.9), ("android", 0.1), ("spare", 0.0)]);
    let now = Timestamp::UNIX_EPOCH;
    for task in 0..100 {
        assert_eq!(weights.route(&hash(task), now, |at| at == 1), Route::To(1));
        assert_eq!(weights.route(&hash(task), now, |at| at == 2), Route::Nowhere);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_change_of_one_weight_moves_tasks_to_or_from_that_backend_alone(
        raw in prop::collection::vec(1_u32..100, 2..6), which in 0_usize..6, grown in 1_u32..200
    ) {
        let n = 1500;
        let which = which % raw.len();
        let named = |raw: &[u32]| {
            // Over a fixed sum, so that no filling changes the others.
            let of = |(at, weight): (usize, &u32)| (format!("b{at}"), f64::from(*weight) / 1000.0);
            let all: Vec<_> = raw.iter().enumerate().map(of).collect();
            let all: Vec<_> = all.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
            weights(&all)
        };
        let (before, mut raw) = (named(&raw), raw);
        raw[which] += grown;
        let after = named(&raw);
        for task in 0..n {
            let (from, to) = (before.best(&hash(task), any), after.best(&hash(task), any));
            prop_assert!(from == to || to == Some(which), "{from:?} to {to:?}");
            prop_assert_eq!(before.best(&hash(task), any), from, "a redelivery goes elsewhere");
            // Without the backend that it is on, only a task of that backend moves.
            let gone = before.best(&hash(task), |at| at != which);
            prop_assert!(from == Some(which) || gone == from);
        }
        let sum: u32 = raw.iter().sum();
        let got = (0..n).filter(|task| after.best(&hash(*task), any) == Some(which)).count();
        let (got, share) = (got as f64 / n as f64, f64::from(raw[which]) / f64::from(sum));
        // Five standard deviations of a sample of this size.
        let off = 5.0 * (share * (1.0 - share) / n as f64).sqrt();
        prop_assert!((got - share).abs() < off, "{got} for {share}");
    }

    #[test]
    fn a_sum_below_one_leaves_that_share_of_the_slots_and_starves_nobody(weight in 0.05_f64..0.95) {
        let weights = weights(&[("a", weight)]);
        let (tasks, slots) = (100, 100);
        let mut went = 0;
        for task in 0..tasks {
            let turns = (0..slots).filter(|slot| {
                let now = Timestamp::from_second(slot * 60).expect("a time");
                weights.route(&hash(task), now, any) == Route::To(0)
            });
            let turns = turns.count();
            prop_assert!(turns > 0 || weight < 0.15, "task {task} starves");
            went += turns;
        }
        let share = went as f64 / f64::from(u32::try_from(tasks * slots as usize).expect("small"));
        prop_assert!((share - weight).abs() < 0.03, "{share} for {weight}");
    }
}

mod rules {
    use crate::domain::glob::Glob;
    use crate::domain::labels::TaskLabels;
    use crate::domain::task::WorkloadKey;
    use crate::domain::workload::{Account, Isolation, Profile, Workload};
    use crate::gate::routes::{Routes, Rule};
    use std::time::Duration;

    fn workload(job_type: &str, platform: &str, team: Option<&str>) -> Workload {
        let labels = team.map(|team| ("team".to_owned(), team.to_owned())).into_iter().collect();
        Workload {
            key: WorkloadKey { command: "fuzz".into(), job_type: job_type.into() },
            mapping: "m".into(),
            platform: platform.into(),
            project: None,
            base_os_version: None,
            image: "image".into(),
            release: "prod".into(),
            account: Account::Existing { name: "sa".into() },
            isolation: Isolation::Kata,
            duration: Duration::from_secs(60),
            disk_gb: None,
            machines: None,
            profile: Profile { labels, ..Profile::default() },
        }
    }

    #[test]
    fn the_first_rule_that_fits_all_its_selectors_decides() {
        let globs = |names: &[&str]| names.iter().map(|name| Glob::new(name)).collect::<Vec<_>>();
        let rule = |job_types: &[&str], platforms: &[&str], team: Option<&str>, to: &str| Rule {
            job_types: globs(job_types),
            platforms: globs(platforms),
            labels: team.map(|team| ("team".to_owned(), Glob::new(team))).into_iter().collect(),
            backends: vec![to.into()],
        };
        let routes = Routes(vec![
            rule(&["android-*", "*_phone"], &[], None, "phones"),
            rule(&[], &["ANDROID"], None, "emulators"),
            rule(&["libfuzzer_*"], &["LINUX"], Some("s*"), "secret"),
        ]);
        let to = |job_type, platform, team| {
            let workload = workload(job_type, platform, team);
            let rule = routes.rule(&workload, &TaskLabels::default());
            rule.map(|rule| rule.backends[0].to_string())
        };
        assert_eq!(to("android-x", "ANDROID", None).as_deref(), Some("phones"));
        assert_eq!(to("x_phone", "LINUX", None).as_deref(), Some("phones"));
        assert_eq!(to("x", "ANDROID", None).as_deref(), Some("emulators"));
        assert_eq!(to("libfuzzer_x", "LINUX", Some("secret")).as_deref(), Some("secret"));
        assert_eq!(to("libfuzzer_x", "LINUX", Some("public")), None);
        assert_eq!(to("libfuzzer_x", "LINUX", None), None);
        assert_eq!(to("afl_x", "LINUX", None), None);
        assert!(!routes.read_tasks());
        // A label of the task itself, whatever the profile says.
        let mut own = rule(&["libfuzzer_*"], &[], None, "urgent");
        own.labels = [("task.katabatch.dev/team".to_owned(), Glob::new("blue*"))].into();
        let routes = Routes([vec![own], routes.0.clone()].concat());
        assert!(routes.read_tasks());
        let of = |team: &str| {
            let labels = [("task.katabatch.dev/team".to_owned(), team.to_owned())].into();
            let workload = workload("libfuzzer_x", "LINUX", Some("secret"));
            let rule = routes.rule(&workload, &TaskLabels::of(&labels)).expect("a rule");
            rule.backends[0].to_string()
        };
        assert_eq!((of("blue-1").as_str(), of("red").as_str()), ("urgent", "secret"));
        let other = Routes(vec![rule(&["a"], &[], None, "b")]);
        assert_ne!(routes.fingerprint(), other.fingerprint());
    }
}
