//! See `src/signed_url.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| katabatch_fuzz::signed_url::check(data));
