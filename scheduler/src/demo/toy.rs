//! A toy parser with a bug, and a small mutational fuzzer for it: the demo worker's real work.
//!
//! An input is a header of four bytes (`KB`, a kind, a zero byte) and chunks of a tag, a length and
//! that much data. The fuzzer keeps what reaches a new path; it never touches the header. Its
//! choices come from the input alone, so that the same input gives the same report.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// The exit code of a worker whose parser crashed, libFuzzer's own.
pub const CRASH_EXIT: u8 = 77;

/// So many executions are made in any case: a crash that is reachable by then is always found.
pub const FEWEST_RUNS: u64 = 2_000;

/// What an input's header says that the worker will go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing special: the parser has no bug for it.
    Plain,
    /// The parser's bug can be reached.
    Buggy,
    /// The parser never comes back.
    Endless,
    /// The parser uses much memory and prints much.
    Lavish,
}

impl Kind {
    const ALL: [(Self, u8); 4] =
        [(Self::Plain, b'1'), (Self::Buggy, b'2'), (Self::Endless, b'3'), (Self::Lavish, b'4')];

    /// The kind of an input; what has no header is plain.
    pub fn of(input: &[u8]) -> Self {
        let [b'K', b'B', kind, 0, ..] = input else { return Self::Plain };
        Self::ALL.iter().find(|(_, byte)| byte == kind).map_or(Self::Plain, |(kind, _)| *kind)
    }

    /// The four bytes of a header.
    pub fn header(self) -> [u8; HEADER] {
        let byte = Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(b'1', |(_, byte)| *byte);
        [b'K', b'B', byte, 0]
    }
}

const HEADER: usize = 4;
const WORD: &[u8] = b"boom";
/// Inputs do not grow beyond this.
const LONGEST: usize = 256;
/// How far a byte is moved at most when it is moved and not replaced.
const NEARBY: u8 = 8;

/// What one fuzzing run found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Executions of the parser.
    pub runs: u64,
    /// Distinct paths seen.
    pub paths: u32,
    /// The input that crashed the parser, if one did.
    pub crash: Option<Vec<u8>>,
}

/// Fuzzes the parser from `input` on: [`FEWEST_RUNS`] executions, and more while `more` says so.
pub fn fuzz(input: &[u8], mut more: impl FnMut(u64) -> bool) -> Report {
    let mut random = ChaCha8Rng::from_seed(Sha256::digest(input).into());
    let mut corpus = vec![input.to_vec()];
    let mut seen = 0_u64;
    let mut report = Report { runs: 0, paths: 0, crash: None };
    let mut candidate = input.to_vec();
    while report.runs < FEWEST_RUNS || more(report.runs) {
        report.runs += 1;
        let parsed = parse(&candidate);
        if parsed.paths & !seen != 0 {
            seen |= parsed.paths;
            corpus.push(candidate.clone());
        }
        report.paths = seen.count_ones();
        if parsed.crashed {
            report.crash = Some(candidate);
            return report;
        }
        let parent = random.random_range(0..corpus.len());
        candidate.clear();
        candidate.extend(corpus.get(parent).into_iter().flatten());
        mutate(&mut candidate, &mut random);
    }
    report
}

struct Parsed {
    /// One bit a path.
    paths: u64,
    crashed: bool,
}

fn parse(input: &[u8]) -> Parsed {
    let buggy = Kind::of(input) == Kind::Buggy;
    let mut parsed = Parsed { paths: 1, crashed: false };
    let mut rest = input.get(HEADER..).unwrap_or_default();
    let mut depth = 0_u32;
    while let [tag, length, tail @ ..] = rest {
        let data = tail.get(..usize::from(*length)).unwrap_or(tail);
        rest = tail.get(data.len()..).unwrap_or_default();
        depth += 1;
        match tag {
            b'N' => {
                let sum = data.iter().fold(0_u32, |sum, b| sum.wrapping_mul(31) + u32::from(*b));
                parsed.paths |= 2 << (sum % 16);
            }
            b'S' => {
                let matched = data.iter().zip(WORD).take_while(|(a, b)| a == b).count();
                parsed.paths |= 1 << (32 + matched);
                parsed.crashed |= buggy && matched == WORD.len();
            }
            _ => parsed.paths |= 1 << (40 + depth.min(15)),
        }
    }
    parsed
}

/// Changes, moves, adds or takes away a few bytes after the header.
fn mutate(input: &mut Vec<u8>, random: &mut ChaCha8Rng) {
    for _ in 0..random.random_range(1..=3) {
        let end = input.len();
        if end <= HEADER {
            input.push(random.random());
            continue;
        }
        let at = random.random_range(HEADER..end);
        match random.random_range(0..4) {
            0 => drop(input.remove(at)),
            1 if end < LONGEST => input.insert(at, random.random()),
            2 => change(input, at, |byte| byte.wrapping_add(random.random_range(1..=NEARBY))),
            _ => change(input, at, |_| random.random()),
        }
    }
}

fn change(input: &mut [u8], at: usize, to: impl FnOnce(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = to(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bug_is_found_from_nearby_and_only_in_buggy_inputs() {
        let input = |kind: Kind| [&kind.header()[..], b"S\x04booh"].concat();
        let found = fuzz(&input(Kind::Buggy), |_| false);
        assert!(found.crash.is_some_and(|crash| parse(&crash).crashed));
        let plain = fuzz(&input(Kind::Plain), |runs| runs < 5_000);
        assert_eq!((plain.runs, plain.crash), (5_000, None));
        assert!(plain.paths > 10, "{}", plain.paths);
    }

    #[test]
    fn the_same_input_gives_the_same_report_whatever_it_is() {
        for input in [&b""[..], b"K", b"no header at all", &Kind::Plain.header()] {
            assert_eq!(fuzz(input, |_| false), fuzz(input, |_| false));
            assert_eq!(Kind::of(input), Kind::Plain);
        }
    }
}
