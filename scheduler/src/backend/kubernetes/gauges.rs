//! What can be read off a running backend beside its room.

use super::KubernetesBackend;

impl KubernetesBackend {
    /// How many creates may be under way now.
    pub fn window(&self) -> usize {
        self.slots.size()
    }
}
