//! Writes heads. A head that is written here is read back the same by `head`.
//!
//! Always HTTP/1.1, whatever the peer of the other side speaks (RFC 9112 §2.3). Nothing is escaped:
//! parts come from a parsed head or from checked configuration, and a debug build asserts that none
//! of them can end a line.

use crate::http1::is_token;
use crate::http1::is_value_byte;

/// Appends `method SP target SP HTTP/1.1 CRLF`, the target given in parts.
pub fn request_line(out: &mut Vec<u8>, method: &[u8], target: &[&[u8]]) {
    debug_assert!(is_token(method));
    debug_assert!(target.iter().any(|part| !part.is_empty()));
    debug_assert!(target.iter().copied().flatten().all(u8::is_ascii_graphic));
    out.extend_from_slice(method);
    out.push(b' ');
    for part in target {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Appends `HTTP/1.1 SP status SP reason CRLF`; `status` has three digits, `reason` may be empty.
pub fn status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    debug_assert!((100..=599).contains(&status));
    debug_assert!(reason.iter().copied().all(is_value_byte));
    let digits = [status / 100, status / 10, status].map(|n| b'0' | (n % 10) as u8);
    for part in [b"HTTP/1.1 ", digits.as_slice(), b" ", reason, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends `name: value CRLF`.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(is_token(name));
    debug_assert!(value.iter().copied().all(is_value_byte));
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends the empty line that ends a head.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}
