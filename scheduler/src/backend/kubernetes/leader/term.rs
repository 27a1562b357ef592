//! When a process may take the Lease, and how long it may create. Pure: no server's date is
//! compared with a clock of ours, only times of our own monotonic clock with one another.
//!
//! The order that keeps two leaders apart: the old one sends its last create less than
//! [`STOP_AFTER`] after the start of its last good renewal; the new one has seen that renewal's
//! record unchanged for [`LEASE`], which is later, and then waits until what was sent has landed.

use std::time::Duration;

use tokio::time::Instant;

use crate::backend::kubernetes::api::LeaseFacts;

/// How long a record must stand unchanged to have expired (`leaseDurationSeconds`).
pub const LEASE: Duration = Duration::from_secs(10);
/// How often the leader renews it.
pub const RENEW_EVERY: Duration = Duration::from_secs(2);
/// How long after the start of its last good renewal a leader may send creates.
pub const STOP_AFTER: Duration = Duration::from_secs(7);

/// A leader's term, as far as it is known to this process.
#[derive(Debug, Default)]
pub struct Term {
    renewed: Option<Instant>,
    begun: bool,
    over: bool,
    /// The Lease's resourceVersion, for the next write.
    pub version: String,
}

impl Term {
    /// The Lease was taken or renewed, by a request begun at `began`, and has this version now.
    pub fn renewed(&mut self, began: Instant, version: String) {
        self.renewed = self.renewed.max(Some(began));
        self.version = version;
    }

    /// What a predecessor sent has landed: this term's work begins.
    pub fn begin(&mut self) {
        self.begun = true;
    }

    /// Nothing is created from now on, whatever the Lease says.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// When the start of the last good renewal was.
    pub fn last_renewal(&self) -> Option<Instant> {
        self.renewed
    }

    /// Whether a create may be sent at `now`.
    pub fn may_create(&self, now: Instant) -> bool {
        let fresh = |at: Instant| now.saturating_duration_since(at) < STOP_AFTER;
        self.begun && !self.over && self.renewed.is_some_and(fresh)
    }

    /// Whether nothing was renewed for so long that another process may lead by `now`.
    pub fn has_expired(&self, now: Instant) -> bool {
        self.renewed.is_none_or(|at| now.saturating_duration_since(at) >= LEASE)
    }
}

/// What a look at the Lease leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Write our name over the record of this version; an empty one means that none is there.
    Take(String),
    /// Somebody leads, or may: who.
    Wait(String),
}

/// A process that would lead.
#[derive(Debug)]
pub struct Candidate {
    ours: String,
    /// The last record of another's, and since when it stands so.
    seen: Option<(Option<LeaseFacts>, Instant)>,
    /// The Lease was taken, or tried to be, from a holder that did not let go of it.
    expired: bool,
}

impl Candidate {
    /// One that signs as `ours`.
    pub fn new(ours: &str) -> Self {
        Self { ours: ours.to_owned(), seen: None, expired: false }
    }

    /// A read begun at `asked` and answered at `answered` found this.
    pub fn look(&mut self, found: Option<LeaseFacts>, asked: Instant, answered: Instant) -> Look {
        match &found {
            None if self.seen.is_none() => return Look::Take(String::new()),
            // Our own write, whose answer was lost.
            Some(lease) if lease.holder == self.ours => {
                return Look::Take(lease.resource_version.clone());
            }
            Some(lease) if lease.holder.is_empty() => {
                self.expired = false;
                return Look::Take(lease.resource_version.clone());
            }
            // Another's, or one that was another's and is gone, which its holder may not know yet.
            _ => {}
        }
        let holder = found.as_ref().map_or("(its Lease is gone)", |lease| &lease.holder).to_owned();
        match &self.seen {
            Some((same, since)) if *same == found => {
                if asked.saturating_duration_since(*since) < LEASE {
                    return Look::Wait(holder);
                }
                self.expired = true;
                Look::Take(found.map(|lease| lease.resource_version).unwrap_or_default())
            }
            _ => {
                self.seen = Some((found, answered));
                Look::Wait(holder)
            }
        }
    }

