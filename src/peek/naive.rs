//! The same facts by a full parse: the oracle of tests and fuzzing, never used on a request.
//!
//! It parses the whole body with serde_json into a tree that keeps repeated members, and reads the
//! tree in plain code. It shares the vocabulary with `peek`, and no decision.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use sha2::{Digest as _, Sha256};

use crate::dialect::Dialect;
use crate::peek::{Kind, StreamFlag, TopKey};

/// Facts of one body; values are unbounded and untrimmed.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `peek`")]
#[expect(
    missing_debug_implementations,
    reason = "message text is never printed"
)]
pub struct Facts {
    pub model: Option<String>,
    pub stream: Option<StreamFlag>,
    pub last_user_text: Option<String>,
    pub tool_names: Vec<String>,
    pub prompt_cache_key: Option<String>,
    pub user: Option<String>,
    pub session_id: Option<String>,
    pub metadata_user_id: Option<String>,
    pub kinds: Vec<(TopKey, Kind)>,
    pub repeated: Vec<TopKey>,
    /// None where the body has characters that stand for lone surrogates here.
    pub fingerprint: Option<u64>,
}

/// Containers open at once, the root included, up to which a body is accepted.
const DEPTH_MAX: usize = 129;

/// Whether `body` is one JSON object that does not nest too deep.
#[must_use]
pub fn is_valid(body: &[u8]) -> bool {
    let text = std::str::from_utf8(body).is_ok();
    let json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
    let object = body.trim_ascii_start().first() == Some(&b'{');
    text && json && object && depth(body) <= DEPTH_MAX
}

/// The facts of `body`; `None` if it is not valid.
#[must_use]
pub fn facts(dialect: Dialect, body: &[u8]) -> Option<Facts> {
    if !is_valid(body) {
        return None;
    }
    let tame = tame(body, 0xFFFD, 0xFFFD);
    let mut parser = serde_json::Deserializer::from_slice(&tame);
    let root = Tree { levels: 8 }.deserialize(&mut parser).ok()?;
    let text_of = |name| root.last(name).and_then(Node::text).map(str::to_owned);
    let repeated: Vec<_> = TopKey::ALL
        .into_iter()
        .filter(|key| root.spellings(*key) > 1)
        .collect();
    Some(Facts {
        fingerprint: fingerprint(dialect, body, &repeated),
        model: text_of("model"),
        stream: root.last("stream").map(|value| match value {
            Node::Literal(Some(true)) => StreamFlag::True,
            Node::Literal(Some(false)) => StreamFlag::False,
            _ => StreamFlag::Other,
        }),
        last_user_text: last_user_text(dialect, &root),
        tool_names: root.all("tools").into_iter().flat_map(tool_names).collect(),
        prompt_cache_key: text_of("prompt_cache_key"),
        user: text_of("user"),
        session_id: text_of("session_id"),
        metadata_user_id: root
            .last("metadata")
            .and_then(|m| m.last("user_id"))
            .and_then(Node::text)
            .map(str::to_owned),
        kinds: TopKey::ALL
            .into_iter()
            .filter_map(|key| Some((key, root.last(key.as_str())?.kind())))
            .collect(),
        repeated,
    })
}

/// Characters that stand for the surrogates from U+D800 on.
const STAND_INS: std::ops::Range<u32> = 0xE000..0xE800;

