//! The session of a request, for providers that keep the requests of one session together.
//!
//! A client that names its session in a field or in the body has that name (captured); of one that
//! does not, what stays the same over its requests is hashed (derived). Nothing is ever made up, so two
//! requests without anything in common have no session rather than a shared one.
//!
//! The name becomes a header value and a JSON string, and so has to be visible ASCII of at most
//! [`SESSION_ID_BYTES_MAX`] bytes (decision S10). Another one ends the search without a session: what
//! stands behind it would merge sessions that the client tells apart. Nothing is allocated before the
//! session is known.

#[doc(hidden)]
pub mod fuzzing;

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::http1::head::{Field, values};
use crate::peek::{Demand, Fact, Peek, Text, TopKey};

pub use crate::limits::SESSION_FIELD_BYTES_MAX as SESSION_ID_BYTES_MAX;

/// The fields in which a session may be named, first to last.
pub const FIELDS: [&str; 4] = [
    "session_id",
    "x-opencode-session",
    "x-session-id",
    "conversation_id",
];

/// What a body is read for where its session matters.
pub const DEMAND: Demand = Demand::SESSION_FIELDS.with(Demand::USER_ID);

/// What a derived session is made of, in the order of the hash: fields, and `user` of the body.
const INPUTS: [Input; 6] = [
    Input::Field("authorization"),
    Input::User,
    Input::Field("chatgpt-account-id"),
    Input::Field("openai-organization"),
    Input::Field("openai-project"),
    Input::Field("x-api-key"),
];

#[derive(Clone, Copy)]
enum Input {
    Field(&'static str),
    User,
}

/// Where the id of a session came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client named it.
    Captured,
    /// It is a hash of what stays the same.
    Derived,
}

impl Source {
    /// The word in logs and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Captured => "captured",
            Self::Derived => "derived",
        }
    }
}

/// A session that was found.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    id: Box<str>,
    source: Source,
}

// The id is the client's.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Session({}, {} bytes)",
            self.source.as_str(),
            self.id.len()
        )
    }
}

impl Session {
    /// Its id: visible ASCII and single spaces inside, 1 to [`SESSION_ID_BYTES_MAX`] bytes.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where the id came from.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }
}

/// A request as far as its session goes.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The fields of its head.
    pub fields: &'a [Field],
    /// The text that they lie in.
    pub text: &'a [u8],
    /// What was read of its body; none if it has none, or one that is no JSON.
    pub body: Option<&'a Peek>,
}

/// Where the search for a name led.
enum Named<'a> {
    /// A place that comes first is not read yet.
    Open,
    /// To this.
    As(&'a str),
    /// To one that cannot be carried.
    Unfit,
    /// To nothing.
    Nowhere,
}

impl<'a> Named<'a> {
    fn text(text: &'a str) -> Self {
        match text.trim() {
            "" => Self::Nowhere,
            id if is_fit(id) => Self::As(id),
            _ => Self::Unfit,
        }
    }

    fn fact(fact: Fact<Text<'a>>) -> Self {
        match fact {
            Fact::NotYet => Self::Open,
            Fact::Found(text) => Self::text(text.value),
            Fact::BeyondBound => Self::Unfit,
            Fact::Absent => Self::Nowhere,
        }
    }

    fn or_else(self, next: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Nowhere => next(),
            found => found,
        }
    }
}

impl<'a> Asker<'a> {
    /// Whether more of the body has to be read before the session is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.named() {
            Named::Open => true,
            Named::Nowhere => self.body.is_some_and(|body| body.user().is_open()),
            Named::As(_) | Named::Unfit => false,
        }
    }

    /// The session; none also while it [is open](Self::is_open).
    #[must_use]
    pub fn session(&self) -> Option<Session> {
        match self.named() {
            Named::As(id) => Some(Session {
                id: id.into(),
                source: Source::Captured,
            }),
            Named::Nowhere => self.derived(),
            Named::Open | Named::Unfit => None,
        }
    }

    fn named(&self) -> Named<'a> {
        let Some(body) = self.body else {
            return self.named_in_head();
        };
        self.named_in_head()
            .or_else(|| Named::fact(body.prompt_cache_key()))
            .or_else(|| user_id(body))
    }

    fn named_in_head(&self) -> Named<'a> {
        let mut found = FIELDS.into_iter().filter_map(|name| self.field(name));
        match found.next().map(std::str::from_utf8) {
            Some(Ok(id)) => Named::text(id),
            Some(Err(_)) => Named::Unfit,
            None => Named::Nowhere,
        }
    }

    /// The first value of a field that is not blank.
    fn field(&self, name: &str) -> Option<&'a [u8]> {
        let mut all = values(self.fields, self.text, name).map(trimmed);
        all.find(|value| !value.is_empty())
    }

    fn derived(&self) -> Option<Session> {
        let user = match self.body.map(Peek::user) {
            None | Some(Fact::Absent) => None,
            Some(Fact::Found(user)) => Some(user.value.trim()).filter(|user| !user.is_empty()),
            // One that is not known cannot be told from another.
            Some(Fact::NotYet | Fact::BeyondBound) => return None,
        };
        let mut hash = Sha256::new();
        let mut any = false;
        for input in INPUTS {
            let (name, value) = match input {
                Input::Field(name) => (name, self.field(name)),
                Input::User => ("body.user", user.map(str::as_bytes)),
            };
            let Some(value) = value else { continue };
            if any {
                hash.update(b"\n");
            }
            any = true;
            hash.update(name);
            hash.update(b"=");
            hash.update(value);
        }
        any.then(|| Session {
            id: derived_id(hash.finalize().into()),
            source: Source::Derived,
        })
    }
}

/// `metadata.user_id`, once no other one can follow in the same object.
fn user_id(body: &Peek) -> Named<'_> {
    match body.metadata_user_id() {
        Fact::Absent => Named::Nowhere,
        _ if body.span(TopKey::Metadata).is_none() => Named::Open,
        fact => Named::fact(fact),
    }
}

/// The first half of a hash, in hexadecimal digits.
fn derived_id(hash: [u8; 32]) -> Box<str> {
    let mut half = [0; 16];
    half.copy_from_slice(hash.get(..16).unwrap_or(&[0; 16]));
    format!("derived-{:032x}", u128::from_be_bytes(half)).into()
}

/// Whether an id can be a header value and a JSON string as it is (decision S10).
fn is_fit(id: &str) -> bool {
    id.len() <= SESSION_ID_BYTES_MAX && id.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Without white space at the ends, as texts are trimmed everywhere; of bytes that are no text, ASCII.
fn trimmed(value: &[u8]) -> &[u8] {
    std::str::from_utf8(value).map_or_else(|_| value.trim_ascii(), |text| text.trim().as_bytes())
}

#[cfg(test)]
mod tests;
