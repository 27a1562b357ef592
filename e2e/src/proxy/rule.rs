//! Which requests are broken, and how. Decides; does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::request::Request;

/// What is done to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answer with a Kubernetes Status; the server sees nothing.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The machine's word for it (`TooManyRequests`).
        reason: String,
        /// The words for a person.
        message: String,
        /// A `Retry-After` header, in whole seconds.
        retry_after: Option<Duration>,
    },
    /// Close the connection; the server sees nothing.
    DropBefore,
    /// Let the server do the work, then close the connection without an answer.
    DropAfter,
    /// Let the server do the work, then answer 201 with an empty body.
    Empty201,
    /// Let the server do the work, then answer with a Kubernetes Status in the place of
    /// its own answer: a gateway that gave up waiting.
    AnswerAfter {
        /// The HTTP status.
        status: u16,
        /// The machine's word for it (`Timeout`).
        reason: String,
        /// The words for a person.
        message: String,
    },
    /// Pass the request on after a time.
    Delay(Duration),
    /// Let the server do the work, and pass its answer on after a time.
    DelayAnswer(Duration),
    /// Break the answer off after this many bytes of its body.
    Cut {
        /// How many bytes go through first.
        after_bytes: u64,
    },
    /// Let this many bytes of the answer's body through, then nothing, while the
    /// connection stays open: a peer that is gone without a word.
    Silence {
        /// How many bytes go through first.
        after_bytes: u64,
    },
    /// `410 Expired`: for a watch a stream with that error as its only event, else the
    /// Status.
    Expire,
}

impl Action {
    /// An answer without `Retry-After`.
    pub fn answer(status: u16, reason: &str, message: &str) -> Self {
        Self::Answer { status, reason: reason.into(), message: message.into(), retry_after: None }
    }

    /// `429 TooManyRequests`.
    pub fn too_many_requests(retry_after: Option<Duration>) -> Self {
        Self::Answer {
            status: 429,
            reason: "TooManyRequests".into(),
            message: "the server has received too many requests".into(),
            retry_after,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Answer { .. } => "answer",
            Self::DropBefore => "drop before",
            Self::DropAfter => "drop after",
            Self::Empty201 => "empty 201",
            Self::AnswerAfter { .. } => "answer after",
            Self::Delay(_) => "delay",
            Self::DelayAnswer(_) => "delay answer",
            Self::Cut { .. } => "cut",
            Self::Silence { .. } => "silence",
            Self::Expire => "expire",
        }
    }
}

/// How often a rule has fired; stays readable after the rule is gone.
#[derive(Debug, Clone, Default)]
pub struct Fired(Arc<AtomicUsize>);

impl Fired {
    /// The number.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A matcher and an action. A new rule matches every request, every time.
#[derive(Debug)]
pub struct Rule {
    action: Action,
    verb: Option<String>,
    resource: Option<String>,
    path: Vec<String>,
    later_page: Option<bool>,
    skip: usize,
    times: Option<usize>,
    chance: Option<Chance>,
    lasting: Option<Duration>,
    first: Option<Instant>,
    matched: usize,
    fired: Fired,
}

impl Rule {
    /// A rule that does this to everything.
    pub fn new(action: Action) -> Self {
        Self {
            action,
            verb: None,
            resource: None,
            path: Vec::new(),
            later_page: None,
            skip: 0,
            times: None,
            chance: None,
            lasting: None,
            first: None,
            matched: 0,
            fired: Fired::default(),
        }
    }

    /// Only requests with Kubernetes' verb (`create`, `list`, `watch`) for the resource
    /// (`jobs`).
    #[must_use]
    pub fn on(mut self, verb: &str, resource: &str) -> Self {
        self.verb = Some(verb.into());
        self.resource = Some(resource.into());
        self
    }

    /// Only requests with this verb.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Only requests whose path and query hold this text; called twice, both texts.
    #[must_use]
    pub fn path(mut self, text: &str) -> Self {
        self.path.push(text.into());
        self
    }

    /// Only pages of a list after the first one (or only others).
    #[must_use]
    pub fn later_page(mut self, is: bool) -> Self {
        self.later_page = Some(is);
        self
    }

