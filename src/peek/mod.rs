//! Facts about a request body, read while it passes by.
//!
//! [`Peek`] feeds a body to the JSON scanner and keeps the few values that decisions need, each with
//! a bound; everything else is validated and skipped. It decides nothing: what an absent model or a
//! repeated key means is for its callers. It refuses what the scanner refuses.
//!
//! A fact is provisional until the root has closed, because a key may come again: then the last value
//! counts here and [`Peek::repeated`] names the key. First-wins, last-wins and case-blind parsers
//! would disagree on such a body, so callers refuse it where the key matters.
//!
//! Cost: that of the scan, plus decoding of demanded values. A demand of nothing below the root
//! looks at nothing below the root. State is about 2 KiB, and values are on the heap up to their
//! bounds; nothing is allocated per push.

mod capture;
mod fingerprint;
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod key;
#[doc(hidden)]
pub mod naive;
mod place;
mod report;
mod seen;
mod user_text;

pub use crate::limits::{
    MODEL_BYTES_MAX, SESSION_FIELD_BYTES_MAX, TOOL_NAME_BYTES_MAX, USER_TEXT_BYTES_MAX,
    USER_TEXT_FIRST,
};
pub use key::{KeySet, TopKey, is_read_as};
pub use report::report;
pub use seen::Seen;
pub use user_text::{LastUserText, TextReader};

use std::fmt;
use std::ops::BitOr;

use crate::dialect::Dialect;
use crate::json::{Broken, Scanner, Span};
use gather::Gather;

/// What is known about one fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// It may still come.
    NotYet,
    /// It is this.
    Found(T),
    /// The root has closed without it, or with another type of value in its place.
    Absent,
    /// It is longer than its bound.
    BeyondBound,
}

impl<T> Fact<T> {
    /// Whether it may still come.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::NotYet)
    }

    /// The value, if it was found.
    #[must_use]
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(value) => Some(value),
            Self::NotYet | Self::Absent | Self::BeyondBound => None,
        }
    }
}

/// A decoded string value, and where it stands in the body, quotes included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    /// Decoded; a lone surrogate is U+FFFD.
    pub value: &'a str,
    /// From the opening quote to past the closing one: what a patch replaces.
    pub span: Span,
}

// The value may be a session id.
impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes, {:?})", self.value.len(), self.span)
    }
}

/// Type of a root member's value, as its first byte tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true`
    True,
    /// `false`
    False,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// Whether the client asks for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFlag {
    /// The literal `true`, the only value that asks for a stream.
    True,
    /// The literal `false`.
    False,
    /// Any other value.
    Other,
}

/// Facts that a body is read for. One that is not demanded stays [`Fact::NotYet`]; the stream flag,
/// the presence of root keys and repeats cost nothing and are always known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand(u8);

impl Demand {
    /// Structure only.
    pub const NOTHING: Self = Self(0);
    /// The model's name.
    pub const MODEL: Self = Self(1);
    /// The stream flag.
    pub const STREAM: Self = Self(1 << 1);
    /// The last user text.
    pub const USER_TEXT: Self = Self(1 << 2);
    /// Tool names.
    pub const TOOL_NAMES: Self = Self(1 << 3);
    /// `prompt_cache_key`, `user` and `session_id`.
    pub const SESSION_FIELDS: Self = Self(1 << 4);
    /// `metadata.user_id`.
    pub const USER_ID: Self = Self(1 << 5);
    /// The fingerprint of what the conversation begins with.
    pub const FINGERPRINT: Self = Self(1 << 6);
    /// All of them.
    pub const ALL: Self = Self((1 << 7) - 1);

