//! Flags that mean something else here, and those that are as upstream.

use std::path::Path;

use super::*;
use crate::check::findings::Verdict;
use crate::config::Config;

fn backends(limits: &str) -> Vec<BackendConfig> {
    let text = format!(
        "apiVersion: katabatch.dev/v1alpha1\nbackends:\n\
         - {{name: gke, kubernetes: {{}}, limits: {limits}}}\n"
    );
    Config::parse(Path::new("k.yaml"), &text).expect("a configuration").backends
}

fn flag(enabled: bool, value: Option<f64>, integer: bool) -> Flag {
    Flag { enabled, value, integer, ..Flag::default() }
}

/// The verdict and detail of what is said of `subject`.
fn said(flags: &[(&str, Flag)], limits: &str, subject: &str) -> (Verdict, String) {
    let flags = FlagSet(flags.iter().map(|(n, f)| ((*n).to_owned(), f.clone())).collect());
    let findings = judge(&backends(limits), &flags);
    let of = findings.all().iter().filter(|finding| finding.subject == subject);
    of.map(|f| (f.verdict, f.detail.clone())).max().unwrap_or((Verdict::Pass, String::new()))
}

#[test]
fn an_integer_weight_is_used_and_said_to_be_unset_upstream() {
    let weight = |flag| said(&[("k8s_jobs_frequency", flag)], "{live: 1}", "weight of gke");
    let (verdict, detail) = weight(flag(true, Some(1.0), true));
    assert_eq!(verdict, Verdict::Warn);
    assert!(detail.starts_with("1:") && detail.contains("ClusterFuzz takes for unset"), "{detail}");
    assert_eq!(weight(flag(true, Some(1.0), false)).0, Verdict::Pass);
    let (verdict, detail) = weight(flag(false, Some(1.0), false));
    assert!(verdict == Verdict::Warn && detail.contains("share goes back"), "{detail}");
}

#[test]
fn a_pending_limit_of_zero_or_no_number_is_said() {
    for (flag, expect, word) in [
        (flag(true, Some(0.0), false), Verdict::Warn, "nothing is created"),
        (flag(true, Some(0.0), true), Verdict::Warn, "nothing is created"),
        (flag(true, Some(0.9), false), Verdict::Warn, "nothing is created"),
        (flag(true, Some(10.5), false), Verdict::Warn, "counts as 10"),
        (flag(true, Some(-1.0), false), Verdict::Warn, "no limit; 1000 is used"),
        (flag(true, Some(f64::NAN), false), Verdict::Warn, "no limit; 1000 is used"),
        (flag(false, Some(5.0), false), Verdict::Warn, "does not count: 1000"),
        (flag(true, None, false), Verdict::Pass, "1000"),
        (flag(true, Some(1_000.0), true), Verdict::Pass, "1000"),
        (flag(true, Some(5_000.0), true), Verdict::Warn, "slows Kubernetes"),
    ] {
        let shown = format!("{flag:?}");
        let (verdict, detail) =
            said(&[("k8s_jobs_pending_limit", flag)], "{live: 1}", "pending limit of gke");
        assert_eq!(verdict, expect, "{shown}: {detail}");
        assert!(detail.contains(word), "{shown}: {detail}");
    }
}

#[test]
fn weights_that_are_no_share_or_leave_some_out_are_said() {
    for (value, word) in [
        (f64::NAN, "no weight"),
        (-1.0, "no weight"),
        (1.5, "no weight"),
        (0.25, "stays in the queue"),
        (0.0, "nothing is created"),
    ] {
        let flag = flag(true, Some(value), false);
        let (verdict, detail) = said(&[("k8s_jobs_frequency", flag)], "{live: 1}", "weights");
        assert!(verdict == Verdict::Warn && detail.contains(word), "{value}: {detail}");
    }
    assert_eq!(said(&[], "{live: 1}", "weights").0, Verdict::Pass);
}

#[test]
fn more_live_jobs_than_the_controllers_bear_are_warned_about() {
    for (limits, expect) in [
        ("{}", Verdict::Warn),
        ("{live: 3001}", Verdict::Warn),
        ("{live: 0}", Verdict::Warn),
        ("{live: 3000}", Verdict::Pass),
    ] {
        assert_eq!(said(&[], limits, "live limit of gke").0, expect, "{limits}");
    }
}

#[test]
fn a_flag_of_nearly_the_right_name_is_noticed_while_the_right_one_is_absent() {
    let wrong = ("k8s_job_frequency", flag(true, Some(1.0), false));
    let right = ("k8s_jobs_frequency", flag(true, Some(1.0), false));
    let (verdict, detail) = said(std::slice::from_ref(&wrong), "{}", "k8s_job_frequency");
    assert!(verdict == Verdict::Warn && detail.contains("no k8s_jobs_frequency"), "{detail}");
    assert_eq!(said(&[wrong, right], "{}", "k8s_job_frequency").1, "");
    assert_eq!(said(&[("something_else", flag(true, None, false))], "{}", "something_else").1, "");
}
