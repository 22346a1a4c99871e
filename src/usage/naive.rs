//! The same usage from the whole body at once, through a tree: the oracle of tests and fuzzing, never
//! used on a response.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::dialect::Dialect;
use crate::limits::EXTRA_CHUNK_BYTES;
use crate::peek::naive::is_valid;
use crate::sse::{Fate, naive};
use crate::usage::{Form, Given, State, StopReason, Usage};

/// What a whole `body` says; none where a tree cannot hold a valid object of it (lone surrogates,
/// numbers beyond a double, deep nesting), so that nothing can be compared.
#[must_use]
pub fn usage(dialect: Dialect, form: Form, body: &[u8], whole: bool) -> Option<Usage> {
    let mut answer = Answer {
        dialect,
        given: Given::default(),
        stop: None,
        calls: false,
        end: None,
    };
    let mut read = whole;
    match form {
        Form::Json => {
            read = is_valid(body);
            if read {
                answer.add(&tree(body)?);
                answer.end.get_or_insert(true);
            }
        }
        Form::Events => {
            for event in naive::events(body) {
                if event.fate == Fate::Empty {
                    continue;
                }
                if event.data.trim_ascii() == b"[DONE]" && dialect == Dialect::Chat {
                    answer.end.get_or_insert(true);
                    break;
                }
                if is_valid(&event.data) {
                    answer.add(&tree(&event.data)?);
                }
            }
        }
    }
    let over = match answer.end {
        Some(well) => well,
        None => read && answer.stop.is_some(),
    };
    Some(Usage {
        state: match (answer.given == Given::default(), over) {
            (true, _) => State::Absent,
            (false, true) => State::Complete,
            (false, false) => State::Partial,
        },
        tokens: answer.given.tokens(dialect),
        stop: answer.stop,
    })
}

