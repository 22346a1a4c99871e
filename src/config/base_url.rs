//! The root of a provider: `https://host[:port][/prefix]`, or `http`.
//!
//! Refuses everything that two readers could understand differently: userinfo, query, fragment,
//! dot segments, odd spellings of an IPv4 address. No message repeats the text, because a
//! credential may stand in it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where a provider listens and what goes before every path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Lower-case host name, or an IP address without brackets: what is resolved and connected to.
    pub host: String,
    /// The port to connect to, written or by scheme.
    pub port: u16,
    /// Empty, or a path that starts with `/` and does not end with one.
    pub prefix: String,
    /// Value of the `Host` field: brackets around IPv6, no default port (RFC 9110 §7.2, §4.2.3).
    pub authority: String,
}

/// Why a text is not a usable base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseUrlError {
    /// Neither `https://` nor `http://` in front.
    NotHttp,
    /// `user@` or `user:password@`.
    UserInfo,
    /// `?...`.
    Query,
    /// `#...`.
    Fragment,
    /// Neither a DNS name in ASCII nor an IP address.
    Host,
    /// Not a number from 1 to 65535.
    Port,
    /// A byte that no path has, a broken `%XX`, or an empty segment.
    Prefix,
    /// `.` or `..` as a segment, raw or encoded.
    DotSegment,
}

impl fmt::Display for BaseUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotHttp => {
                "expected an absolute URL such as https://api.openai.com or \
                 http://127.0.0.1:8000/v1"
            }
            Self::UserInfo => {
                "a URL with user or password is refused; use secret_env or secret_file"
            }
            Self::Query => "a query (?) is refused in a base URL",
            Self::Fragment => "a fragment (#) is refused in a base URL",
            Self::Host => {
                "expected a host: a DNS name in ASCII, an IPv4 address, or IPv6 in brackets"
            }
            Self::Port => "expected a port from 1 to 65535",
            Self::Prefix => {
                "the path has an empty segment, a byte that must be percent-encoded, or a broken %XX"
            }
            Self::DotSegment => "the path has a . or .. segment",
        })
    }
}

impl std::error::Error for BaseUrlError {}

impl BaseUrl {
    /// Reads `https://host[:port][/prefix]` or the same with `http`.
    ///
    /// # Errors
    /// See [`BaseUrlError`].
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(BaseUrlError::NotHttp)?;
        let tls = scheme.eq_ignore_ascii_case("https");
        if !tls && !scheme.eq_ignore_ascii_case("http") {
            return Err(BaseUrlError::NotHttp);
        }
        if rest.contains('#') {
            return Err(BaseUrlError::Fragment);
        }
        if rest.contains('?') {
            return Err(BaseUrlError::Query);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(BaseUrlError::UserInfo);
        }
        let (host, port) = split_authority(authority)?;
        let port = port.unwrap_or_else(|| default_port(tls));
        let prefix = check_prefix(path)?.to_owned();
        Ok(Self::assemble(tls, host, port, prefix))
    }

    /// The root of a plaintext server at an address.
    #[must_use]
    pub fn of(address: SocketAddr) -> Self {
        let host = address.ip().to_string();
        Self::assemble(false, host, address.port(), String::new())
    }

    /// Whether the host is this machine by its spelling; nothing is resolved.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let by_name = self.host == "localhost" || self.host.ends_with(".localhost");
        by_name
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    fn assemble(tls: bool, host: String, port: u16, prefix: String) -> Self {
        let (open, close) = if host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        let mut authority = format!("{open}{host}{close}");
        if port != default_port(tls) {
            authority.push_str(&format!(":{port}"));
        }
        Self {
            tls,
            host,
            port,
            prefix,
            authority,
        }
    }
}

/// The URL as it is understood.
impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

/// RFC 9110 §4.2.1, §4.2.2.
fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// Host, and the port if one is written.
fn split_authority(authority: &str) -> Result<(String, Option<u16>), BaseUrlError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (inner, port) = rest.split_once(']').ok_or(BaseUrlError::Host)?;
        let ip: Ipv6Addr = inner.parse().map_err(|_| BaseUrlError::Host)?;
        (ip.to_string(), port)
    } else {
        let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        (check_host(name)?, port)
    };
    Ok((host, check_port(port)?))
}

/// `port` is empty or starts with what follows the host.
fn check_port(port: &str) -> Result<Option<u16>, BaseUrlError> {
    if port.is_empty() {
        return Ok(None);
    }
    let digits = port.strip_prefix(':').ok_or(BaseUrlError::Host)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BaseUrlError::Port);
    }
    digits
        .parse()
        .ok()
        .filter(|port| *port != 0)
        .map(Some)
        .ok_or(BaseUrlError::Port)
}

