//! What can be read off a running backend beside its room.

use super::KubernetesBackend;

impl KubernetesBackend {
    /// How many creates may be under way now.
    pub fn window(&self) -> usize {
        self.slots.size()
    }

    /// Whether this process leads, as far as it knows now.
    pub fn leads(&self) -> bool {
        self.leader.may_create()
    }
}
