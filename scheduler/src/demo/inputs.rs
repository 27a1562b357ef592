//! The inputs of a demo's tasks, made so that what a worker finds in each is known beforehand.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::toy::{self, Kind};

/// The folder that holds them.
pub(super) const FOLDER: &str = "inputs";

/// An input of this kind. A buggy one is chosen so that its crash is certainly found.
pub(super) fn make(kind: Kind, random: &mut ChaCha8Rng) -> Vec<u8> {
    loop {
        let mut input = kind.header().to_vec();
        for _ in 0..random.random_range(1..6) {
            let length: u8 = random.random_range(1..12);
            input.extend([b'N', length]);
            input.extend((0..length).map(|_| random.random::<u8>()));
        }
        if kind == Kind::Buggy {
            input.extend(b"S\x04booh");
        }
        if kind != Kind::Buggy || toy::fuzz(&input, |_| false).crash.is_some() {
            return input;
        }
    }
}
