//! HTTP/1.1 on byte slices: heads, targets, body framing, the chunked coding, hop-by-hop fields.
//!
//! Decides where a message starts and ends and what its head says, strictly by RFC 9110 and 9112:
//! where two readers could disagree about a message, it is refused, because a gateway that picks
//! one reading is a way around whatever stands behind it. It refuses to do I/O, to keep time and to
//! own the bytes: heads are offsets into the caller's buffer, chunked bodies are decoded in place.
//! It costs one pass to find the end of a head, one to read its fields (httparse), no allocation
//! for a head that is used again, and constant memory for a chunked body of any length.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod head;
pub mod host;
pub mod query;
pub mod target;
pub mod framing;
pub mod chunked;
pub mod hop;
pub mod emit;
pub mod error;
pub mod fuzzing;

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test stops at the first surprise"
)]
mod torture;

/// A byte of a `token`, the form of methods, field names and options (RFC 9110 §5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether `text` is a `token`: one or more token bytes.
fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().copied().all(is_token_byte)
}

/// A byte that a field value may hold: TAB, space, visible ASCII or opaque data over 0x7F
/// (RFC 9110 §5.5).
fn is_value_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// Removes spaces and tabs at both ends (`OWS`, RFC 9110 §5.6.3), and nothing else.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}
