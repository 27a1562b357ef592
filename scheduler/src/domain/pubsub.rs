//! What Pub/Sub calls its subscriptions and topics: names as they are written, and in full.

/// What is wrong with a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No project is known.
    #[error(
        "the Google Cloud project of `{0}` is not known; write `project:` in the queue's `pubsub` \
         section, or APPLICATION_ID in the farm's project.yaml"
    )]
    NoProject(String),
    /// The message would be put where it came from.
    #[error("`{0}` is both the {1} and the one of the quarantine; name another")]
    Same(String, &'static str),
}

/// Names as they are written: a bare id, or a full resource name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The project of bare ids.
    pub project: Option<String>,
    /// The subscription.
    pub subscription: String,
    /// The topic that it is on.
    pub topic: Option<String>,
    /// Where records of rejected messages go.
    pub quarantine_topic: String,
    /// Where they can be read.
    pub quarantine_subscription: Option<String>,
}

/// Full resource names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The subscription.
    pub subscription: String,
    /// The topic that it is on, where it is told; the server knows it.
    pub topic: Option<String>,
    /// Where records of rejected messages go.
    pub quarantine_topic: String,
    /// Where they can be read.
    pub quarantine_subscription: Option<String>,
}

impl Names {
    /// The full names, bare ids being in the written project or else in `farm`'s.
    ///
    /// # Errors
    /// No project is known, or the quarantine is the queue itself.
    pub fn resolve(written: &Written, farm: Option<&str>) -> Result<Self, NameError> {
        let project = written.project.as_deref().or(farm).filter(|p| !p.is_empty());
        let full = |kind: &str, name: &str| {
            if name.contains('/') {
                return Ok(name.to_owned());
            }
            let project = project.ok_or_else(|| NameError::NoProject(name.to_owned()))?;
            Ok(format!("projects/{project}/{kind}/{name}"))
        };
        let maybe =
            |kind, name: &Option<String>| name.as_deref().map(|n| full(kind, n)).transpose();
        let names = Self {
            subscription: full("subscriptions", &written.subscription)?,
            topic: maybe("topics", &written.topic)?,
            quarantine_topic: full("topics", &written.quarantine_topic)?,
            quarantine_subscription: maybe("subscriptions", &written.quarantine_subscription)?,
        };
        if names.topic.as_ref() == Some(&names.quarantine_topic) {
            return Err(NameError::Same(names.quarantine_topic, "topic"));
        }
        if names.quarantine_subscription.as_ref() == Some(&names.subscription) {
            return Err(NameError::Same(names.subscription, "subscription"));
        }
        Ok(names)
    }
}

/// Whether `name` is what Pub/Sub takes as a topic or subscription, bare or full
/// (<https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names>).
pub fn is_name(name: &str, kind: &str) -> bool {
    let mut parts = name.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(id), None, ..) => is_id(id),
        (Some("projects"), Some(project), Some(is), Some(id), None) => {
            !project.is_empty() && is == kind && is_id(id)
        }
        _ => false,
    }
}

fn is_id(id: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.~+%".contains(c);
    (3..=255).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphabetic())
        && id.chars().all(valid)
        && !id.starts_with("goog")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Written {
        Written {
            subscription: "utask_main-ubuntu-24-04".into(),
            quarantine_topic: "rejected".into(),
            ..Written::default()
        }
    }

    #[test]
    fn bare_ids_are_in_the_written_project_or_else_in_the_farms() {
        let own = Written { project: Some("own".into()), ..written() };
        for (written, farm, expect) in [
            (&own, Some("farm"), "projects/own/subscriptions/utask_main-ubuntu-24-04"),
            (&written(), Some("farm"), "projects/farm/subscriptions/utask_main-ubuntu-24-04"),
        ] {
            assert_eq!(Names::resolve(written, farm).expect("names").subscription, expect);
        }
        let full = Written { topic: Some("projects/x/topics/utask_main".into()), ..written() };
        let names = Names::resolve(&full, Some("farm")).expect("names");
        assert_eq!(names.topic.as_deref(), Some("projects/x/topics/utask_main"));
        assert_eq!(names.quarantine_topic, "projects/farm/topics/rejected");
    }

    #[test]
    fn a_missing_project_and_a_queue_that_is_its_own_quarantine_are_refused() {
        let error = Names::resolve(&written(), None).expect_err("no project").to_string();
        assert!(error.contains("APPLICATION_ID"), "{error}");
        let topic = Written { topic: Some("rejected".into()), ..written() };
        let error = Names::resolve(&topic, Some("p")).expect_err("same").to_string();
        assert!(error.contains("projects/p/topics/rejected"), "{error}");
    }

    #[test]
    fn names_are_what_pub_sub_takes() {
        for (name, valid) in [
            ("utask_main", true),
            ("projects/p/topics/utask_main", true),
            ("projects/p/subscriptions/utask_main", false),
            ("projects//topics/utask_main", false),
            ("projects/p/topics/utask_main/x", false),
            ("ab", false),
            ("1abc", false),
            ("google", false),
            ("a b c", false),
            ("", false),
        ] {
            assert_eq!(is_name(name, "topics"), valid, "{name}");
        }
    }
}
