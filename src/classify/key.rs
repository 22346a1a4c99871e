//! Which session a classification belongs to.
//!
//! A key is made of what the gateway itself has issued or vouches for, and names who issued it: the same
//! bytes from two issuers are two sessions. What a client says of its session is never a key.

use std::fmt;

/// Who issued an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The gateway, in a token that the client has sent back.
    SecureSession,
    /// The gateway, for the conversation of an authenticated client.
    ALeg,
}

impl Scope {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::SecureSession, Self::ALeg];

    /// Its word in a store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SecureSession => "secure_session",
            Self::ALeg => "a_leg",
        }
    }
}

/// A session: an identifier that cannot be guessed or made, and its issuer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    scope: Scope,
    id: [u8; 32],
}

impl Key {
    /// The session with this identifier.
    #[must_use]
    pub const fn new(scope: Scope, id: [u8; 32]) -> Self {
        Self { scope, id }
    }

    /// Who issued it.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// Its identifier.
    #[must_use]
    pub const fn id(&self) -> &[u8; 32] {
        &self.id
    }

    /// The identifier in lower-case hexadecimal, for a store.
    #[must_use]
    pub fn id_text(&self) -> String {
        use fmt::Write;
        let mut text = String::with_capacity(64);
        for byte in self.id {
            // A string takes everything.
            let _written = write!(text, "{byte:02x}");
        }
        text
    }
}

// Never shown: it correlates.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.scope.as_str())
    }
}
