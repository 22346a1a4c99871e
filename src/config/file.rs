//! The configuration as written: a tree of values that know their line.
//!
//! Decides what counts as a well-formed file, and nothing about meaning. A tree, not typed structs:
//! deserialising into structs stops at the first surprise, while a tree lets `resolve` report every
//! failure at once, each with its key path and line. Repeated keys are kept for the same reason and
//! refused by the reader, which knows the path and both lines.
//!
//! Refuses files beyond [`FILE_BYTES_MAX`], nesting beyond [`DEPTH_MAX`] and alias bombs. Values
//! may later be shown only through [`Value::shown`], which keeps anything long to itself.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Options, Spanned};
use std::fmt;

use crate::config::{ConfigError, Failure};

/// Bytes of a configuration file. Chosen: a thousand providers with comments fit several times.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Levels of nesting; the schema uses four. Bounds the recursion of this module.
const DEPTH_MAX: usize = 16;
/// Values in a file, those repeated through aliases included. Chosen: 20 per provider, times 1000,
/// and 6 per client, times 5000.
const VALUES_MAX: usize = 50_000;
/// Characters of a value shown in a message; credentials are longer, words and sizes are shorter.
const SHOWN_CHARS_MAX: usize = 24;

/// A value and the line where it starts, counted from 1.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: u64,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Natural(u64),
    /// Negative, fractional or not finite. The schema has no key for these; kept to be shown.
    OtherNumber(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: u64,
    pub(super) node: Node,
}

impl Value {
    /// What came, for `expected X, got Y`. Escaped, and never more than a short word of it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Null => "nothing".into(),
            Self::Bool(value) => value.to_string(),
            Self::Natural(value) => value.to_string(),
            Self::OtherNumber(value) => value.to_string(),
            Self::Text(text) if text.chars().count() <= SHOWN_CHARS_MAX => format!("{text:?}"),
            Self::Text(text) => format!("a text of {} bytes", text.len()),
            Self::List(_) => "a list".into(),
            Self::Map(_) => "a mapping".into(),
        }
    }

    /// As [`Value::shown`], without quotation marks: for a number with a unit.
    pub(super) fn written(&self) -> String {
        match self {
            Self::Text(text) if text.len() <= SHOWN_CHARS_MAX => text.escape_debug().to_string(),
            other => other.shown(),
        }
    }
}

/// Reads one YAML document into a tree. An empty document is `Null`.
pub(super) fn parse(text: &str) -> Result<Node, ConfigError> {
    if text.len() > FILE_BYTES_MAX {
        let what = format!("{} bytes; at most {FILE_BYTES_MAX} are read", text.len());
        return Err(Failure::of_file(what).into());
    }
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let error = error.without_snippet();
        let line = error
            .location()
            .map(|place| place.line())
            .filter(|line| *line > 0);
        Failure {
            line,
            path: String::new(),
            what: format!("not readable as YAML: {error}"),
        }
        .into()
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: VALUES_MAX,
            max_events: 4 * VALUES_MAX,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: VALUES_MAX },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // `<<` would let one entry silently replace another; as a key it is simply unknown.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        // YAML 1.1 would turn `off` and `no` into booleans.
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        // A snippet of the file may show a credential that stands where none belongs.
        with_snippet: false,
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Natural(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "only ever shown as a wrong value"
        )]
        let other = value as f64;
        Ok(u64::try_from(value).map_or(Value::OtherNumber(other), Value::Natural))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::OtherNumber(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let node = entries.next_value()?;
            map.push(Entry {
                key: key.value,
                line: key.referenced.line(),
                node,
            });
        }
        Ok(Value::Map(map))
    }
}
