//! The four forms of a request target (RFC 9112 §3.2) and dot segments in its path.
//!
//! Paths and queries are never decoded or normalised here: they are forwarded as sent. What cannot
//! be forwarded safely is only recognised, by [`has_dot_segments`], and refused by the caller.

use crate::http1::error::TargetError;
use crate::http1::host::is_authority;
use crate::http1::host::is_authority_with_port;

/// A request target, borrowed from the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`, the normal case.
    Origin {
        /// From the first `/` on; `//x/y` is a path and names no authority.
        path: &'a [u8],
        /// After the first `?`.
        query: Option<&'a [u8]>,
    },
    /// `http://authority/path?query`, or https.
    Absolute {
        /// `uri-host [ ":" port ]`; it counts, the Host field does not (RFC 9112 §3.2.2).
        authority: &'a [u8],
        /// From the `/` after the authority on, `/` if there is none.
        path: &'a [u8],
        /// After the first `?`.
        query: Option<&'a [u8]>,
    },
    /// `*`, for OPTIONS only.
    Asterisk,
    /// `host:port`, for CONNECT only.
    Authority,
}

/// Reads a target that [`RequestHead::parse`](crate::http1::head::RequestHead::parse) found.
///
/// # Errors
/// [`TargetError`] if the target has no form that `method` may have.
pub fn parse_target<'a>(method: &[u8], target: &'a [u8]) -> Result<Target<'a>, TargetError> {
    if method == b"CONNECT" {
        return if is_authority_with_port(target) {
            Ok(Target::Authority)
        } else {
            Err(TargetError::Connect)
        };
    }
    match target {
        b"*" if method == b"OPTIONS" => Ok(Target::Asterisk),
        b"*" => Err(TargetError::Asterisk),
        [b'/', ..] => {
            let (path, query) = split_query(target);
            Ok(Target::Origin { path, query })
        }
        _ => absolute(target),
    }
}

fn absolute(target: &[u8]) -> Result<Target<'_>, TargetError> {
    let colon = target.iter().position(|&b| b == b':');
    let (scheme, rest) = colon
        .and_then(|colon| target.split_at_checked(colon))
        .ok_or(TargetError::Form)?;
    let rest = rest.strip_prefix(b"://").ok_or(TargetError::Form)?;
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(TargetError::Scheme);
    }
    let authority_bytes = rest
        .iter()
        .take_while(|b| !matches!(b, b'/' | b'?'))
        .count();
    let (authority, rest) = rest
        .split_at_checked(authority_bytes)
        .ok_or(TargetError::Authority)?;
    if !is_authority(authority) {
        return Err(TargetError::Authority);
    }
    let (path, query) = split_query(rest);
    Ok(Target::Absolute {
        authority,
        path: if path.is_empty() { b"/" } else { path },
        query,
    })
}

fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut parts = target.splitn(2, |&b| b == b'?');
    (parts.next().unwrap_or_default(), parts.next())
}

/// Whether a path has a segment that some server takes for `.` or `..`: raw or as `%2e`, divided by
/// `/`, `\` or their encodings `%2f` and `%5c`, with or without parameters (`..;x`).
/// An upstream that resolves it would serve another path than the one that was routed.
pub fn has_dot_segments(path: &[u8]) -> bool {
    let mut dots = Some(0u8); // in the segment so far; `None` once it holds anything else
    let mut rest = path;
    while let Some((byte, after)) = split_decoded(rest) {
        rest = after;
        match byte {
            b'/' | b'\\' | b';' => {
                if matches!(dots, Some(1 | 2)) {
                    return true;
                }
                // What follows `;` are parameters and belongs to no segment name.
                dots = if byte == b';' { None } else { Some(0) };
            }
            b'.' => dots = dots.map(|dots| dots.saturating_add(1)),
            _ => dots = None,
        }
    }
    matches!(dots, Some(1 | 2))
}

