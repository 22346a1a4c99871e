//! Checks on the source tree itself: module layering, crate containment, file length.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Module, its layer, and the modules of the same layer it may import.
/// A module may always import any module of a lower layer.
const LAYERS: &[(&str, u8, &[&str])] = &[
    ("limits", 0, &[]),
    ("clock", 0, &[]),
    ("meter", 0, &[]),
    ("buf", 0, &["limits"]),
    ("runtime", 0, &["limits", "clock"]),
    ("json", 0, &["limits"]),
    ("http1", 1, &[]),
    ("coding", 1, &[]),
    ("sse", 1, &[]),
    ("dialect", 1, &[]),
    ("peek", 1, &["dialect"]),
    ("usage", 1, &["coding", "dialect", "peek", "sse"]),
    ("auth", 2, &[]),
    ("identity", 2, &[]),
    ("classify", 2, &[]),
    ("route", 2, &["auth", "classify", "identity"]),
    ("switch", 2, &["identity", "route"]),
    ("tls", 3, &[]),
    ("upstream", 3, &["tls"]),
    ("lane", 3, &["tls"]),
    ("ledger", 3, &["observe", "tls"]),
    ("observe", 3, &["lane"]),
    ("failure", 4, &[]),
    ("decider", 4, &[]),
    ("config", 5, &[]),
    ("local", 5, &[]),
    ("exchange", 5, &["local"]),
    // The scripted provider shares nothing with the gateway, so that a fault in one cannot hide a
    // fault in the other; it sits high only so that nothing below can import it.
    ("mock", 6, &[]),
    // The load generator asks a gateway from outside; it shares its words and not its code.
    ("bench", 6, &[]),
    // Asks a gateway from outside too, a switch.
    ("probe", 6, &[]),
    ("admin", 6, &[]),
    ("server", 6, &["admin"]),
    ("lib", 7, &[]),
    ("main", 8, &[]),
];

/// Pure layers also may not see the buffer pool or the clock.
const PURE: &[u8] = &[1, 2];
const FORBIDDEN_TO_PURE: &[&str] = &["buf", "clock", "runtime"];

/// External crates and the only modules that may name them.
const CONTAINED: &[(&str, &[&str])] = &[
    ("io_uring", &["runtime"]),
    ("monoio", &["runtime"]),
    ("pin_project_lite", &["runtime"]),
    ("rustix", &["bench", "mock", "runtime"]),
    ("libc", &["runtime"]),
    ("socket2", &["runtime"]),
    ("httparse", &["http1"]),
    ("flate2", &["coding"]),
    ("zstd_safe", &["coding"]),
    ("brotli_decompressor", &["coding"]),
    ("simd_json", &["json"]),
    ("rustls", &["tls"]),
    ("subtle", &["auth"]),
    ("webpki_roots", &["tls"]),
    (
        "crossbeam",
        &[
            "decider", "ledger", "observe", "server", "switch", "upstream",
        ],
    ),
    ("hdrhistogram", &["bench", "observe"]),
    ("prometheus_client", &["observe"]),
    ("memchr", &["bench", "http1", "json", "sse", "usage"]),
    ("serde_saphyr", &["config"]),
    ("clap", &["bench", "main"]),
    ("sha2", &["auth", "identity", "peek", "switch"]),
    ("uuid", &["exchange", "ledger", "server", "switch"]),
    ("rusqlite", &["ledger"]),
    ("tokio", &["ledger", "tls"]),
    ("tokio_postgres", &["ledger", "tls"]),
    ("tokio_rustls", &["tls"]),
];

/// Capabilities, and the only modules that may name them.
const NAMED: &[(&str, &[&str])] = &[
    // The right to judge message text (decisions S14).
    ("TextReader", &["peek", "switch"]),
    // What an agent is recognised by; who wants to know asks the view of the session (decision C8).
    ("UserAgent", &["classify", "exchange"]),
    ("ToolNames", &["classify", "peek"]),
    ("ToolName", &["classify", "peek"]),
];

/// The only modules that may contain `unsafe`; each file says why at its top.
const UNSAFE: &[&str] = &["runtime", "json"];

/// Production lines allowed in one file; `(path, cap, reason)` raises it for one file.
const LINES_MAX: usize = 600;
const LINES_EXEMPT: &[(&str, usize, &str)] = &[];

const NAMES_BANNED: &[&str] = &[
    "util", "utils", "common", "helpers", "misc", "types", "manager",
];

#[test]
fn tidy() {
    let mut errors = Vec::new();
    for path in rust_files(Path::new("src")) {
        check(&path, &fs::read_to_string(&path).unwrap(), &mut errors);
    }
    assert!(errors.is_empty(), "\n{}", errors.join("\n"));
}

