//! Hop-by-hop fields: what ends at this gateway (RFC 9110 §7.6.1).
//!
//! A fixed set, and what `Connection` names beside it. A peer may name anything there, so what it
//! names never changes framing or the host: those fields are refused or read elsewhere, and
//! [`ConnectionOptions::names`] does not report them.

use crate::http1::error::FramingError;
use crate::http1::error::FramingReason;
use crate::http1::head::Field;
use crate::http1::head::Version;
use crate::http1::head::named;
use crate::http1::trim;

/// Options in all `Connection` fields of one head beside close and keep-alive. Real clients send up
/// to two; each is compared with each field name of the head, so the product is bounded here.
pub const OPTIONS_MAX: usize = 32;

const HOP_BY_HOP: [&[u8]; 9] = [
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// Fields that `Connection` cannot take away.
const NOT_OPTIONS: [&[u8]; 3] = [b"content-length", b"host", b"transfer-encoding"];

/// Whether the field `name` is for this connection only, whatever `Connection` says.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP.iter().any(|hop| hop.eq_ignore_ascii_case(name))
}

/// What the `Connection` fields of one head say together.
#[derive(Debug, Clone)]
pub struct ConnectionOptions<'a> {
    /// `close`: no message follows the answer.
    pub close: bool,
    /// `keep-alive`: an HTTP/1.0 peer asks to keep the connection.
    pub keep_alive: bool,
    /// The others, which few messages have: most often this holds no memory.
    others: Vec<&'a [u8]>,
}

impl<'a> ConnectionOptions<'a> {
    /// Reads all `Connection` fields; case is ignored, empty members are skipped.
    ///
    /// # Errors
    /// [`FramingReason::TooManyOptions`] beyond [`OPTIONS_MAX`].
    pub fn of(fields: &[Field], bytes: &'a [u8]) -> Result<Self, FramingError> {
        let mut all = Self {
            close: false,
            keep_alive: false,
            others: Vec::new(),
        };
        for field in named(fields, bytes, "connection") {
            for option in field.value.of(bytes).split(|&b| b == b',').map(trim) {
                if option.is_empty() {
                    continue;
                }
                if option.eq_ignore_ascii_case(b"close") {
                    all.close = true;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    all.keep_alive = true;
                } else if all.others.len() < OPTIONS_MAX {
                    all.others.push(option);
                } else {
                    return Err(FramingError {
                        at: field.name.at(),
                        reason: FramingReason::TooManyOptions,
                    });
                }
            }
        }
        Ok(all)
    }

    /// Whether the field `name` is named as an option, so that it must not be forwarded. Never
    /// true for Content-Length, Transfer-Encoding and Host.
    pub fn names(&self, name: &[u8]) -> bool {
        let mut others = self.others.iter();
        others.any(|option| option.eq_ignore_ascii_case(name))
            && !NOT_OPTIONS
                .iter()
                .any(|kept| kept.eq_ignore_ascii_case(name))
    }

    /// Whether the peer keeps the connection after this message (RFC 9112 §9.3).
    pub fn keeps_open(&self, version: Version) -> bool {
        match version {
            Version::Http11 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::framing::BodyLength;
    use crate::http1::framing::request_body;
    use crate::http1::head::HeadLimits;
    use crate::http1::head::Progress;
    use crate::http1::head::RequestHead;
    use crate::http1::host::host;

    const LIMITS: HeadLimits = HeadLimits {
        bytes: 4096,
        fields: 50,
    };

    #[test]
    fn options_named_by_the_client_leave_framing_and_host_alone() {
        let text =
            b"POST / HTTP/1.1\r\nHost: h\r\nConnection: content-length, HOST,, Authorization\r\n\
            connection: \tClose , x-hop,transfer-encoding\r\nContent-Length: 3\r\n\r\nabc";
        let mut head = RequestHead::default();
        assert_eq!(head.parse(text, LIMITS), Ok(Progress::Complete));
        let options = ConnectionOptions::of(&head.fields, text).unwrap();
        assert!(options.close && !options.keep_alive);
        for name in ["authorization", "X-Hop"] {
            assert!(options.names(name.as_bytes()), "{name}");
        }
        for name in [
            "Content-Length",
            "host",
            "Transfer-Encoding",
            "x-other",
            "close",
            "",
        ] {
            assert!(!options.names(name.as_bytes()), "{name}");
        }
        assert_eq!(request_body(&head, text), Ok(BodyLength::Known(3)));
        assert_eq!(host(&head, text), Ok(Some(&b"h"[..])));
    }

    #[test]
    fn who_keeps_a_connection_open() {
        let keeps = |version, value: &str| {
            let text = format!("GET / HTTP/1.1\r\nConnection: {value}\r\n\r\n");
            let mut head = RequestHead::default();
            assert_eq!(head.parse(text.as_bytes(), LIMITS), Ok(Progress::Complete));
            let options = ConnectionOptions::of(&head.fields, text.as_bytes()).unwrap();
            options.keeps_open(version)
        };
        assert!(keeps(Version::Http11, ""));
        assert!(keeps(Version::Http11, "x, keep-alive"));
        assert!(!keeps(Version::Http11, "x, CLOSE"));
        assert!(!keeps(Version::Http11, "close, keep-alive"));
        assert!(!keeps(Version::Http10, ""));
        assert!(keeps(Version::Http10, "Keep-Alive"));
        assert!(!keeps(Version::Http10, "close, keep-alive"));
    }

    #[test]
    fn options_are_limited() {
        let with = |count: usize| {
            let text = format!(
                "GET / HTTP/1.1\r\nConnection: {}\r\n\r\n",
                "x,close,".repeat(count)
            );
            let mut head = RequestHead::default();
            assert_eq!(head.parse(text.as_bytes(), LIMITS), Ok(Progress::Complete));
            ConnectionOptions::of(&head.fields, text.as_bytes()).map(|options| options.close)
        };
        assert_eq!(with(OPTIONS_MAX), Ok(true));
        let error = with(OPTIONS_MAX + 1).unwrap_err();
        assert_eq!((error.at, error.status()), (16, 431));
    }

    #[test]
    fn the_fixed_set_ignores_case() {
        for name in [
            "Connection",
            "KEEP-ALIVE",
            "te",
            "Trailer",
            "Proxy-Authorization",
            "upgrade",
        ] {
            assert!(is_hop_by_hop(name.as_bytes()), "{name}");
        }
        for name in [
            "Host",
            "Content-Length",
            "Authorization",
            "TE-X",
            "X-Connection",
            "",
        ] {
            assert!(!is_hop_by_hop(name.as_bytes()), "{name}");
        }
    }
}
