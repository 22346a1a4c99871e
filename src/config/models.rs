//! The model names of one provider: which it takes, what it is asked for, what is listed.
//!
//! Decides what a pattern and a replacement may look like, so that matching later needs no error
//! path. Refuses wildcards and placeholders that would not be one where they stand. A mapping that
//! an earlier one covers is accepted: the first hit wins, as with providers.

use crate::config::file::{Node, Value};
use crate::config::read::{self, Reader, Section};
use crate::config::schema::MODEL;

/// Entries of `models`, and of `list`, per provider. Chosen: they are matched one after the other.
const MODELS_MAX: usize = 1000;
/// Bytes of a model name, pattern or replacement. Chosen: the longest in use, deployment paths of
/// cloud platforms, stay under 200.
const MODEL_BYTES_MAX: usize = 256;
/// What `to` may hold for the model that the caller asked for.
const PLACEHOLDER: &str = "{model}";

/// A model name that a provider takes and the name it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMapping {
    /// The name that callers send, or its beginning where the last character is `*`; a bare `*`
    /// takes every name. Letter case (ASCII) does not count.
    pub from: String,
    /// The name sent upstream; every `{model}` in it stands for the caller's name as it came.
    pub to: String,
}

/// In the order of the file, which is match order.
pub(super) fn mappings(reader: &mut Reader, provider: &Section<'_>) -> Vec<ModelMapping> {
    let mut mappings = Vec::new();
    for (path, node) in bounded(reader, provider, "models") {
        let section = reader.section(node, path, &MODEL);
        if !matches!(node.value, Value::Map(_) | Value::Null) {
            continue;
        }
        let from = reader.require(&section, "from", pattern);
        let to = reader.require(&section, "to", replacement);
        if let (Some(from), Some(to)) = (from, to) {
            mappings.push(ModelMapping { from, to });
        }
    }
    mappings
}

/// Names listed beside those that `models` spells out.
pub(super) fn list(reader: &mut Reader, provider: &Section<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for (path, node) in bounded(reader, provider, "list") {
        match listed(&node.value) {
            Ok(name) => names.push(name),
            Err(what) => reader.fail(Some(node.line), path, what),
        }
    }
    names
}

fn bounded<'a>(reader: &mut Reader, provider: &Section<'a>, key: &str) -> Vec<(String, &'a Node)> {
    let items = reader.list(provider, key).unwrap_or_default();
    if items.len() <= MODELS_MAX {
        return items;
    }
    let what = format!("expected at most {MODELS_MAX} entries, got {}", items.len());
    reader.fail(provider.line_of(&[key]), provider.path_of(key), what);
    Vec::new()
}

fn pattern(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    if text.strip_suffix('*').unwrap_or(text).contains('*') {
        return Err(format!(
            "`*` stands only at the end, once, got {}",
            value.shown()
        ));
    }
    no_placeholder(text)?;
    Ok(text.to_owned())
}

fn replacement(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    if text.contains('*') {
        return Err(format!(
            "`*` stands only in `from`; {PLACEHOLDER} is the name that the caller sent, got {}",
            value.shown()
        ));
    }
    // Pieces, not a text without the placeholders: removing one can make another.
    if text
        .split(PLACEHOLDER)
        .any(|piece| piece.contains(['{', '}']))
    {
        return Err(format!(
            "braces stand only in {PLACEHOLDER}, got {}",
            value.shown()
        ));
    }
    Ok(text.to_owned())
}

fn listed(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    if text.contains('*') {
        return Err(format!(
            "expected the whole name of a model, got {} with a `*`",
            value.shown()
        ));
    }
    no_placeholder(text)?;
    Ok(text.to_owned())
}

fn no_placeholder(text: &str) -> Result<(), String> {
    if text.contains(PLACEHOLDER) {
        return Err(format!("{PLACEHOLDER} stands only in `to`"));
    }
    Ok(())
}

/// A text that fits a log line and a JSON string: neither blank nor able to break a line.
fn text(value: &Value) -> Result<&str, String> {
    let text = read::text(value)?;
    let fits = !text.is_empty()
        && text.len() <= MODEL_BYTES_MAX
        && text.trim() == text
        && !text.chars().any(char::is_control);
    fits.then_some(text).ok_or_else(|| {
        format!(
            "expected a model name of 1 to {MODEL_BYTES_MAX} bytes without control characters or \
             white space at the ends, got {}",
            value.shown()
        )
    })
}
