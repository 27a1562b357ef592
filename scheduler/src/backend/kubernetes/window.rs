//! How many creates may be under way, how fast, and when none at all. Pure.
//!
//! As TCP does it: one at first, doubling until trouble, then half of what was under way and
//! growing slowly. A server's wish to wait (429), or an answer that every create would get (a
//! quota, missing rights), holds the whole backend; after it a single probe goes first. Who waits
//! and how is [`slots`](super::slots)'s.

use std::time::Duration;

use tokio::time::Instant;

use crate::domain::outcome::HoldKind;

/// Why no create may be sent for a while, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// The kind.
    pub kind: HoldKind,
    /// What the server said.
    pub detail: String,
    /// When a probe may be sent.
    pub until: Instant,
}

/// Whether a create may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Now. The epoch goes with the create and comes back with its end.
    Open(u64),
    /// When another one ends.
    Full,
    /// At that time, for the configured rate.
    At(Instant),
    /// Not before the pause is over.
    Paused(Pause),
}

/// How a create ended, as far as the window cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The server took or refused it, in good health.
    Answered,
    /// It failed, or did not answer.
    Failed(String),
    /// It asked everyone to wait.
    Throttled {
        /// For how long; `None` leaves it to us.
        after: Option<Duration>,
        /// What it said.
        detail: String,
    },
    /// Every other create would be refused too.
    Stopped(HoldKind, String),
    /// It was never sent, or given up unanswered.
    Abandoned,
}

/// This many failures in a row, and the backend itself counts as failing.
const FAILURES_TO_PAUSE: u32 = 5;
/// The first pause where the server names no time; each further one in a row is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The first pause after an answer that only a person or time can change.
const FIRST_STOP: Duration = Duration::from_secs(5);
/// The longest pause of our own.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest wish of a server that is followed: a typing error must not stop a farm for a day.
const LONGEST_WISH: Duration = Duration::from_secs(600);
/// How much a create may be ahead of the even pace, so that a late timer loses no rate.
const AHEAD: Duration = Duration::from_millis(50);

/// The window of one backend.
#[derive(Debug)]
pub struct Window {
    most: usize,
    size: usize,
    /// Below this the window doubles, above it grows by one a round.
    threshold: usize,
    grown: usize,
    under_way: usize,
    /// Raised by every cut: what was sent before a cut does not cut again.
    epoch: u64,
    failures: u32,
    pauses: u32,
    pause: Option<Pause>,
    every: Option<Duration>,
    next_at: Option<Instant>,
}

impl Window {
    /// A window of at most `most` creates at once, and of `per_second` a second if given.
    pub fn new(most: usize, per_second: Option<u32>) -> Self {
        let most = most.max(1);
        Self {
            most,
            size: 1,
            threshold: most,
            grown: 0,
            under_way: 0,
            epoch: 0,
            failures: 0,
            pauses: 0,
            pause: None,
            every: per_second.map(|rate| Duration::from_secs(1) / rate.max(1)),
            next_at: None,
        }
    }

    /// How many may be under way now.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many more could enter now.
    pub fn free(&self) -> usize {
        self.size.saturating_sub(self.under_way)
    }

    /// The pause, if there is one (it may be over).
    pub fn paused(&self) -> Option<&Pause> {
        self.pause.as_ref()
    }

    /// Whether everyone who waits should look again: there is a pause, or a rate to wait for.
    pub fn concerns_all(&self) -> bool {
        self.pause.is_some() || self.every.is_some()
    }

    /// Asks for a create to be sent at `now`; [`Entry::Open`] must be followed by
    /// [`end`](Self::end).
    pub fn enter(&mut self, now: Instant) -> Entry {
        match &self.pause {
            Some(pause) if now < pause.until => return Entry::Paused(pause.clone()),
            _ => self.pause = None,
        }
        if self.under_way >= self.size {
            return Entry::Full;
        }
        if let Some(next) = self.next_at {
            let allowed = next.checked_sub(AHEAD).unwrap_or(next);
            if now < allowed {
                return Entry::At(allowed);
            }
        }
        self.next_at = self.every.map(|every| self.next_at.map_or(now, |at| at.max(now)) + every);
        self.under_way += 1;
        Entry::Open(self.epoch)
    }

    /// A create that entered in `epoch` has ended.
    pub fn end(&mut self, epoch: u64, now: Instant, end: End) {
        self.under_way = self.under_way.saturating_sub(1);
        match end {
            End::Abandoned => {}
            End::Answered => self.grow(epoch),
            End::Failed(detail) => {
                self.cut(epoch);
                self.failures += 1;
                if self.failures >= FAILURES_TO_PAUSE {
                    self.pause(HoldKind::BackendFailed, detail, FIRST_PAUSE, None, now);
                }
            }
            End::Throttled { after, detail } => {
                self.cut(epoch);
                self.pause(HoldKind::Throttled, detail, FIRST_PAUSE, after, now);
            }
            End::Stopped(kind, detail) => {
                self.cut(epoch);
                self.pause(kind, detail, FIRST_STOP, None, now);
            }
        }
    }

