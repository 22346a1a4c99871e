//! Which User-Agents are looked at.

/// Bytes of the longest User-Agent that is looked at. Those of agents have 20 to 120.
pub const USER_AGENT_BYTES_MAX: usize = 512;

/// A User-Agent that may be evidence: trimmed, not blank, not too long, without control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserAgent<'a>(&'a str);

impl<'a> UserAgent<'a> {
    /// The User-Agent of a field's value. One that cannot be accepted is as if it were not there: never cut
    /// to fit.
    #[must_use]
    pub fn accept(value: &'a [u8]) -> Option<Self> {
        // White space aside, what is longer cannot be accepted; and nobody wants to scan a whole head.
        if value.len() > 2 * USER_AGENT_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(value).ok()?.trim();
        let fits = !text.is_empty() && text.len() <= USER_AGENT_BYTES_MAX;
        // C0, DEL and C1.
        (fits && !text.chars().any(char::is_control)).then_some(Self(text))
    }

    pub(super) const fn as_str(self) -> &'a str {
        self.0
    }
}