/// The first byte of `text` and what follows it. Only the encodings that matter for segments are
/// decoded; the percent sign of any other stands for itself, and what follows it too.
fn split_decoded(text: &[u8]) -> Option<(u8, &[u8])> {
    if let [b'%', high, low, rest @ ..] = text {
        match [*high, low.to_ascii_lowercase()] {
            [b'2', b'e'] => return Some((b'.', rest)),
            [b'2', b'f'] => return Some((b'/', rest)),
            [b'3', b'b'] => return Some((b';', rest)),
            [b'5', b'c'] => return Some((b'\\', rest)),
            _ => {}
        }
    }
    text.split_first().map(|(byte, rest)| (*byte, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_by_method() {
        let origin = |path, query| Ok(Target::Origin { path, query });
        let absolute = |authority, path, query| {
            Ok(Target::Absolute {
                authority,
                path,
                query,
            })
        };
        let cases: &[(&str, &str, Result<Target<'_>, TargetError>)] = &[
            (
                "POST",
                "/v1/messages?beta=true",
                origin(b"/v1/messages", Some(b"beta=true")),
            ),
            ("GET", "/a?b?c", origin(b"/a", Some(b"b?c"))),
            ("GET", "/a?", origin(b"/a", Some(b""))),
            ("GET", "//evil.test/v1", origin(b"//evil.test/v1", None)),
            (
                "GET",
                "http://gw.test/v1",
                absolute(b"gw.test", b"/v1", None),
            ),
            (
                "GET",
                "HTTPS://gw.test:1",
                absolute(b"gw.test:1", b"/", None),
            ),
            (
                "GET",
                "http://gw.test?q",
                absolute(b"gw.test", b"/", Some(b"q")),
            ),
            (
                "GET",
                "http://gw.test//x",
                absolute(b"gw.test", b"//x", None),
            ),
            ("OPTIONS", "*", Ok(Target::Asterisk)),
            ("CONNECT", "gw.test:443", Ok(Target::Authority)),
            ("GET", "*", Err(TargetError::Asterisk)),
            ("options", "*", Err(TargetError::Asterisk)),
            ("CONNECT", "/x", Err(TargetError::Connect)),
            ("CONNECT", "gw.test", Err(TargetError::Connect)),
            ("GET", "gw.test:443", Err(TargetError::Form)),
            ("GET", "v1/models", Err(TargetError::Form)),
            ("GET", "", Err(TargetError::Form)),
            ("GET", "?q", Err(TargetError::Form)),
            ("GET", "http:/gw.test/", Err(TargetError::Form)),
            ("GET", "ftp://gw.test/", Err(TargetError::Scheme)),
            ("GET", "://gw.test/", Err(TargetError::Scheme)),
            ("GET", "http:///x", Err(TargetError::Authority)),
            ("GET", "http://u@gw.test/", Err(TargetError::Authority)),
            ("GET", "http://[::1/v1", Err(TargetError::Authority)),
            ("GET", "http://gw.test\\@evil/", Err(TargetError::Authority)),
        ];
        for (method, target, expected) in cases {
            let got = parse_target(method.as_bytes(), target.as_bytes());
            assert_eq!(got, *expected, "{method} {target}");
        }
    }

    #[test]
    fn dot_segments() {
        let with: &[&str] = &[
            "/.",
            "/..",
            "/../",
            "/a/./b",
            "/a/../b",
            "/a/..",
            "/%2e",
            "/%2E%2e/x",
            "/.%2e/x",
            "/%2e./x",
            "/a%2f..%2fb",
            "/a%2F%2E%2E",
            "/a\\..\\b",
            "/a%5c..",
            "/a%5C.%5cb",
            "/..;/x",
            "/..;a=b/x",
            "/..%3b/x",
            "/.;",
            "..",
            "/a%/../b",
            "/%/%2e%2e/",
            "/%2/..",
        ];
        let without: &[&str] = &[
            "/",
            "",
            "//",
            "/a",
            "/...",
            "/.a",
            "/a.",
            "/..a",
            "/a..",
            "/v1/models/gpt-5.1",
            "/%2e%2e%2e",
            "/%2ea",
            "/a;..",
            "/a;./b",
            "/%",
            "/%2",
            "/%zz",
            "/%%2e",
            "/.well-known/x",
        ];
        for path in with {
            assert!(has_dot_segments(path.as_bytes()), "{path}");
        }
        for path in without {
            assert!(!has_dot_segments(path.as_bytes()), "{path}");
        }
    }
}
