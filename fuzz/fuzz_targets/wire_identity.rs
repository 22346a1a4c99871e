#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lanegate::lane::fuzzing::wire_identity(input));
