//! See `src/batch_yaml.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| katabatch_fuzz::batch_yaml::check(data));
