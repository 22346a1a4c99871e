//! Which conversation a request belongs to, by the fields of its head.
//!
//! `X-Router-Conversation`, `X-Router-Agent` and `X-Router-Parent` are judged each on its own: the first
//! field of a name counts even if it is invalid, and an invalid value is no value, never an error,
//! because a bad label must not fail a paid request. A valid one is taken as it is, without
//! trimming or folding. Where `identity.native` is on, the ids that agents send anyway come next, under a
//! prefix of their own.
//!
//! Costs one comparison of a length for each field; what is found is kept inline, about 400 bytes, and
//! no byte of a body is looked at.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::limits::{AGENT_BYTES_MAX, CONVERSATION_BYTES_MAX};

/// Bytes of the longest key: a prefix of two, an id, a colon and 16 hexadecimal digits.
const KEY_BYTES_MAX: usize = 2 + CONVERSATION_BYTES_MAX + 1 + 16;

/// A text of at most `N` bytes, held inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inline<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// The key of a conversation as it is stored: `c:` and what the client said, `n:` and an agent's own
/// id, or 16 hexadecimal digits, which have no colon, so that the three never meet.
pub type Key = Inline<KEY_BYTES_MAX>;

/// The name of an agent.
pub type Agent = Inline<AGENT_BYTES_MAX>;

impl<const N: usize> Inline<N> {
    const EMPTY: Self = Self {
        bytes: [0; N],
        len: 0,
    };

    /// The parts one after the other; none if they are longer than fits.
    fn joined(parts: &[&[u8]]) -> Option<Self> {
        let mut whole = Self::EMPTY;
        for part in parts {
            let end = whole.len.checked_add(part.len())?;
            whole.bytes.get_mut(whole.len..end)?.copy_from_slice(part);
            whole.len = end;
        }
        Some(whole)
    }

    /// As many whole characters of a text as fit.
    #[must_use]
    pub fn cut(text: &str) -> Self {
        let end = text.floor_char_boundary(N);
        let fits = text.get(..end).unwrap_or_default();
        Self::joined(&[fits.as_bytes()]).unwrap_or(Self::EMPTY)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

// An id beside other text in a log line is what must not happen by accident.
impl<const N: usize> fmt::Debug for Inline<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.len)
    }
}

impl Key {
    /// The key of what a client calls its conversation; none if that is no valid id.
    #[must_use]
    pub fn client(id: &[u8]) -> Option<Self> {
        is_label(id, CONVERSATION_BYTES_MAX)
            .then(|| Self::joined(&[b"c:", id]))
            .flatten()
    }

    /// The key of a conversation that nobody named, by its fingerprint.
    #[must_use]
    pub fn fingerprint(value: u64) -> Self {
        Self::joined(&[&hex(value)]).unwrap_or(Self::EMPTY)
    }

    fn native(id: &[u8], part: Option<&[u8]>) -> Option<Self> {
        match part {
            None => Self::joined(&[b"n:", id]),
            // May be any bytes: agents have sent `@` and raw UTF-8 here.
            Some(part) => Self::joined(&[b"n:", id, b":", &hex(hash(part))]),
        }
    }
}

/// The first eight bytes of the SHA-256.
fn hash(bytes: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let mut first = [0; 8];
    first.copy_from_slice(digest.get(..8).unwrap_or(&[0; 8]));
    u64::from_be_bytes(first)
}

fn hex(value: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; 16];
    for (at, digit) in out.iter_mut().enumerate() {
        let nibble = (value >> (60 - 4 * at)) & 15;
        *digit = usize::try_from(nibble).map_or(b'0', |nibble| DIGITS[nibble]);
    }
    out
}

/// Whether a text can be an id or a name: 1 to `bytes_max` bytes of `A-Z a-z 0-9 . _ : -`.
#[must_use]
pub fn is_label(text: &[u8], bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len())
        && text
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(byte))
}

/// Where the key of a conversation came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// `X-Router-Conversation`.
    Client,
    /// An id that the agent sends of its own accord.
    Native,
    /// The text that the conversation begins with.
    Fingerprint,
}

impl KeyKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Client, Self::Native, Self::Fingerprint];

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Native => "native",
            Self::Fingerprint => "fingerprint",
        }
    }
}

/// What a head says of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The conversation; none if only its fingerprint can tell.
    pub session: Option<(KeyKind, Key)>,
    /// The conversation that began this one. As it was sent: it may be the same one, or a ring.
    pub parent: Option<Key>,
    /// Who sent the request.
    pub agent: Option<Agent>,
}

/// The fields of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// `X-Router-Conversation`
    Conversation,
    /// `X-Router-Agent`
    Agent,
    /// `X-Router-Parent`
    Parent,
}

