//! Replays every committed fuzz seed through the function its fuzz target calls, so that a fault
//! that fuzzing once found stays found without a nightly toolchain. A new target adds a row here and
//! its seeds under `fuzz/corpus`.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::path::PathBuf;

use lanegate::classify;
use lanegate::coding;
use lanegate::config;
use lanegate::http1;
use lanegate::identity;
use lanegate::lane;
use lanegate::ledger;
use lanegate::peek;
use lanegate::sse;
use lanegate::usage;

/// A fuzz target and what it calls.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("coding", coding::fuzzing::cuts),
    ("coded_identity", lane::fuzzing::coded_identity),
    ("config", config::fuzzing::file),
    ("http1_head", http1::fuzzing::head),
    ("http1_framing", http1::fuzzing::framing),
    ("http1_chunked", http1::fuzzing::chunked),
    ("http1_query", http1::fuzzing::query),
    ("json_scan", peek::fuzzing::scan),
    ("peek_agrees", peek::fuzzing::facts),
    ("classify", classify::fuzzing::all),
    ("outcome", ledger::fuzz),
    ("patch", peek::fuzzing::patch),
    ("session", identity::session::fuzzing::session),
    ("sse", sse::fuzzing::events),
    ("usage", usage::fuzzing::tap),
    ("usage_sieve", usage::sieve::fuzzing::sift),
    ("usage_wish", usage::fuzzing::wish),
    ("wire_identity", lane::fuzzing::wire_identity),
];

/// A seed is small, so that a reader can see what it is about.
const SEED_BYTES_MAX: usize = 4096;

#[test]
fn every_seed_of_every_target() {
    let mut failed = Vec::new();
    for (name, run) in TARGETS {
        let seeds = entries(&Path::new("fuzz/corpus").join(name));
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for path in seeds {
            let seed = fs::read(&path).unwrap();
            assert!(seed.len() <= SEED_BYTES_MAX, "{} is long", path.display());
            if catch_unwind(|| run(&seed)).is_err() {
                failed.push(path.display().to_string());
            }
        }
    }
    assert!(failed.is_empty(), "failing seeds:\n{}", failed.join("\n"));
}

/// Neither a target without a row nor seeds without a target.
#[test]
fn every_target_has_a_row() {
    let rows: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(stems(Path::new("fuzz/fuzz_targets")), rows);
    assert_eq!(stems(Path::new("fuzz/corpus")), rows);
}

fn stems(folder: &Path) -> BTreeSet<String> {
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries(folder).into_iter().map(stem).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}
