//! The `Host` field and what an authority may look like (RFC 9112 §3.2, RFC 3986 §3.2).
//!
//! A host that is read in two ways is a route past a check, so only one spelling is known: a
//! registered name, an IPv4 address or a bracketed IPv6 address, and an optional decimal port.
//! User information, IPvFuture, zone ids and empty hosts are refused.

use std::net::Ipv6Addr;
use std::str;

use crate::http1::error::HostError;
use crate::http1::head::RequestHead;
use crate::http1::head::Version;
use crate::http1::head::values;

/// The host that a request names, or `None` for HTTP/1.0 without the field. With a target in
/// absolute form the caller takes the authority of the target instead (RFC 9112 §3.2.2); the field
/// must be right all the same.
///
/// # Errors
/// [`HostError`]: none in HTTP/1.1, more than one, or a value that is no authority.
pub fn host<'a>(head: &RequestHead, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, HostError> {
    let mut hosts = values(&head.fields, bytes, "host");
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Err(HostError::Repeated),
        (Some(host), None) if is_authority(host) => Ok(Some(host)),
        (Some(_), None) => Err(HostError::Invalid),
        (None, _) => match head.version {
            Version::Http10 => Ok(None),
            Version::Http11 => Err(HostError::Missing),
        },
    }
}

/// Whether `text` is `uri-host [ ":" port ]` with a host that is not empty.
pub fn is_authority(text: &[u8]) -> bool {
    let Some((host, port)) = split_port(text) else {
        return false;
    };
    let is_host = match host {
        [b'[', address @ .., b']'] => {
            str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok())
        }
        _ => is_registered_name(host),
    };
    is_host && port.is_none_or(|port| port.is_empty() || is_port(port))
}

/// Whether `text` is an authority whose port is written, as CONNECT needs it (RFC 9112 §3.2.3).
pub fn is_authority_with_port(text: &[u8]) -> bool {
    is_authority(text) && split_port(text).is_some_and(|(_, port)| port.is_some_and(is_port))
}

/// Divides an authority into host and port; the brackets of an address stay with it.
fn split_port(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let host_bytes = match text {
        [b'[', ..] => text.iter().position(|&b| b == b']')?.saturating_add(1),
        _ => text.iter().take_while(|&&b| b != b':').count(),
    };
    let (host, rest) = text.split_at_checked(host_bytes)?;
    match rest {
        [] => Some((host, None)),
        [b':', port @ ..] => Some((host, Some(port))),
        _ => None,
    }
}

/// At most five digits that fit 16 bits; nothing can connect to another one.
fn is_port(text: &[u8]) -> bool {
    let is_number = !text.is_empty() && text.len() <= 5 && text.iter().all(u8::is_ascii_digit);
    is_number && str::from_utf8(text).is_ok_and(|port| port.parse::<u16>().is_ok())
}

/// `reg-name` (RFC 3986 §3.2.2) with at least one character; IPv4 addresses are a part of it.
fn is_registered_name(mut text: &[u8]) -> bool {
    if text.is_empty() {
        return false;
    }
    loop {
        match text {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                text = rest;
            }
            [byte, rest @ ..]
                if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(byte) =>
            {
                text = rest;
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        let good: &[&str] = &[
            "gw.test",
            "gw.test:80",
            "gw.test:",
            "127.0.0.1:65535",
            "[::1]",
            "[::1]:443",
            "[2001:db8::7]:1",
            "a%41",
            "my_host",
            "x",
        ];
        let bad: &[&str] = &[
            "",
            ":80",
            "gw test",
            "a/b",
            "a\\b",
            "u@h",
            "u:p@h",
            "h:65536",
            "h:000080",
            "h:-1",
            "h:8 0",
            "h:80:80",
            "[::1",
            "::1",
            "[::1]x",
            "[fe80::1%25eth0]",
            "[v1.x]",
            "[]",
            "a%4",
            "a%zz",
            "a?b",
            "a#b",
            "h\u{e9}",
            "a\tb",
            "[::1]:x",
        ];
        for text in good {
            assert!(is_authority(text.as_bytes()), "{text}");
        }
        for text in bad {
            assert!(!is_authority(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn connect_needs_the_port() {
        assert!(is_authority_with_port(b"gw.test:443"));
        assert!(is_authority_with_port(b"[::1]:443"));
        for text in ["gw.test", "gw.test:", "[::1]", ":443"] {
            assert!(!is_authority_with_port(text.as_bytes()), "{text}");
        }
    }
}
