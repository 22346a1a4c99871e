//! Walks the tree of a file and collects what is wrong with it.
//!
//! Every reading function notes a failure and goes on, so that one run shows all of them; the
//! values it returns after a failure are never used, because a configuration with one is refused.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::Failure;
use crate::config::file::{Entry, Node, Value};
use crate::config::quantity::{parse_duration, parse_size, show_duration_beside, show_size};
use crate::config::schema::Keys;

/// Longest key that is compared with the known ones or shown.
const KEY_CHARS_MAX: usize = 24;

/// The failures found so far.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) failures: Vec<Failure>,
    /// What was passed over, in words.
    pub(super) warnings: Vec<String>,
}

/// One mapping of the file.
#[derive(Clone, Debug)]
pub(super) struct Section<'a> {
    path: String,
    pub(super) line: Option<u64>,
    entries: &'a [Entry],
    keys: &'static Keys,
}

impl<'a> Section<'a> {
    /// A section that was not written.
    pub(super) const fn absent(path: String, keys: &'static Keys) -> Self {
        Self {
            path,
            line: None,
            entries: &[],
            keys,
        }
    }

    pub(super) fn path(&self) -> String {
        self.path.clone()
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of `key`; an empty one counts as not written.
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        debug_assert!(
            self.keys.known.contains(&key),
            "{key} has no row in the schema"
        );
        let node = &self.entries.iter().find(|entry| entry.key == key)?.node;
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    /// The value of `key` as it stands in the file; else `default`.
    pub(super) fn written(&self, key: &str, default: String) -> String {
        self.get(key).map_or(default, |node| node.value.written())
    }

    /// Whether `key` is not given, and no other one here seems to mean it.
    pub(super) fn is_missing(&self, key: &str) -> bool {
        let known = self.keys.known;
        let means = |entry: &Entry| {
            !known.contains(&entry.key.as_str()) && nearest(&entry.key, known) == Some(key)
        };
        self.get(key).is_none() && !self.entries.iter().any(means)
    }

    /// Line of the first of `keys` that was written, else that of the section.
    pub(super) fn line_of(&self, keys: &[&str]) -> Option<u64> {
        keys.iter()
            .find_map(|key| self.get(key))
            .map(|node| node.line)
            .or(self.line)
    }
}

impl Reader {
    /// Whether what stands under one of `keys` was refused, so that a default is in its place.
    pub(super) fn has_refused(&self, section: &Section<'_>, keys: &[&str]) -> bool {
        let is_of = |path: &String| keys.iter().any(|key| section.path_of(key) == *path);
        self.failures.iter().any(|failure| is_of(&failure.path))
    }

    pub(super) fn fail(&mut self, line: Option<u64>, path: String, what: impl Into<String>) {
        self.failures.push(Failure {
            line,
            path,
            what: what.into(),
        });
    }

    /// Notes that an environment variable is none of `words`, such as `true nor false`, so that `key`
    /// stays as the file has it.
    pub(super) fn warn(&mut self, variable: &str, words: &str, key: &str) {
        let warning = format!("{variable} is neither {words} and is ignored: {key} stays");
        self.warnings.push(warning);
    }

    /// Notes that a value is valid and most likely not what was meant.
    pub(super) fn note(&mut self, section: &Section<'_>, key: &str, what: &str) {
        let path = section.path_of(key);
        let line = section.line_of(&[key]);
        let place = line.map_or(String::new(), |line| format!("line {line}: "));
        self.warnings.push(format!("{place}{path}: {what}"));
    }

    /// Opens a mapping: refuses unknown and repeated keys, and anything that is no mapping.
    pub(super) fn section<'a>(
        &mut self,
        node: &'a Node,
        path: String,
        keys: &'static Keys,
    ) -> Section<'a> {
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            other => {
                let what = format!("expected a mapping, got {}", other.shown());
                self.fail(Some(node.line), path.clone(), what);
                &[]
            }
        };
        let section = Section {
            path,
            line: Some(node.line),
            entries,
            keys,
        };
        let mut first_lines = BTreeMap::new();
        for entry in entries {
            let what = match first_lines.get(entry.key.as_str()) {
                Some(first) => format!("repeated key, first on line {first}"),
                None => {
                    first_lines.insert(entry.key.as_str(), entry.line);
                    if keys.known.contains(&entry.key.as_str()) {
                        continue;
                    }
                    unknown(&entry.key, keys)
                }
            };
            self.fail(
                Some(entry.line),
                section.path_of(&shown_key(&entry.key)),
                what,
            );
        }
        section
    }

    /// Opens the mapping at `key`, or an empty one.
    pub(super) fn subsection<'a>(
        &mut self,
        parent: &Section<'a>,
        key: &str,
        keys: &'static Keys,
    ) -> Section<'a> {
        let path = parent.path_of(key);
        match parent.get(key) {
            Some(node) => self.section(node, path, keys),
            None => Section::absent(path, keys),
        }
    }

    /// The items of the list at `key` with their paths. `None`: not written, or not a list.
    pub(super) fn list<'a>(
        &mut self,
        section: &Section<'a>,
        key: &str,
    ) -> Option<Vec<(String, &'a Node)>> {
        let node = section.get(key)?;
        let path = section.path_of(key);
        let Value::List(items) = &node.value else {
            let what = format!("expected a list, got {}", node.value.shown());
            self.fail(Some(node.line), path, what);
            return None;
        };
        let with_path = |(index, item)| (format!("{path}[{index}]"), item);
        Some(items.iter().enumerate().map(with_path).collect())
    }

    /// Reads the value at `key`. `None`: not written, or noted as a failure.
    pub(super) fn take<T>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let node = section.get(key)?;
        match read(&node.value) {
            Ok(value) => Some(value),
            Err(what) => {
                self.fail(Some(node.line), section.path_of(key), what);
                None
            }
        }
    }

    /// As [`Reader::take`], and a failure where nothing was written. A misspelt key is one failure and not two.
    pub(super) fn require<T>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        if section.is_missing(key) {
            self.fail(
                section.line,
                section.path_of(key),
                "required, but not given",
            );
        }
        self.take(section, key, read)
    }
}

