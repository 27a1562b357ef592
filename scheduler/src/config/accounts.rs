//! `accounts`: what is done for the accounts that tasks run as.

use crate::located::reading::Field;

/// What is done for the accounts that tasks run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountsConfig {
    /// Let each Kubernetes account act as its Google account, by a binding in that account's IAM
    /// policy.
    pub grant_workload_identity: bool,
}

impl AccountsConfig {
    pub(super) fn read(field: Option<Field<'_>>) -> Self {
        let Some(section) = field.and_then(|f| f.section()) else { return Self::default() };
        let grant = section.get("grant_workload_identity").and_then(|f| f.boolean());
        section.finish();
        Self { grant_workload_identity: grant.unwrap_or(false) }
    }
}
