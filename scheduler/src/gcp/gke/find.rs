//! Which cluster of a listing is meant, and what a refusal to list means: pure.

use serde::Deserialize;

use super::endpoint::{Described, reach};
use super::{GkeCluster, GkeError, Wanted};
use crate::gcp::rest::RestError;

/// GKE's answer (`projects.locations.clusters.list`), as far as it is needed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Listing {
    pub(super) clusters: Vec<Described>,
    pub(super) missing_zones: Vec<String>,
}

/// The wanted one.
pub(super) fn pick(all: &Listing, wanted: &Wanted, project: &str) -> Result<GkeCluster, GkeError> {
    let (project, name) = (project.to_owned(), wanted.name.clone());
    let at_place = |cluster: &&Described| {
        wanted.location.as_deref().is_none_or(|location| cluster.location == location)
    };
    let matching: Vec<&Described> =
        all.clusters.iter().filter(|cluster| cluster.name == name).filter(at_place).collect();
    match matching.as_slice() {
        [] if !all.missing_zones.is_empty() => {
            Err(GkeError::Incomplete { project, name, missing: all.missing_zones.clone() })
        }
        [] => {
            let mut there: Vec<String> =
                all.clusters.iter().map(|c| format!("{} in {}", c.name, c.location)).collect();
            there.sort();
            let place = wanted.location.as_ref().map(|place| format!(" in {place}"));
            Err(GkeError::Absent { project, name, place: place.unwrap_or_default(), there })
        }
        [one] => {
            let shown = format!("{} in {} of project {project}", one.name, one.location);
            let reached =
                reach(one).map_err(|why| GkeError::Unusable { shown: shown.clone(), why })?;
            let mut warnings = Vec::new();
            if !all.missing_zones.is_empty() {
                warnings.push(format!(
                    "the list of clusters is incomplete (nothing came from {}): another `{name}` \
                     there would not be seen; `gke: {{location: {}}}` makes sure",
                    all.missing_zones.join(", "),
                    one.location
                ));
            }
            if !one.status.is_empty() && one.status != "RUNNING" {
                warnings.push(format!("GKE says that {shown} is {}", one.status));
            }
            Ok(GkeCluster { shown, reached, warnings })
        }
        several => {
            let mut locations: Vec<String> = several.iter().map(|c| c.location.clone()).collect();
            locations.sort();
            Err(GkeError::Ambiguous { project, name, locations })
        }
    }
}

/// What a failed listing means.
pub(super) fn refused(error: RestError, project: &str) -> GkeError {
    let project = project.to_owned();
    let Some(refusal) = error.refusal() else { return GkeError::Unanswered { project, error } };
    let why = refusal.message.clone();
    match (refusal.reason.as_str(), refusal.status.as_str()) {
        ("SERVICE_DISABLED", _) => GkeError::Disabled { project, why },
        (_, "PERMISSION_DENIED") if why.contains("has not been used in project") => {
            GkeError::Disabled { project, why }
        }
        (_, "PERMISSION_DENIED") => GkeError::Denied { project, why },
        (_, "NOT_FOUND") => GkeError::UnknownProject { project, why },
        _ => GkeError::Unanswered { project, error },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gcp::rest::Refusal;

    fn listing(clusters: &[(&str, &str)], missing: &[&str]) -> Listing {
        let ca = super::super::endpoint::tests::ca();
        let clusters: Vec<_> = clusters
            .iter()
            .map(|(name, location)| {
                json!({"name": name, "location": location, "endpoint": "192.0.2.7",
                    "status": "RUNNING", "masterAuth": {"clusterCaCertificate": ca}})
            })
            .collect();
        let answer = json!({"clusters": clusters, "missingZones": missing});
        serde_json::from_value(answer).expect("a listing")
    }

    fn found(all: &Listing, location: Option<&str>) -> Result<GkeCluster, GkeError> {
        let location = location.map(str::to_owned);
        pick(all, &Wanted { name: "farm".into(), location, ..Wanted::default() }, "p")
    }

    #[test]
    fn the_cluster_is_found_wherever_it_is() {
        let all = listing(&[("other", "us-east1"), ("farm", "us-west1-b")], &[]);
        let cluster = found(&all, None).expect("found");
        assert_eq!(cluster.shown, "farm in us-west1-b of project p");
        assert!(cluster.warnings.is_empty());
    }

    #[test]
    fn an_absent_cluster_is_told_with_those_that_are_there() {
        let error = found(&listing(&[("b", "z"), ("a", "y")], &[]), None).expect_err("absent");
        assert_eq!(error.to_string(), "project p has no GKE cluster `farm`: it has a in y, b in z");
        let none: Listing = serde_json::from_value(json!({})).expect("an empty answer");
        let error = found(&none, Some("z")).expect_err("absent");
        assert_eq!(error.to_string(), "project p has no GKE cluster `farm` in z: it has none");
        assert!(!error.is_transient() && error.hint().contains("cluster_name"));
    }

    #[test]
    fn one_name_in_two_locations_is_ambiguous_until_the_location_is_said() {
        let all = listing(&[("farm", "us-west1"), ("farm", "europe-west4")], &[]);
        let error = found(&all, None).expect_err("ambiguous");
        assert!(error.to_string().ends_with("in each of europe-west4, us-west1"), "{error}");
        assert!(error.hint().contains("location: europe-west4"));
        let cluster = found(&all, Some("us-west1")).expect("found");
        assert!(cluster.shown.contains("in us-west1"));
    }

    #[test]
    fn missing_zones_make_an_absence_retryable_and_a_match_a_warning() {
        let error = found(&listing(&[("b", "z")], &["us-east1-b"]), None).expect_err("incomplete");
        assert!(error.is_transient() && error.to_string().contains("us-east1-b"), "{error}");
        let cluster = found(&listing(&[("farm", "z")], &["us-east1-b"]), None).expect("found");
        assert!(cluster.warnings[0].contains("incomplete"), "{:?}", cluster.warnings);
    }

    #[test]
    fn each_refusal_to_list_is_its_own_error() {
        let refused = |http, status: &str, reason: &str, message: &str| {
            let refusal =
                Refusal { status: status.into(), message: message.into(), reason: reason.into() };
            let error = RestError::Refused { host: "h".into(), status: http, refusal };
            let error = super::refused(error, "p");
            format!("{error}\n{}", error.hint())
        };
        for (text, expect) in [
            (refused(403, "PERMISSION_DENIED", "", "Required …list"), "roles/container.developer"),
            (refused(403, "PERMISSION_DENIED", "SERVICE_DISABLED", "x"), "gcloud services enable"),
            (
                refused(403, "PERMISSION_DENIED", "", "API has not been used in project 1 before"),
                "gcloud services enable",
            ),
            (refused(404, "NOT_FOUND", "", "x"), "there is no project p"),
            (refused(503, "UNAVAILABLE", "", "x"), "can't be asked"),
        ] {
            assert!(text.contains(expect), "{text}");
        }
    }
}