fn unknown(key: &str, keys: &Keys) -> String {
    if keys.later.contains(&key) {
        return "not available in this version".into();
    }
    if key == "<<" {
        return "merge keys are not supported; anchors and aliases of whole values are".into();
    }
    match nearest(key, keys.known) {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None => format!("unknown key; known here: {}", keys.known.join(", ")),
    }
}

/// A key for messages: escaped, and only its length where it is longer than any real one.
fn shown_key(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'<');
    if key.chars().count() > KEY_CHARS_MAX {
        format!("(a key of {} bytes)", key.len())
    } else if !key.is_empty() && key.bytes().all(plain) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}

/// The known key that is at most a third of its letters away, letter case and `-` aside.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    if key.chars().count() > KEY_CHARS_MAX {
        return None;
    }
    let written = key.to_ascii_lowercase().replace('-', "_");
    let close = known.iter().map(|name| (edits(&written, name), *name));
    close
        .filter(|(edits, name)| *edits <= name.len() / 3)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein distance, one row at a time.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(b.bytes()) {
            let replaced = diagonal + usize::from(from != to);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(value) => Ok(*value),
        other => Err(format!("expected true or false, got {}", other.shown())),
    }
}

/// A text of 1 to `bytes_max` bytes that can neither be blank nor break a line.
pub(super) fn line(bytes_max: usize) -> impl Fn(&Value) -> Result<String, String> {
    move |value| {
        let text = text(value)?;
        let fits = (1..=bytes_max).contains(&text.len())
            && text.trim() == text
            && !text.chars().any(char::is_control);
        fits.then(|| text.to_owned()).ok_or_else(|| {
            format!(
                "expected 1 to {bytes_max} bytes without control characters or white space at \
                 the ends, got {}",
                value.shown()
            )
        })
    }
}

/// A text; what looks like a number or a boolean has to be quoted.
pub(super) fn text(value: &Value) -> Result<&str, String> {
    match value {
        Value::Text(text) => Ok(text),
        Value::Bool(_) | Value::Natural(_) | Value::OtherNumber(_) => Err(format!(
            "expected a text, got {}; put it in quotes",
            value.shown()
        )),
        other => Err(format!("expected a text, got {}", other.shown())),
    }
}

/// One of some words, in any letter case.
pub(super) fn word<T: Copy>(words: &[(&str, T)]) -> impl FnOnce(&Value) -> Result<T, String> {
    move |value| {
        let named = match value {
            Value::Text(text) => words
                .iter()
                .find(|(word, _)| text.eq_ignore_ascii_case(word)),
            _ => None,
        };
        named.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("expected {}, got {}", names.join(" or "), value.shown())
        })
    }
}

pub(super) fn duration(
    range: RangeInclusive<Duration>,
) -> impl FnOnce(&Value) -> Result<Duration, String> {
    move |value| {
        let read = match value {
            Value::Text(text) => parse_duration(text),
            _ => None,
        };
        let duration = read.ok_or_else(|| {
            format!(
                "expected a duration such as 60s (units ms, s, m, h, d), got {}",
                value.shown()
            )
        })?;
        let written = value.written();
        in_range(duration, &range, &written, |bound| {
            show_duration_beside(&written, *bound)
        })
    }
}

pub(super) fn size(range: RangeInclusive<u64>) -> impl FnOnce(&Value) -> Result<u64, String> {
    move |value| {
        let read = match value {
            Value::Text(text) => parse_size(text),
            Value::Natural(bytes) => Some(*bytes),
            _ => None,
        };
        let bytes = read.ok_or_else(|| {
            format!(
                "expected a size such as 64KiB (KiB, MiB, GiB or bytes), got {}",
                value.shown()
            )
        })?;
        in_range(bytes, &range, &value.written(), |bound| show_size(*bound))
    }
}

pub(super) fn count(range: RangeInclusive<u64>) -> impl FnOnce(&Value) -> Result<u64, String> {
    move |value| match value {
        Value::Natural(count) => in_range(*count, &range, &value.written(), u64::to_string),
        other => Err(format!("expected a whole number, got {}", other.shown())),
    }
}

/// What is refused is repeated as it was written, so that it is found in the file.
fn in_range<T: PartialOrd>(
    value: T,
    range: &RangeInclusive<T>,
    written: &str,
    shown: impl Fn(&T) -> String,
) -> Result<T, String> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (low, high) = (shown(range.start()), shown(range.end()));
    Err(format!("expected {low} to {high}, got {written}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema::{PROVIDER, ROOT};

    #[test]
    fn near_keys_are_found_and_far_ones_are_not() {
        for (written, near) in [
            ("base-url", "base_url"),
            ("baseUrl", "base_url"),
            ("base_ulr", "base_url"),
            ("secrets_env", "secret_env"),
            ("authscheme", "auth_scheme"),
            ("nam", "name"),
            ("enable", "enabled"),
        ] {
            assert_eq!(nearest(written, PROVIDER.known), Some(near), "{written}");
        }
        for written in ["colour", "x", "", &"provider".repeat(9)] {
            assert_eq!(nearest(written, ROOT.known), None, "{written}");
        }
    }

    #[test]
    fn edits_counts_single_letters() {
        for (a, b, distance) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edits(a, b), distance, "{a} {b}");
        }
    }
}