/// `fp1`, from the whole text at once.
fn fingerprint(dialect: Dialect, body: &[u8], repeated: &[TopKey]) -> Option<u64> {
    let shown = String::from_utf8_lossy(body).to_lowercase();
    let stands_in = |c: char| STAND_INS.contains(&u32::from(c));
    let escaped = (0..8).any(|digit| shown.contains(&format!("\\ue{digit}")));
    if escaped || shown.chars().any(stands_in) {
        return None;
    }
    let tame = tame(body, STAND_INS.start, STAND_INS.end);
    let mut parser = serde_json::Deserializer::from_slice(&tame);
    let root = Tree { levels: 8 }.deserialize(&mut parser).ok()?;
    let (mut system, mut user) = (Vec::new(), None);
    for (name, value) in root.members() {
        match (dialect, name.as_str(), value) {
            (Dialect::Messages, "system", value) => system.extend(pieces(value, "text")),
            (Dialect::Responses, "instructions", Node::Text(text)) => system.push(text.clone()),
            (Dialect::Responses, "input", Node::Text(text)) => user = Some(vec![text.clone()]),
            (Dialect::Responses, "input", items) => {
                beginning(dialect, items, &mut system, &mut user)
            }
            (Dialect::Chat | Dialect::Messages, "messages", items) => {
                beginning(dialect, items, &mut system, &mut user);
            }
            (_, _, _) => {}
        }
    }
    let mut system = joined(system);
    let user = joined(user.unwrap_or_default());
    let read = match dialect {
        Dialect::Responses => TopKey::Input,
        Dialect::Chat | Dialect::Messages => TopKey::Messages,
    };
    let keys = [read, TopKey::System, TopKey::Instructions];
    let text = if keys.iter().any(|key| repeated.contains(key)) || system.len() + user.len() == 0 {
        vec![0]
    } else if system.is_empty() {
        [&[2], user.get(..4096).unwrap_or(&user)].concat()
    } else {
        if system.len() > 65_536 {
            system.truncate(65_536);
            system.push(4);
        }
        [&[1], system.as_slice()].concat()
    };
    let digest: [u8; 32] = Sha256::digest(text).into();
    Some(
        digest
            .iter()
            .take(8)
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

fn beginning(
    dialect: Dialect,
    items: &Node,
    system: &mut Vec<String>,
    user: &mut Option<Vec<String>>,
) {
    let (typed, text_type) = match dialect {
        Dialect::Chat | Dialect::Messages => (false, "text"),
        Dialect::Responses => (true, "input_text"),
    };
    let mut leading = dialect != Dialect::Messages;
    for entry in items
        .items()
        .iter()
        .filter(|it| matches!(it, Node::Object(_)))
    {
        let (roles, contents) = (entry.all("role"), entry.all("content"));
        let types = if typed { entry.all("type") } else { Vec::new() };
        let single = roles.len() == 1 && types.len() < 2 && contents.len() < 2;
        let message = types.iter().all(|it| it.text() == Some("message"));
        let role = roles.first().filter(|_| single && message);
        let text = contents
            .first()
            .map_or(Vec::new(), |it| pieces(it, text_type));
        match role.and_then(|role| role.text()) {
            Some("system" | "developer") if leading => system.extend(text),
            Some("user") => {
                leading = false;
                user.get_or_insert(text);
            }
            _ => leading = false,
        }
    }
}

fn pieces(content: &Node, text_type: &str) -> Vec<String> {
    let part = |part: &Node| {
        let (types, texts) = (part.all("type"), part.all("text"));
        let text = types.len() == 1 && types[0].text() == Some(text_type) && texts.len() == 1;
        let text = texts.first().filter(|_| text)?;
        text.text().map(str::to_owned)
    };
    match content {
        Node::Text(text) => vec![text.clone()],
        other => other.items().iter().filter_map(part).collect(),
    }
}

fn joined(pieces: Vec<String>) -> Vec<u8> {
    let counts = |it: &String| !it.is_empty() && !it.starts_with("x-anthropic-billing-header:");
    let pieces: Vec<_> = pieces.into_iter().filter(counts).collect();
    let mut bytes = Vec::new();
    for character in pieces.join("\u{1e}").chars() {
        let code = u32::from(character);
        if STAND_INS.contains(&code) {
            let lone = code - STAND_INS.start + 0xD800;
            let six = |shift: u32| 0x80 | u8::try_from(lone >> shift & 0x3F).unwrap_or_default();
            bytes.extend_from_slice(&[0xED, six(6), six(0)]);
        } else {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    bytes
}

fn last_user_text(dialect: Dialect, root: &Node) -> Option<String> {
    let (list, text_type) = match dialect {
        Dialect::Chat | Dialect::Messages => (root.last("messages")?, "text"),
        Dialect::Responses => (root.last("input")?, "input_text"),
    };
    if let (Dialect::Responses, Node::Text(text)) = (dialect, list) {
        return Some(text.clone());
    }
    let typed = dialect == Dialect::Responses;
    let mut last = None;
    for entry in list.items() {
        let roles = entry.all("role");
        let types = if typed { entry.all("type") } else { Vec::new() };
        let contents = entry.all("content");
        let repeated = roles.len() > 1 || types.len() > 1 || contents.len() > 1;
        let is_message = repeated || types.iter().all(|t| t.text() == Some("message"));
        if is_message && roles.iter().any(|r| r.text() == Some("user")) {
            let content = contents.first().filter(|_| !repeated);
            last = content.and_then(|content| content_text(content, text_type));
        }
    }
    last
}

fn content_text(content: &Node, text_type: &str) -> Option<String> {
    let parts = match content {
        Node::Text(text) => return Some(text.clone()),
        Node::List(parts) => parts,
        _ => return None,
    };
    let mut joined = String::new();
    for part in parts {
        let (types, texts) = (part.all("type"), part.all("text"));
        if types.len() != 1 || types[0].text() != Some(text_type) || texts.len() > 1 {
            return None;
        }
        joined += texts.first().and_then(|text| text.text()).unwrap_or("");
    }
    Some(joined)
}

fn tool_names(tools: &Node) -> Vec<String> {
    let mut names = Vec::new();
    for tool in tools.items() {
        let inner: Vec<&Node> = tool.all("tools");
        let lists = inner.iter().any(|list| matches!(list, Node::List(_)));
        for list in inner {
            names.extend(list.items().iter().filter_map(tool_name));
        }
        let namespace = lists
            || tool
                .all("type")
                .iter()
                .any(|t| t.text() == Some("namespace"));
        if !namespace {
            names.extend(tool_name(tool));
        }
    }
    names
}

fn tool_name(tool: &Node) -> Option<String> {
    let last_text = |node: &Node| {
        let names = node.all("name");
        names
            .iter()
            .rev()
            .find_map(|name| name.text())
            .map(str::to_owned)
    };
    let inside = |member| tool.all(member).into_iter().rev().find_map(last_text);
    last_text(tool)
        .or_else(|| inside("function"))
        .or_else(|| inside("custom"))
}

/// Deepest nesting of a valid body.
fn depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = body.iter();
    let mut in_string = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// A valid body without what serde_json refuses to read into values: every number becomes zero, and
/// the lone surrogates from U+D800 on become the characters from `from` on, but at most `to`.
fn tame(body: &[u8], from: u32, to: u32) -> Vec<u8> {
    let mut tame = body.to_vec();
    let (mut at, mut in_string) = (0, false);
    while at < tame.len() {
        match tame[at] {
            b'"' => in_string = !in_string,
            b'\\' if tame[at + 1] != b'u' => at += 1,
            b'\\' => {
                let unit = |at: usize| match body.get(at..at + 6) {
                    Some([b'\\', b'u', hex @ ..]) => {
                        u32::from_str_radix(std::str::from_utf8(hex).unwrap_or_default(), 16)
                            .unwrap_or(0)
                    }
                    _ => 0,
                };
                match (unit(at), unit(at + 6)) {
                    (0xD800..0xDC00, 0xDC00..0xE000) => at += 11,
                    (lone @ 0xD800..0xE000, _) => {
                        let stand_in = (from + (lone - 0xD800)).min(to);
                        tame[at + 2..at + 6].copy_from_slice(format!("{stand_in:04X}").as_bytes());
                        at += 5;
                    }
                    _ => at += 5,
                }
            }
            b'-' | b'0'..=b'9' if !in_string => {
                tame[at] = b'0';
                let rest = tame[at + 1..].iter_mut();
                rest.take_while(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
                    .for_each(|b| *b = b' ');
            }
            _ => {}
        }
        at += 1;
    }
    tame
}

enum Node {
    Literal(Option<bool>),
    Number,
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

    fn all(&self, name: &str) -> Vec<&Self> {
        self.members()
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, value)| value)
            .collect()
    }

    fn last(&self, name: &str) -> Option<&Self> {
        self.all(name).pop()
    }

    /// Members that a case-blind parser takes for `key`.
    fn spellings(&self, key: TopKey) -> usize {
        let blind = |name: &str| {
            let replaced = name.replace('\u{17f}', "s").replace('\u{212a}', "k");
            replaced
                .replace(['\u{130}', '\u{131}'], "i")
                .to_ascii_lowercase()
        };
        self.members()
            .iter()
            .filter(|(name, _)| blind(name) == key.as_str())
            .count()
    }

    const fn kind(&self) -> Kind {
        match self {
            Self::Literal(None) => Kind::Null,
            Self::Literal(Some(true)) => Kind::True,
            Self::Literal(Some(false)) => Kind::False,
            Self::Number => Kind::Number,
            Self::Text(_) => Kind::String,
            Self::List(_) => Kind::Array,
            Self::Object(_) => Kind::Object,
        }
    }
}

/// Builds a tree of so many levels; what is deeper becomes empty.
#[derive(Clone, Copy)]
struct Tree {
    levels: u32,
}

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Node, D::Error> {
        if self.levels == 0 {
            return parser
                .deserialize_ignored_any(IgnoredAny)
                .map(|_| Node::Literal(None));
        }
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Literal(None))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Literal(Some(value)))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let below = Self {
            levels: self.levels - 1,
        };
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(below)? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let below = Self {
            levels: self.levels - 1,
        };
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            members.push((name, map.next_value_seed(below)?));
        }
        Ok(Node::Object(members))
    }
}