    /// Those that are read for, with the word for each; the stream flag is always known.
    const NAMED: [(&'static str, Self); 6] = [
        ("model", Self::MODEL),
        ("last_user_text", Self::USER_TEXT),
        ("tool_names", Self::TOOL_NAMES),
        ("session_fields", Self::SESSION_FIELDS),
        ("metadata.user_id", Self::USER_ID),
        ("fingerprint", Self::FINGERPRINT),
    ];

    /// The facts of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every fact of `other` is demanded.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is demanded.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Demand {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// A tool's name as it passes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolName<'a> {
    /// Decoded.
    Named(&'a str),
    /// Longer than [`TOOL_NAME_BYTES_MAX`].
    BeyondBound,
}

/// Takes tool names in order, repeats included. Nameless tools are left out.
///
/// The name of a tool is its `name`, else its `function.name`, else its `custom.name`. A tool of type
/// `namespace`, or with a list of `tools` of its own, stands for the tools in that list.
pub trait ToolNames {
    /// One tool.
    fn name(&mut self, name: ToolName<'_>);
}

/// Reduces each tool's name to bits at once. The bits of all names together are what stays.
#[derive(Clone, Copy, Debug)]
pub struct ToolBits {
    reduce: fn(ToolName<'_>) -> u32,
    bits: u32,
}

impl ToolBits {
    /// Reduces names by this function.
    #[must_use]
    pub fn by(reduce: fn(ToolName<'_>) -> u32) -> Self {
        Self { reduce, bits: 0 }
    }

    /// The bits of all names so far.
    #[must_use]
    pub const fn bits(&self) -> u32 {
        self.bits
    }
}

/// Drops tool names.
impl Default for ToolBits {
    fn default() -> Self {
        Self::by(|_| 0)
    }
}

impl ToolNames for ToolBits {
    fn name(&mut self, name: ToolName<'_>) {
        self.bits |= (self.reduce)(name);
    }
}

/// Whether values beyond their bound are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// On the path of a request.
    Bounded,
    /// In a tool that has the whole body anyway; texts are then kept as they are, untrimmed.
    Unbounded,
}

/// Reads the demanded facts from a body that comes in pieces.
#[derive(Clone)]
pub struct Peek<T = ToolBits> {
    scanner: Scanner,
    gather: Gather<T>,
    demand: Demand,
}

// The captured values are the client's.
impl<T> fmt::Debug for Peek<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Peek");
        shown
            .field("scanner", &self.scanner)
            .field("demand", &self.demand);
        shown.finish_non_exhaustive()
    }
}

impl Peek {
    /// A reader for one body that drops tool names.
    #[must_use]
    pub fn new(dialect: Dialect, demand: Demand) -> Self {
        Self::with(dialect, demand, Capture::Bounded, ToolBits::default())
    }
}

impl<T: ToolNames> Peek<T> {
    /// A reader for one body that gives tool names to `tools`.
    #[must_use]
    pub fn with(dialect: Dialect, demand: Demand, capture: Capture, tools: T) -> Self {
        let gather = Gather::new(dialect, demand, capture, tools);
        Self {
            scanner: Scanner::new(),
            gather,
            demand,
        }
    }

    /// Reads the next bytes of the body.
    ///
    /// # Errors
    /// The body is not one JSON object; no fact is to be trusted then.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Broken> {
        self.scanner.push(chunk, &mut self.gather)
    }

    /// Reads the end of the body.
    ///
    /// # Errors
    /// As [`Peek::push`]; also if the root is still open.
    pub fn finish(&mut self) -> Result<(), Broken> {
        self.scanner.finish()
    }

    /// Offset of the byte that closed the root.
    #[must_use]
    pub const fn closed_at(&self) -> Option<u64> {
        self.scanner.closed_at()
    }

    /// Bytes read; after an error, the error's offset.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.scanner.offset()
    }

    /// Bytes of white space after the root; how many are too many is the caller's to say.
    #[must_use]
    pub fn trailing(&self) -> u64 {
        self.scanner.trailing()
    }

    /// Offset of the root's `{`: where a member can be inserted.
    #[must_use]
    pub fn opened_at(&self) -> Option<u64> {
        self.gather.opened_at
    }

    /// Demanded facts that may still come.
    #[must_use]
    pub fn open(&self) -> Demand {
        let still = |fact: bool, demand: Demand| {
            if fact && self.demand.has(demand) {
                demand
            } else {
                Demand::NOTHING
            }
        };
        let session = self.prompt_cache_key().is_open()
            || self.user().is_open()
            || self.session_id().is_open();
        still(self.model().is_open(), Demand::MODEL)
            | still(self.stream().is_open(), Demand::STREAM)
            | still(self.last_user().is_open(), Demand::USER_TEXT)
            | still(
                !self.gather.has_ended(TopKey::Tools) && !self.closed(),
                Demand::TOOL_NAMES,
            )
            | still(session, Demand::SESSION_FIELDS)
            | still(self.metadata_user_id().is_open(), Demand::USER_ID)
    }

