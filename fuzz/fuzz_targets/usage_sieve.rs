#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lanegate::usage::sieve::fuzzing::sift(input));