impl Named {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Conversation, Self::Agent, Self::Parent];

    /// The name of the field, in small letters.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conversation => "x-router-conversation",
            Self::Agent => "x-router-agent",
            Self::Parent => "x-router-parent",
        }
    }

    const fn bytes_max(self) -> usize {
        match self {
            Self::Conversation | Self::Parent => CONVERSATION_BYTES_MAX,
            Self::Agent => AGENT_BYTES_MAX,
        }
    }
}

/// A head as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it says; none if nothing.
    pub identity: Option<Identity>,
    /// Fields that were there and count as absent, one place for each of [`Named::ALL`].
    pub invalid: [bool; Named::ALL.len()],
}

/// Fields by which agents name their conversation.
#[derive(Clone, Copy, Default)]
struct Native<'a> {
    claude_session: Option<&'a [u8]>,
    claude_agent: Option<&'a [u8]>,
    claude_parent_agent: Option<&'a [u8]>,
    thread: Option<&'a [u8]>,
    parent_thread: Option<&'a [u8]>,
    session: Option<&'a [u8]>,
    opencode_session: Option<&'a [u8]>,
    parent_session: Option<&'a [u8]>,
}

impl<'a> Native<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) {
        // Longest known name; most fields of a request are looked at no further than their length.
        let mut lowered = [0_u8; 32];
        let Some(lowered) = lowered.get_mut(..name.len()) else {
            return;
        };
        lowered.copy_from_slice(name);
        lowered.make_ascii_lowercase();
        let place = match &*lowered {
            b"x-claude-code-session-id" => &mut self.claude_session,
            b"x-claude-code-agent-id" => &mut self.claude_agent,
            b"x-claude-code-parent-agent-id" => &mut self.claude_parent_agent,
            b"thread-id" => &mut self.thread,
            b"x-codex-parent-thread-id" => &mut self.parent_thread,
            // Codex changed the spelling between versions; pi writes the older one.
            b"session-id" | b"session_id" => &mut self.session,
            b"x-opencode-session" | b"x-session-id" | b"x-session-affinity" => {
                &mut self.opencode_session
            }
            b"x-parent-session-id" => &mut self.parent_session,
            _ => return,
        };
        if place.is_none() {
            *place = Some(value);
        }
    }

    /// The conversation and its parent.
    fn keys(&self) -> Option<(Key, Option<Key>)> {
        let valid = |id: Option<&'a [u8]>| id.filter(|id| is_label(id, CONVERSATION_BYTES_MAX));
        let filled = |id: Option<&'a [u8]>| id.filter(|id| !id.is_empty());
        // Claude Code gives its sub-agents the session of the whole run: alone it would blend them.
        if let Some(session) = valid(self.claude_session) {
            let agent = filled(self.claude_agent);
            let parent = filled(self.claude_parent_agent).filter(|_| agent.is_some());
            let parent = agent.and_then(|_| Key::native(session, parent));
            return Some((Key::native(session, agent)?, parent));
        }
        let parent = |id| valid(id).and_then(|id| Key::native(id, None));
        if let Some(thread) = valid(self.thread) {
            return Some((Key::native(thread, None)?, parent(self.parent_thread)));
        }
        let session = valid(self.session).or_else(|| valid(self.opencode_session))?;
        Some((Key::native(session, None)?, parent(self.parent_session)))
    }
}

/// Reads the fields of a head, given as names and values without white space around them. `native`:
/// ids that agents send of their own accord count too.
#[must_use]
pub fn read<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>, native: bool) -> Reading {
    let mut first: [Option<&[u8]>; Named::ALL.len()] = [None; Named::ALL.len()];
    let mut natives = Native::default();
    for (name, value) in fields {
        let known = match name.len() {
            21 => Named::Conversation,
            14 => Named::Agent,
            15 => Named::Parent,
            _ => {
                if native {
                    natives.take(name, value);
                }
                continue;
            }
        };
        let place = &mut first[known as usize];
        if name.eq_ignore_ascii_case(known.as_str().as_bytes()) {
            if place.is_none() {
                *place = Some(value);
            }
        } else if native {
            natives.take(name, value);
        }
    }
    let valid = |named: Named| {
        let value = first[named as usize];
        value.filter(|value| is_label(value, named.bytes_max()))
    };
    let invalid = Named::ALL.map(|named| first[named as usize].is_some() && valid(named).is_none());
    let key = |named| valid(named).and_then(Key::client);
    let client = key(Named::Conversation).map(|key| (KeyKind::Client, key));
    let natives = natives.keys().filter(|_| client.is_none());
    let session = client.or_else(|| natives.map(|(key, _)| (KeyKind::Native, key)));
    let parent = key(Named::Parent).or_else(|| natives.and_then(|(_, parent)| parent));
    let agent = valid(Named::Agent).and_then(|name| Agent::joined(&[name]));
    let said = session.is_some() || parent.is_some() || agent.is_some();
    Reading {
        identity: said.then_some(Identity {
            session,
            parent,
            agent,
        }),
        invalid,
    }
}

#[cfg(test)]
mod tests;