    /// Lets the first `count` matches pass.
    #[must_use]
    pub fn skip(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    /// Fires at most this many times.
    #[must_use]
    pub fn times(mut self, count: usize) -> Self {
        self.times = Some(count);
        self
    }

    /// Fires at its next match, once.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Fires with this probability, drawn from the seed: the same seed and order of
    /// requests give the same faults.
    #[must_use]
    pub fn chance(mut self, probability: f64, seed: u64) -> Self {
        self.chance = Some(Chance { probability, state: seed });
        self
    }

    /// Fires for so long from its first time on, and then never again.
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    pub(super) fn fired(&self) -> Fired {
        self.fired.clone()
    }

    /// The action, if the rule fires for this request.
    pub(super) fn fire(&mut self, request: &Request) -> Option<Action> {
        if !self.matches(request) {
            return None;
        }
        self.matched += 1;
        if self.matched <= self.skip || self.times.is_some_and(|times| self.fired.count() >= times)
        {
            return None;
        }
        if self.chance.as_mut().is_some_and(|chance| !chance.strikes()) {
            return None;
        }
        self.first.get_or_insert(request.at);
        self.fired.0.fetch_add(1, Ordering::SeqCst);
        Some(self.action.clone())
    }

    fn is_over(&self, at: Instant) -> bool {
        let since = self.first.map(|first| at.saturating_duration_since(first));
        since.zip(self.lasting).is_some_and(|(since, lasting)| since >= lasting)
    }

    fn matches(&self, request: &Request) -> bool {
        let target = format!("{}?{}", request.path, request.query);
        self.verb.as_ref().is_none_or(|verb| verb == request.verb)
            && self.resource.as_ref().is_none_or(|resource| *resource == request.resource)
            && self.path.iter().all(|text| target.contains(text))
            && self.later_page.is_none_or(|is| is == request.continues_a_list())
            && !self.is_over(request.at)
    }
}

/// A small random source of its own (SplitMix64), so that a seed means the same faults
/// with every version of every dependency.
#[derive(Debug)]
struct Chance {
    probability: f64,
    state: u64,
}

impl Chance {
    fn strikes(&mut self) -> bool {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // 53 bits are what a float of this size holds exactly.
        (mixed >> 11) as f64 / (1u64 << 53) as f64 <= self.probability && self.probability > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{Method, Uri};

    fn create() -> Request {
        let uri = Uri::from_static("/apis/batch/v1/namespaces/fuzz/jobs");
        Request::read(&Method::POST, &uri)
    }

    fn list() -> Request {
        Request::read(&Method::GET, &Uri::from_static("/apis/batch/v1/jobs?limit=1"))
    }

    #[test]
    fn it_fires_after_those_to_skip_as_often_as_told() {
        let mut rule = Rule::new(Action::DropAfter).on("create", "jobs").skip(1).times(2);
        let fired = rule.fired();
        let seen: Vec<_> = (0..5).map(|_| rule.fire(&create()).is_some()).collect();
        assert_eq!(seen, [false, true, true, false, false]);
        assert_eq!(rule.fire(&list()), None);
        assert_eq!(fired.count(), 2);
    }

    #[test]
    fn a_seed_gives_the_same_faults_and_about_its_share() {
        let run = || {
            let mut rule = Rule::new(Action::Expire).chance(0.25, 7);
            (0..2000).map(|_| rule.fire(&list()).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
        let share = run().iter().filter(|fired| **fired).count();
        assert!((400..600).contains(&share), "{share} of 2000");
    }

    #[test]
    fn its_time_ends() {
        let mut rule = Rule::new(Action::Expire).lasting(Duration::from_secs(9));
        let mut request = list();
        let fired = [1000, 8, 10].map(|seconds| {
            request.at += Duration::from_secs(seconds);
            rule.fire(&request).is_some()
        });
        assert_eq!(fired, [true, true, false]);
    }

    #[test]
    fn no_chance_never_fires() {
        let mut rule = Rule::new(Action::Expire).chance(0.0, 7);
        assert!((0..1000).all(|_| rule.fire(&list()).is_none()));
    }
}