fn check(path: &Path, text: &str, errors: &mut Vec<String>) {
    let layers: BTreeMap<_, _> = LAYERS.iter().map(|(m, l, s)| (*m, (*l, *s))).collect();
    let module = module_of(path);
    let shown = path.display();
    let Some(&(layer, siblings)) = layers.get(module.as_str()) else {
        errors.push(format!("{shown}: module `{module}` has no row in LAYERS"));
        return;
    };
    let stem = path.file_stem().unwrap().to_str().unwrap();
    if NAMES_BANNED.contains(&stem) {
        errors.push(format!("{shown}: name the subject, not `{stem}`"));
    }
    let cap = LINES_EXEMPT
        .iter()
        .find(|e| path.ends_with(e.0))
        .map_or(LINES_MAX, |e| e.1);
    let production = text
        .lines()
        .take_while(|l| l.trim() != "#[cfg(test)]")
        .count();
    if production > cap {
        errors.push(format!(
            "{shown}: {production} production lines, at most {cap}"
        ));
    }
    let is_module_root =
        path.components().count() == 2 || stem == "mod" && path.components().count() == 3;
    for (number, line) in text
        .lines()
        .take(production)
        .enumerate()
        .map(|(i, l)| (i + 1, l))
    {
        let code = line.split("//").next().unwrap();
        // Spellings that would let an import slip past the table below.
        let climbs = code.contains("super::super") || is_module_root && code.contains("super::");
        if climbs || code.contains("crate::{") {
            errors.push(format!(
                "{shown}:{number}: write the import as `crate::module::Item`"
            ));
        }
        for target in names_after(code, "crate::") {
            let Some(&(theirs, _)) = layers.get(target.as_str()) else {
                continue;
            };
            let same = target == module || siblings.contains(&target.as_str());
            if theirs > layer || (theirs == layer && !same) {
                errors.push(format!(
                    "{shown}:{number}: `{module}` may not import `{target}`"
                ));
            }
            if PURE.contains(&layer) && FORBIDDEN_TO_PURE.contains(&target.as_str()) {
                errors.push(format!(
                    "{shown}:{number}: pure `{module}` may not see `{target}`"
                ));
            }
        }
        let words = words(code);
        if words.contains("unsafe") && !UNSAFE.contains(&module.as_str()) {
            errors.push(format!("{shown}:{number}: `unsafe` is not for `{module}`"));
        }
        for (name, allowed) in NAMED {
            if words.contains(name) && !allowed.contains(&module.as_str()) {
                errors.push(format!("{shown}:{number}: `{name}` is not for `{module}`"));
            }
        }
        for (krate, allowed) in CONTAINED {
            if names_before(code, krate) && !allowed.contains(&module.as_str()) {
                errors.push(format!("{shown}:{number}: `{krate}` is not for `{module}`"));
            }
        }
    }
}

fn words(code: &str) -> BTreeSet<&str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .collect()
}

fn module_of(path: &Path) -> String {
    let first = path
        .components()
        .nth(1)
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap();
    first.trim_end_matches(".rs").to_owned()
}

fn names_after(code: &str, prefix: &str) -> Vec<String> {
    code.match_indices(prefix)
        .map(|(at, _)| {
            let rest = &code[at + prefix.len()..];
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

fn names_before(code: &str, krate: &str) -> bool {
    code.match_indices(&format!("{krate}::"))
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn tidy_catches() {
    let mut errors = Vec::new();
    let cases = [
        ("src/peek/scan.rs", "use crate::lane::Wire;"),
        ("src/peek/scan.rs", "use crate::buf::Pool;"),
        ("src/switch/reply.rs", "use crate::upstream::Secret;"),
        ("src/switch/reply.rs", "use crate::auth::Token;"),
        ("src/lane/wire.rs", "let v = simd_json::to_value(b);"),
        ("src/route/utils.rs", ""),
        ("src/http1/head.rs", "use crate::sse::Frame;"),
        ("src/brandnew/mod.rs", ""),
        ("src/lane/wire.rs", "unsafe { f() }"),
        ("src/peek/scan.rs", "use crate::{lane::Wire};"),
        ("src/peek/mod.rs", "use super::lane;"),
        ("src/peek/scan.rs", "use super::super::lane;"),
        ("src/route/mod.rs", "fn peep(reader: &TextReader) {}"),
    ];
    for (path, text) in cases {
        let before = errors.len();
        check(Path::new(path), text, &mut errors);
        assert_eq!(errors.len(), before + 1, "{path}: {text} -> {errors:?}");
    }
    let long = "fn f() {}\n".repeat(LINES_MAX + 1);
    check(Path::new("src/tls/mod.rs"), &long, &mut errors);
    let fine =
        "use crate::identity::Caller; // crate::server\n#[cfg(test)]\nmod tests { use super::*; }";
    check(Path::new("src/route/mod.rs"), fine, &mut errors);
    assert_eq!(errors.len(), cases.len() + 1);
}
