//! See `src/rendered_job.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| katabatch_fuzz::rendered_job::check(data));