/// The `stream` without its extra chunks, line by line; none as for [`usage`].
#[must_use]
pub fn without_extra_chunks(stream: &[u8]) -> Option<Vec<u8>> {
    let (mut kept, mut event, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = stream;
    while let Some(at) = rest.iter().position(|b| matches!(b, b'\r' | b'\n')) {
        let (line, tail) = rest.split_at(at);
        let end = if tail.starts_with(b"\r\n") { 2 } else { 1 };
        event.extend_from_slice(&rest[..at + end]);
        rest = &tail[end..];
        if !line.is_empty() {
            lines.push(line);
            continue;
        }
        let value = match lines.as_slice() {
            [line] => line.strip_prefix(b"data:"),
            _ => None,
        };
        let value = value.filter(|value| value.len() as u64 <= EXTRA_CHUNK_BYTES);
        if !value.map_or(Some(false), is_extra_chunk)? {
            kept.append(&mut event);
        }
        event.clear();
        lines.clear();
    }
    kept.append(&mut event);
    kept.extend_from_slice(rest);
    Some(kept)
}

fn is_extra_chunk(json: &[u8]) -> Option<bool> {
    if !is_valid(json) {
        return Some(false);
    }
    let root = tree(json)?;
    let all = |key| root.all(key).collect::<Vec<_>>();
    let empty = matches!(*all("choices"), [Node::List(items)] if items.is_empty());
    let given = matches!(*all("usage"), [Node::Object(_)]);
    let failed = all("error").iter().any(|it| !matches!(it, Node::Null));
    Some(empty && given && !failed)
}

fn tree(json: &[u8]) -> Option<Node> {
    serde_json::from_slice(json).ok()
}

struct Answer {
    dialect: Dialect,
    given: Given,
    stop: Option<StopReason>,
    calls: bool,
    /// Whether it ended well, once it ended.
    end: Option<bool>,
}

impl Answer {
    fn add(&mut self, root: &Node) {
        let error = root.all("error").any(|value| !matches!(value, Node::Null));
        let (mut stop, mut failed, mut over) = (None, error, false);
        match self.dialect {
            Dialect::Chat => {
                let choices = root.all("choices").flat_map(Node::items);
                for choice in choices {
                    let mut indexes = choice.all("index").filter_map(Node::count);
                    if indexes.next_back().unwrap_or(0) == 0 {
                        stop = self.last_reason([choice], "finish_reason").or(stop);
                    }
                }
                let usage = root.in_order(&["usage"], &[("choices", &["usage"])]);
                self.count(usage, ["prompt_tokens", "completion_tokens"]);
            }
            Dialect::Messages => {
                let reasons = ["stop_reason"];
                let inside: [(&str, &[&str]); 2] = [("message", &reasons), ("delta", &reasons)];
                let reasons = root.in_order(&reasons, &inside);
                let word = reasons.iter().filter_map(|node| node.text()).next_back();
                stop = word.map(|word| StopReason::of(self.dialect, word.as_bytes()));
                let usage = root.in_order(&["usage"], &[("message", &["usage"])]);
                self.count(usage, ["input_tokens", "output_tokens"]);
                let typed = |word| root.all("type").any(|node| node.text() == Some(word));
                (failed, over) = (failed || typed("error"), typed("message_stop"));
            }
            Dialect::Responses => {
                failed |= root.all("type").any(|node| node.text() == Some("error"));
                let (said, ended) = self.response(root);
                stop = said;
                failed |= stop == Some(StopReason::Error);
                over = ended;
                let usage = root.in_order(&["usage"], &[("response", &["usage"])]);
                self.count(usage, ["input_tokens", "output_tokens"]);
            }
        }
        let repeats = stop == Some(StopReason::Stop) && self.stop == Some(StopReason::ToolCalls);
        if !repeats {
            self.stop = stop.or(self.stop);
        }
        if failed || over {
            self.end.get_or_insert(!failed);
        }
    }

    /// Why a response stopped, and whether it did.
    fn response(&mut self, root: &Node) -> (Option<StopReason>, bool) {
        let lists = root.in_order(&["output"], &[("response", &["output"])]);
        let listed = lists.into_iter().flat_map(Node::items);
        for item in listed.chain(root.all("item")) {
            let calls =
                |node: &Node| matches!(node.text(), Some("function_call" | "custom_tool_call"));
            self.calls |= item.all("type").any(calls);
        }
        let status = root.in_order(&["type", "status"], &[("response", &["status"])]);
        let mut ended = status.into_iter().filter_map(|node| {
            let word = node.text()?;
            let own = root.all("type").any(|kind| std::ptr::eq(kind, node));
            let word = if own {
                word.strip_prefix("response.")?
            } else {
                word
            };
            ["completed", "incomplete", "failed", "cancelled"]
                .into_iter()
                .find(|known| *known == word)
        });
        let details = "incomplete_details";
        let details = root.in_order(&[details], &[("response", &[details])]);
        let reason = self.last_reason(details, "reason");
        let stop = ended.next_back().map(|word| match word {
            "completed" if self.calls => StopReason::ToolCalls,
            "completed" => StopReason::Stop,
            "incomplete" => reason.unwrap_or(StopReason::Other),
            _ => StopReason::Error,
        });
        (stop, stop.is_some())
    }

    /// The last reason that stands under `key` in `nodes`.
    fn last_reason<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a Node>,
        key: &str,
    ) -> Option<StopReason> {
        let words = nodes.into_iter().flat_map(|node| node.all(key));
        let word = words.filter_map(Node::text).last()?;
        Some(StopReason::of(self.dialect, word.as_bytes()))
    }

    fn count(&mut self, usage: Vec<&Node>, [input, output]: [&str; 2]) {
        let details = match self.dialect {
            Dialect::Chat => "prompt_tokens_details",
            Dialect::Messages => "",
            Dialect::Responses => "input_tokens_details",
        };
        let last = |inside: &[&str], key: &str| {
            let nodes = usage.iter().flat_map(|node| match inside {
                [] => vec![*node],
                [inside, ..] => node.all(inside).collect(),
            });
            let found = nodes.flat_map(|node| node.all(key));
            found.filter_map(Node::count).next_back()
        };
        let (cached, write) = match self.dialect {
            Dialect::Messages => (
                last(&[], "cache_read_input_tokens"),
                last(&[], "cache_creation_input_tokens"),
            ),
            Dialect::Chat | Dialect::Responses => (
                last(&[details], "cached_tokens"),
                last(&[details], "cache_write_tokens"),
            ),
        };
        let given = &mut self.given;
        for (count, later) in [
            (&mut given.input, last(&[], input)),
            (&mut given.output, last(&[], output)),
            (&mut given.cached, cached),
            (&mut given.cache_write, write),
        ] {
            *count = match (*count, later) {
                (Some(before), Some(0) | None) => Some(before),
                (_, later) => later,
            };
        }
    }
}

/// A tree that keeps the order of members and those that come twice.
enum Node {
    Null,
    Other,
    Count(u64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Node {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    const fn count(&self) -> Option<u64> {
        match self {
            Self::Count(count) => Some(*count),
            _ => None,
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    fn all<'a>(&'a self, key: &'a str) -> impl DoubleEndedIterator<Item = &'a Self> {
        let members = self.members().iter();
        members
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// The values of `keys` here and of the named keys inside the named members (or inside the entries
    /// of a list there), in the order in which they stand.
    fn in_order(&self, keys: &[&str], inside: &[(&str, &[&str])]) -> Vec<&Self> {
        let mut found = Vec::new();
        for (name, value) in self.members() {
            if keys.contains(&name.as_str()) {
                found.push(value);
            }
            for (_, keys) in inside.iter().filter(|(member, _)| member == name) {
                let one = std::slice::from_ref(value);
                let entries = if *name == "choices" {
                    value.items()
                } else {
                    one
                };
                for entry in entries {
                    found.extend(entry.in_order(keys, &[]));
                }
            }
        }
        found
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        parser.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_u64<E>(self, count: u64) -> Result<Node, E> {
        Ok(Node::Count(count))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Node::Object(members))
    }
}