    /// `model`, if it is a string. Demand: [`Demand::MODEL`].
    #[must_use]
    pub fn model(&self) -> Fact<Text<'_>> {
        self.gather.model.fact(self.settles(Demand::MODEL))
    }

    /// `stream`.
    #[must_use]
    pub fn stream(&self) -> Fact<StreamFlag> {
        if !self.gather.has_ended(TopKey::Stream) {
            return if self.closed() {
                Fact::Absent
            } else {
                Fact::NotYet
            };
        }
        match self.kind(TopKey::Stream) {
            Fact::Found(Kind::True) => Fact::Found(StreamFlag::True),
            Fact::Found(Kind::False) => Fact::Found(StreamFlag::False),
            Fact::Found(_) => Fact::Found(StreamFlag::Other),
            Fact::NotYet => Fact::NotYet,
            Fact::Absent => Fact::Absent,
            Fact::BeyondBound => Fact::BeyondBound,
        }
    }

    /// Text of the last message of role `user`: a string, or a list of nothing but text parts,
    /// joined. Demand: [`Demand::USER_TEXT`].
    ///
    /// Messages are the items of `messages`; for [`Dialect::Responses`] those items of `input` that
    /// have no type or type `message`, or `input` itself if it is a string. A user message that
    /// repeats `role`, `type` or `content`, or has a part that repeats `type` or `text`, has no text.
    /// Beyond the bound is also a text that no switch begins like: with another byte than [`USER_TEXT_FIRST`].
    #[must_use]
    pub fn last_user(&self) -> Fact<LastUserText<'_>> {
        self.gather.last_user(self.settles(Demand::USER_TEXT))
    }

    /// `prompt_cache_key`, if it is a string. Demand: [`Demand::SESSION_FIELDS`].
    #[must_use]
    pub fn prompt_cache_key(&self) -> Fact<Text<'_>> {
        self.gather
            .prompt_cache_key
            .fact(self.settles(Demand::SESSION_FIELDS))
    }

    /// `user`, if it is a string. Demand: [`Demand::SESSION_FIELDS`].
    #[must_use]
    pub fn user(&self) -> Fact<Text<'_>> {
        self.gather.user.fact(self.settles(Demand::SESSION_FIELDS))
    }

    /// `session_id`, if it is a string. Demand: [`Demand::SESSION_FIELDS`].
    #[must_use]
    pub fn session_id(&self) -> Fact<Text<'_>> {
        self.gather
            .session_id
            .fact(self.settles(Demand::SESSION_FIELDS))
    }

    /// `metadata.user_id`, if it is a string. Demand: [`Demand::USER_ID`].
    #[must_use]
    pub fn metadata_user_id(&self) -> Fact<Text<'_>> {
        self.gather.user_id.fact(self.settles(Demand::USER_ID))
    }

    /// The fingerprint `fp1` of what was read so far. Never open: of a body that has not ended it is that of a
    /// part. Demand: [`Demand::FINGERPRINT`], else none.
    #[must_use]
    pub fn fingerprint(&self) -> Option<u64> {
        self.gather.fingerprint(self.closed())
    }

    /// Whether a root key is there, and what its value is.
    #[must_use]
    pub fn kind(&self, key: TopKey) -> Fact<Kind> {
        match self.gather.kind(key) {
            Some(kind) => Fact::Found(kind),
            None if self.closed() => Fact::Absent,
            None => Fact::NotYet,
        }
    }

    /// Where the value of a root key stands, once it has ended.
    #[must_use]
    pub fn span(&self, key: TopKey) -> Option<Span> {
        self.gather.span(key)
    }

    /// Root keys that came, counting spellings that a case-blind parser takes for them.
    #[must_use]
    pub const fn keys(&self) -> KeySet {
        self.gather.seen
    }

    /// Root keys that came more than once, counting spellings that a case-blind parser takes for
    /// them.
    #[must_use]
    pub const fn repeated(&self) -> KeySet {
        self.gather.repeated
    }

    /// The routed keys among [`Peek::repeated`]: if there is one, the body has no single reading.
    #[must_use]
    pub const fn ambiguous(&self) -> KeySet {
        self.gather.repeated.and(KeySet::ROUTED)
    }

    /// Tools with a name so far, those beyond the bound included.
    #[must_use]
    pub const fn tools(&self) -> u32 {
        self.gather.tools_named
    }

    /// The taker of tool names.
    #[must_use]
    pub const fn tool_names(&self) -> &T {
        &self.gather.tools
    }

    /// Whether a fact that has not come will not come. One that is not demanded stays open.
    const fn settles(&self, demand: Demand) -> bool {
        self.closed() && self.demand.has(demand)
    }

    const fn closed(&self) -> bool {
        self.scanner.closed_at().is_some()
    }
}