    fn grow(&mut self, epoch: u64) {
        if epoch != self.epoch {
            return;
        }
        self.failures = 0;
        self.pauses = 0;
        if self.size < self.threshold {
            self.size = (self.size * 2).min(self.threshold);
        } else {
            self.grown += 1;
            if self.grown >= self.size {
                self.grown = 0;
                self.size = (self.size + 1).min(self.most);
                self.threshold = self.size;
            }
        }
    }

    fn cut(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.epoch += 1;
            self.size = (self.size / 2).max(1);
            self.threshold = self.size;
            self.grown = 0;
        }
    }

    fn pause(
        &mut self,
        kind: HoldKind,
        detail: String,
        first: Duration,
        wish: Option<Duration>,
        now: Instant,
    ) {
        let own = (first * 2_u32.saturating_pow(self.pauses.min(8))).min(LONGEST_PAUSE);
        let until = now + wish.map_or(own, |wish| wish.min(LONGEST_WISH).max(FIRST_PAUSE));
        // Answers of one burst lengthen a pause but don't count as further ones.
        match &mut self.pause {
            Some(pause) => {
                if until > pause.until {
                    *pause = Pause { kind, detail, until };
                }
            }
            None => {
                self.pauses += 1;
                self.pause = Some(Pause { kind, detail, until });
            }
        }
        self.threshold = self.threshold.max(self.size);
        self.size = 1;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(window: &mut Window, now: Instant) -> u64 {
        match window.enter(now) {
            Entry::Open(epoch) => epoch,
            other => panic!("expected an open window, got {other:?}"),
        }
    }

    fn answer(window: &mut Window, now: Instant, times: usize) {
        for _ in 0..times {
            let epoch = open(window, now);
            window.end(epoch, now, End::Answered);
        }
    }

    #[test]
    fn it_starts_with_one_probe_and_doubles_up_to_the_most() {
        let now = Instant::now();
        let mut window = Window::new(32, None);
        let epoch = open(&mut window, now);
        assert_eq!(window.enter(now), Entry::Full);
        window.end(epoch, now, End::Answered);
        answer(&mut window, now, 10);
        assert_eq!(window.size(), 32);
    }

    #[test]
    fn one_burst_of_failures_halves_it_once_and_it_grows_back_slowly() {
        let now = Instant::now();
        let mut window = Window::new(32, None);
        answer(&mut window, now, 10);
        let burst: Vec<u64> = (0..4).map(|_| open(&mut window, now)).collect();
        for epoch in burst {
            window.end(epoch, now, End::Failed("500".into()));
        }
        assert_eq!(window.size(), 16);
        answer(&mut window, now, 16);
        assert_eq!(window.size(), 17);
    }

    #[test]
    fn retry_after_holds_the_whole_backend_for_at_least_as_long_and_one_probe_follows() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut window = Window::new(32, None);
        answer(&mut window, now, 10);
        let (a, b) = (open(&mut window, now), open(&mut window, now));
        let throttled = |after| End::Throttled { after: Some(second * after), detail: "".into() };
        window.end(a, now, throttled(7));
        window.end(b, now, throttled(2));
        assert!(
            matches!(window.enter(now + second * 6), Entry::Paused(p) if p.until == now + second * 7)
        );
        open(&mut window, now + second * 7);
        assert_eq!(window.enter(now + second * 7), Entry::Full);
    }

    #[test]
    fn an_answer_that_all_would_get_stops_it_longer_each_time() {
        let mut now = Instant::now();
        let mut window = Window::new(8, None);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let epoch = open(&mut window, now);
            window.end(epoch, now, End::Stopped(HoldKind::Quota, "exceeded quota".into()));
            let Entry::Paused(pause) = window.enter(now) else { panic!("not paused") };
            assert_eq!(pause.kind, HoldKind::Quota);
            pauses.push((pause.until - now).as_secs());
            now = pause.until;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    }

    #[test]
    fn a_server_that_fails_every_call_is_left_alone_and_one_success_forgives() {
        let now = Instant::now();
        let mut window = Window::new(8, None);
        for failures in 1..=FAILURES_TO_PAUSE {
            let epoch = open(&mut window, now);
            window.end(epoch, now, End::Failed("reset".into()));
            assert_eq!(window.pause.is_some(), failures == FAILURES_TO_PAUSE);
        }
        let later = now + LONGEST_PAUSE;
        answer(&mut window, later, 1);
        let epoch = open(&mut window, later);
        window.end(epoch, later, End::Failed("reset".into()));
        assert!(window.pause.is_none());
    }

    #[test]
    fn the_creation_rate_holds_over_time_whatever_the_window() {
        let start = Instant::now();
        let mut window = Window::new(1000, Some(50));
        answer(&mut window, start, 1);
        let mut now = start;
        let mut made = 0;
        while now < start + Duration::from_secs(10) {
            match window.enter(now) {
                Entry::Open(epoch) => {
                    made += 1;
                    window.end(epoch, now, End::Answered);
                }
                Entry::At(at) => now = at,
                other => panic!("{other:?}"),
            }
        }
        assert!((498..=502).contains(&made), "{made}");
    }
}
