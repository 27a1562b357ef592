//! Pods and events, as the API server sends them.

use serde::Deserialize;

use super::super::api::{EventFacts, OwnerJob, PodFacts};
use super::super::facts::{Said, Text, WirePodStatus, WorkPod};
use super::{Facts, Meta, Owner, WireMeta};

impl Facts for PodFacts {
    type Wire = WireMeta;

    fn from_wire(WireMeta { metadata }: WireMeta) -> Option<Self> {
        let owner = metadata.owner_references.unwrap_or_default();
        let job = owner.into_iter().find(|owner| owner.kind == "Job");
        (!metadata.name.is_empty()).then_some(())?;
        Some(Self {
            name: metadata.name,
            resource_version: metadata.resource_version,
            farm: metadata.labels.unwrap_or_default().farm(),
            job: job.map(|Owner { name, uid, .. }| OwnerJob { name, uid }),
        })
    }
}

/// A pod with its status.
#[derive(Debug, Deserialize)]
pub struct WirePod {
    metadata: Meta,
    #[serde(default)]
    status: WirePodStatus,
}

impl Facts for WorkPod {
    type Wire = WirePod;

    fn from_wire(WirePod { metadata, status }: WirePod) -> Option<Self> {
        let owner = metadata.owner_references.unwrap_or_default();
        let job = owner.into_iter().find(|owner| owner.kind == "Job");
        let job = job.map(|Owner { name, uid, .. }| OwnerJob { name, uid });
        (!metadata.name.is_empty()).then_some(())?;
        Some(Self {
            story: status.story(job.as_ref().map(|job| job.name.as_str())),
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            deleting: metadata.deletion_timestamp.is_some(),
            job,
        })
    }
}

/// An event.
#[derive(Debug, Deserialize)]
pub struct WireEvent {
    #[serde(default)]
    reason: Text,
    #[serde(default)]
    message: Text,
}

impl Facts for EventFacts {
    type Wire = WireEvent;

    fn from_wire(WireEvent { reason, message }: WireEvent) -> Option<Self> {
        Some(Self { said: Said { reason, message } })
    }
}
