//! The places of a body that are looked into, and what is remembered while in them.

use crate::peek::capture::Value;

/// The innermost container that is looked into. Each has one possible parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before the root, or after it.
    Outside,
    Root,
    Metadata,
    /// The list in `system`.
    Blocks,
    Block,
    /// The list of messages or items.
    Entries,
    Entry,
    /// The list in `content`.
    Parts,
    Part,
    Tools,
    Tool,
    /// `function` or `custom` of a tool.
    Callee,
    /// The list in a namespace.
    InnerTools,
    InnerTool,
    InnerCallee,
}

impl Place {
    pub(super) const fn parent(self) -> Self {
        match self {
            Self::Outside | Self::Root => Self::Outside,
            Self::Metadata | Self::Blocks | Self::Entries | Self::Tools => Self::Root,
            Self::Block => Self::Blocks,
            Self::Entry => Self::Entries,
            Self::Parts => Self::Entry,
            Self::Part => Self::Parts,
            Self::Tool => Self::Tools,
            Self::Callee | Self::InnerTools => Self::Tool,
            Self::InnerTool => Self::InnerTools,
            Self::InnerCallee => Self::InnerTool,
        }
    }
}

/// Member names that matter below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Role,
    Type,
    Content,
    Text,
    Name,
    Function,
    Custom,
    Tools,
    UserId,
    Other,
}

impl Key {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"role" => Self::Role,
            b"type" => Self::Type,
            b"content" => Self::Content,
            b"text" => Self::Text,
            b"name" => Self::Name,
            b"function" => Self::Function,
            b"custom" => Self::Custom,
            b"tools" => Self::Tools,
            b"user_id" => Self::UserId,
            _ => Self::Other,
        }
    }
}

/// A message or item.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    /// Any of its roles is `user`.
    pub(super) user: bool,
    pub(super) role_seen: bool,
    pub(super) type_seen: bool,
    /// Responses: a type other than `message`.
    pub(super) other_type: bool,
    pub(super) content_seen: bool,
    /// A deciding member came twice.
    pub(super) repeated: bool,
    /// `content` is text so far.
    pub(super) text: bool,
}

/// A part of a message's content.
#[derive(Clone, Copy, Default)]
pub(super) struct Part {
    pub(super) type_seen: bool,
    pub(super) text_seen: bool,
    /// Its type is that of text.
    pub(super) text: bool,
}

/// A tool, or the tool in a namespace.
#[derive(Clone)]
pub(super) struct Tool {
    /// The best name so far.
    pub(super) name: Value,
    /// Where that name stands.
    pub(super) rank: Rank,
    /// `function` or `custom`, inside it.
    pub(super) callee: Rank,
    /// It stands for the tools in its list.
    pub(super) namespace: bool,
}

/// Where a tool's name stands; the highest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Nowhere,
    Custom,
    Function,
    Own,
}