/// RFC 1123 §2.1 names, plus `_`, which container networks use.
fn check_host(name: &str) -> Result<String, BaseUrlError> {
    const NAME_BYTES_MAX: usize = 253;
    const LABEL_BYTES_MAX: usize = 63;
    let byte_fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let label_fits =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(byte_fits);
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(label_fits) {
        return Err(BaseUrlError::Host);
    }
    // Resolvers read `127.1`, `0x7f.1` and `2130706433` as addresses; only dotted quads are meant.
    let last = name
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    if numeric && name.parse::<Ipv4Addr>().is_err() {
        return Err(BaseUrlError::Host);
    }
    Ok(name.to_ascii_lowercase())
}

/// RFC 3986 §3.3 segments; one slash at the end is dropped.
fn check_prefix(path: &str) -> Result<&str, BaseUrlError> {
    let prefix = path.strip_suffix('/').unwrap_or(path);
    for segment in prefix.split('/').skip(1) {
        let dots = segment.to_ascii_lowercase().replace("%2e", ".");
        if dots == "." || dots == ".." {
            return Err(BaseUrlError::DotSegment);
        }
        if segment.is_empty() || !is_segment(segment.as_bytes()) {
            return Err(BaseUrlError::Prefix);
        }
    }
    Ok(prefix)
}

fn is_segment(mut bytes: &[u8]) -> bool {
    loop {
        bytes = match bytes {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [byte, rest @ ..]
                if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(byte) =>
            {
                rest
            }
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_apart_and_the_authority_is_normal() {
        for (text, host, port, prefix, authority) in [
            ("http://api.example", "api.example", 80, "", "api.example"),
            (
                "HTTP://API.Example:80/",
                "api.example",
                80,
                "",
                "api.example",
            ),
            ("http://h:8000/v1/", "h", 8000, "/v1", "h:8000"),
            ("http://h/a/b:c@d%20e", "h", 80, "/a/b:c@d%20e", "h"),
            ("http://127.0.0.1:1", "127.0.0.1", 1, "", "127.0.0.1:1"),
            ("http://[::1]:8080/x", "::1", 8080, "/x", "[::1]:8080"),
            ("http://[0:0:0:0:0:0:0:1]", "::1", 80, "", "[::1]"),
            ("http://my_host-2", "my_host-2", 80, "", "my_host-2"),
            (
                "https://api.example/v1",
                "api.example",
                443,
                "/v1",
                "api.example",
            ),
            ("HTTPS://h:443", "h", 443, "", "h"),
            ("https://h:80", "h", 80, "", "h:80"),
            ("http://h:443", "h", 443, "", "h:443"),
            ("https://[::1]", "::1", 443, "", "[::1]"),
        ] {
            let url = BaseUrl::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
            assert_eq!(
                (url.prefix.as_str(), url.authority.as_str()),
                (prefix, authority),
                "{text}"
            );
            assert_eq!(url.tls, text.to_lowercase().starts_with("https:"), "{text}");
            assert_eq!(BaseUrl::parse(&url.to_string()).unwrap(), url, "{text}");
        }
    }

    #[test]
    fn ambiguous_texts_are_refused() {
        use BaseUrlError as E;
        for (text, error) in [
            ("", E::NotHttp),
            ("api.example", E::NotHttp),
            ("ftp://h", E::NotHttp),
            ("/v1", E::NotHttp),
            ("httpss://api.example", E::NotHttp),
            ("https://u:p@h", E::UserInfo),
            ("https://", E::Host),
            ("http://u:p@h", E::UserInfo),
            ("http://h?k=v", E::Query),
            ("http://h/#x", E::Fragment),
            ("http://", E::Host),
            ("http:///v1", E::Host),
            ("http://a..b", E::Host),
            ("http://h h", E::Host),
            ("http://hé", E::Host),
            ("http://h\\x", E::Host),
            ("http://127.1", E::Host),
            ("http://0x7f.1", E::Host),
            ("http://2130706433", E::Host),
            ("http://0x7f000001", E::Host),
            ("http://[::1", E::Host),
            ("http://[::1]x", E::Host),
            ("http://[fe80::1%25eth0]", E::Host),
            ("http://h:", E::Port),
            ("http://h:0", E::Port),
            ("http://h:+1", E::Port),
            ("http://h:65536", E::Port),
            ("http://h/a//b", E::Prefix),
            ("http://h//", E::Prefix),
            ("http://h/a b", E::Prefix),
            ("http://h/%2", E::Prefix),
            ("http://h/a\r\nx", E::Prefix),
            ("http://h/a/../b", E::DotSegment),
            ("http://h/%2e%2E", E::DotSegment),
            ("http://h/.%2e/", E::DotSegment),
        ] {
            assert_eq!(BaseUrl::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn loopback_is_told_by_spelling() {
        for text in [
            "http://localhost",
            "http://127.9.9.9",
            "http://[::1]",
            "http://a.localhost:1",
        ] {
            assert!(BaseUrl::parse(text).unwrap().is_loopback(), "{text}");
        }
        for text in [
            "http://localhost.example",
            "http://10.0.0.1",
            "http://[::2]",
        ] {
            assert!(!BaseUrl::parse(text).unwrap().is_loopback(), "{text}");
        }
    }
}
