//! How many more Jobs a backend may be given. Pure.

/// A backend's room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// Not known, and why: nothing is created (fail closed).
    Unknown(String),
    /// Known.
    Known(Occupancy),
}

/// What is taken and what is allowed. Numbers are Jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Counted as waiting to start: pending pods, and Jobs whose pod has not been seen.
    pub pending: usize,
    /// The pending limit.
    pub pending_limit: usize,
    /// Unfinished Jobs.
    pub live: usize,
    /// The cap on unfinished Jobs; `None` is unlimited.
    pub live_limit: Option<usize>,
}

impl Room {
    /// How many Jobs may be created now.
    pub fn free(&self) -> usize {
        match self {
            Self::Unknown(_) => 0,
            Self::Known(occupancy) => occupancy.free(),
        }
    }
}

impl Occupancy {
    /// How many Jobs may be created now: the smaller of both limits' rests.
    pub fn free(&self) -> usize {
        let pending = self.pending_limit.saturating_sub(self.pending);
        let live = self.live_limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.live));
        pending.min(live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_is_what_both_limits_leave_and_never_below_zero() {
        let room = |pending, live, live_limit| {
            Room::Known(Occupancy { pending, pending_limit: 1000, live, live_limit }).free()
        };
        assert_eq!(room(999, 999, None), 1);
        assert_eq!(room(1200, 1200, None), 0);
        assert_eq!(room(0, 4999, Some(5000)), 1);
        assert_eq!(room(0, 5001, Some(5000)), 0);
        assert_eq!(Room::Unknown("the pod list failed".into()).free(), 0);
    }
}
