//! See `src/quantity.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| katabatch_fuzz::quantity::check(data));