    /// When to look again: after `every`, or the moment that the record seen last expires.
    pub fn again(&self, now: Instant, every: Duration) -> Instant {
        let expires = self.seen.as_ref().map(|(_, since)| *since + LEASE);
        let usual = now + every;
        expires.filter(|at| *at > now).map_or(usual, |at| at.min(usual))
    }

    /// Whether the predecessor did not let go by itself, so that its last creates may still land.
    pub fn took_expired(&self) -> bool {
        self.expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Option<LeaseFacts> {
        Some(LeaseFacts { holder: holder.into(), resource_version: version.into() })
    }

    /// Looks at second after second what is there; the answer to the last look.
    fn looks(records: &[(u64, Option<LeaseFacts>)]) -> (Look, bool) {
        let begin = Instant::now();
        let mut candidate = Candidate::new("us");
        let mut last = Look::Wait(String::new());
        for (second, found) in records {
            let at = begin + Duration::from_secs(*second);
            last = candidate.look(found.clone(), at, at);
        }
        (last, candidate.took_expired())
    }

    #[test]
    fn a_lease_is_taken_when_absent_let_go_of_or_unchanged_for_ten_seconds() {
        let take = |version: &str, expired| (Look::Take(version.into()), expired);
        let wait = (Look::Wait("other".into()), false);
        assert_eq!(looks(&[(0, None)]), take("", false));
        assert_eq!(looks(&[(0, lease("", "4"))]), take("4", false));
        assert_eq!(looks(&[(0, lease("us", "4"))]), take("4", false));
        assert_eq!(looks(&[(100, lease("other", "4"))]), wait);
        assert_eq!(looks(&[(0, lease("other", "4")), (9, lease("other", "4"))]), wait);
        assert_eq!(looks(&[(0, lease("other", "4")), (10, lease("other", "4"))]), take("4", true));
        let renewed =
            [(0, lease("other", "4")), (9, lease("other", "5")), (18, lease("other", "5"))];
        assert_eq!(looks(&renewed), wait);
        // Deleted by somebody: its holder may still create.
        let gone = (Look::Wait("(its Lease is gone)".into()), false);
        assert_eq!(looks(&[(0, lease("other", "4")), (1, None), (10, None)]), gone);
        assert_eq!(looks(&[(0, lease("other", "4")), (1, None), (11, None)]), take("", true));
        // The answer to our taking it was lost: the predecessor had not let go all the same.
        let lost = [(0, lease("other", "4")), (10, lease("other", "4")), (11, lease("us", "5"))];
        assert_eq!(looks(&lost), take("5", true));
    }

    #[test]
    fn it_is_looked_again_the_moment_a_record_expires_and_else_as_often_as_usual() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut candidate = Candidate::new("us");
        let again = |candidate: &Candidate, ms| candidate.again(at(ms), Duration::from_secs(1));
        assert_eq!(again(&candidate, 0), at(1_000));
        candidate.look(lease("other", "4"), at(0), at(300));
        assert_eq!(again(&candidate, 9_300), at(10_300));
        assert_eq!(again(&candidate, 9_700), at(10_300));
        // Where it can't be read or taken then, not in a rush.
        assert_eq!(again(&candidate, 10_300), at(11_300));
    }

    #[test]
    fn a_term_creates_for_seven_seconds_after_the_start_of_its_last_renewal_and_expires_at_ten() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut term = Term::default();
        assert!(!term.may_create(begin) && term.has_expired(begin));
        term.renewed(at(0), "1".into());
        assert!(!term.may_create(at(1)), "what the predecessor sent has not landed");
        term.begin();
        assert!(term.may_create(at(6_999)) && !term.may_create(at(7_000)));
        assert!(!term.has_expired(at(9_999)) && term.has_expired(at(10_000)));
        term.renewed(at(6_000), "2".into());
        assert!(term.may_create(at(12_999)) && !term.has_expired(at(15_999)));
        term.end();
        assert!(!term.may_create(at(6_001)));
    }
}
