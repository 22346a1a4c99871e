//! Credentials: who calls ([`Clients`]), how much of the gateway they may have ([`Allowance`]), and
//! which credential goes to a provider.
//!
//! About the last, which is this file's:
//! Decides one thing, in one place: write the provider's own credential, relay the caller's, or
//! send none. The token shown in logs and answers ([`describe_auth`]) and the header written
//! ([`ProviderAuth::outgoing`]) are two spellings of that one decision, so they cannot disagree.
//! Refuses to show a secret: [`Secret`] has no readable form but [`Secret::expose`]. Costs nothing
//! per request: the header value is built once, when the configuration is resolved.

mod allowance;
mod authority;
mod clients;
mod digest;

use std::fmt;

use subtle::ConstantTimeEq;

pub use allowance::{Allowance, ClientLimits, Exceeded, Meter, Meters, Slot};
pub use authority::{
    AUTHORITY_KEY_BYTES_MIN, Authority, KeyTooShort, SESSION_TOKEN_BYTES, SESSION_TOKEN_VALID,
    TokenError,
};
pub use clients::{Caller, Client, Clients, PrincipalId, Spent, Unauthorized};
pub use digest::{Digest, KEY_BYTES_MAX, KEY_BYTES_MIN, KeyError};

#[cfg(test)]
mod tests;

/// A provider's credential: visible ASCII with single inner spaces allowed (`Bearer x` is one).
///
/// `Debug` shows that it exists, never what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// Why a text cannot be a credential. Names the place, not the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// Nothing but white space.
    Blank,
    /// The byte at this offset cannot stand in a header value, or is white space at an end.
    NotVisible {
        /// Offset in bytes from the start of the credential.
        at: usize,
    },
}

impl Secret {
    /// Checks that `text` can be sent as a header value as it is.
    ///
    /// # Errors
    /// Blank text, white space at either end, and every byte outside `0x20..=0x7e`.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        if text.trim().is_empty() {
            return Err(SecretError::Blank);
        }
        let last = text.len() - 1;
        let hidden = |(at, byte): (usize, u8)| match byte {
            b'!'..=b'~' => false,
            b' ' => at == 0 || at == last,
            _ => true,
        };
        match text.bytes().enumerate().position(hidden) {
            Some(at) => Err(SecretError::NotVisible { at }),
            None => Ok(Self(text.into())),
        }
    }

    /// Whether `shown` is this credential. Takes as long wherever they differ; only the length shows.
    #[must_use]
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }

    /// The credential itself. The name is long on purpose: every use should be looked at.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(set)")
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("expected a credential, got nothing but white space"),
            Self::NotVisible { at } => write!(
                f,
                "expected visible ASCII, got another byte (or white space at an end) at offset {at}"
            ),
        }
    }
}

impl std::error::Error for SecretError {}

/// How a credential is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `Authorization: Bearer SECRET` (RFC 6750 §2.1); what the OpenAI API takes.
    Bearer,
    /// `x-api-key: SECRET`; what the Anthropic API takes.
    ApiKey,
}

impl Scheme {
    /// The header that carries the credential unless the provider names another.
    #[must_use]
    pub const fn header(self) -> &'static str {
        match self {
            Self::Bearer => "Authorization",
            Self::ApiKey => "x-api-key",
        }
    }

    fn value(self, secret: &Secret) -> Box<[u8]> {
        const PREFIX: &[u8] = b"bearer ";
        let bytes = secret.expose().as_bytes();
        let prefixed = bytes
            .get(..PREFIX.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(PREFIX));
        match self {
            Self::Bearer if !prefixed => [b"Bearer ", bytes].concat().into(),
            Self::Bearer | Self::ApiKey => bytes.into(),
        }
    }
}

/// Whose credential a provider is meant to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The gateway's own; without one nothing is sent, never the caller's instead.
    Managed,
    /// The caller's, untouched, even when the gateway has one of its own.
    Passthrough,
    /// None at all.
    None,
    /// Not written down: the gateway's own if it has one; else none on a route that changes the
    /// model (an imposter) and the caller's on one that does not.
    Unset,
}

/// The name of the header that carries a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderName(Box<str>);

/// Why a header may not carry a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderNameError {
    /// Not a token of RFC 9110 §5.6.2.
    NotToken,
    /// The gateway writes, recomputes or removes this header itself.
    Reserved,
}

impl HeaderName {
    /// Checks that `name` is a token and free for a credential.
    ///
    /// # Errors
    /// See [`HeaderNameError`].
    pub fn new(name: &str) -> Result<Self, HeaderNameError> {
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            Err(HeaderNameError::NotToken)
        } else if is_reserved(name) {
            Err(HeaderNameError::Reserved)
        } else {
            Ok(Self(name.into()))
        }
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotToken => "expected a header name (letters, digits and !#$%&'*+-.^_`|~)",
            Self::Reserved => "this header is written or removed by the gateway itself",
        })
    }
}

impl std::error::Error for HeaderNameError {}

/// RFC 9110 §5.6.2 `tchar`.
const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Framing, hop-by-hop fields (RFC 9110 §7.6.1) and the fields that are removed on every route.
fn is_reserved(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "connection",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    const PREFIXES: &[&str] = &["content-", "x-lanegate-", "x-router-"];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What is configured about the credential of one provider.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderAuth {
    mode: Mode,
    secret: Option<Secret>,
    scheme: Scheme,
    header: Option<HeaderName>,
    /// The header value that `secret` and `scheme` give; empty without a secret.
    value: Box<[u8]>,
}

impl ProviderAuth {
    /// `header` replaces the one of the scheme.
    #[must_use]
    pub fn new(
        mode: Mode,
        secret: Option<Secret>,
        scheme: Scheme,
        header: Option<HeaderName>,
    ) -> Self {
        let value = secret
            .as_ref()
            .map_or_else(Box::default, |secret| scheme.value(secret));
        Self {
            mode,
            secret,
            scheme,
            header,
            value,
        }
    }

    /// A provider that gets no credential from anyone.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Mode::None, None, Scheme::Bearer, None)
    }

    /// The mode as configured.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The scheme as configured, or the default of the provider's dialect.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The header that replaces the one of the scheme, if any.
    #[must_use]
    pub const fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// Whether the gateway holds a credential for this provider.
    #[must_use]
    pub const fn has_secret(&self) -> bool {
        self.secret.is_some()
    }

    /// What to do about the credential of one request. `imposter`: the route changes the model.
    #[must_use]
    pub fn outgoing(&self, imposter: bool) -> Outgoing<'_> {
        match self.decide(imposter) {
            AuthToken::Bearer | AuthToken::ApiKey => Outgoing::Write {
                name: self
                    .header
                    .as_ref()
                    .map_or_else(|| self.scheme.header(), HeaderName::as_str),
                value: &self.value,
            },
            AuthToken::None => Outgoing::Nothing {
                header: self.header.as_ref().map(HeaderName::as_str),
            },
            AuthToken::CallerPassthrough => Outgoing::RelayCaller,
        }
    }

    /// The single decision. A managed provider without a secret fails closed.
    const fn decide(&self, imposter: bool) -> AuthToken {
        match (self.mode, &self.secret) {
            (Mode::Managed | Mode::Unset, Some(_)) => match self.scheme {
                Scheme::Bearer => AuthToken::Bearer,
                Scheme::ApiKey => AuthToken::ApiKey,
            },
            (Mode::Managed, None) | (Mode::None, _) => AuthToken::None,
            (Mode::Unset, None) if imposter => AuthToken::None,
            (Mode::Unset, None) | (Mode::Passthrough, _) => AuthToken::CallerPassthrough,
        }
    }
}

/// Written by hand because `value` contains the secret.
impl fmt::Debug for ProviderAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderAuth")
            .field("mode", &self.mode)
            .field("secret", &self.secret)
            .field("scheme", &self.scheme)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// The name of the decision, as logs, `--who?` answers and `lanegate check` show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthToken {
    /// The gateway's credential as a bearer token.
    Bearer,
    /// The gateway's credential as an API key.
    ApiKey,
    /// No credential.
    None,
    /// What the caller sent, which may be nothing.
    CallerPassthrough,
}

impl AuthToken {
    /// The exact spelling that is shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bearer => "Bearer",
            Self::ApiKey => "ApiKey",
            Self::None => "none",
            Self::CallerPassthrough => "caller-passthrough",
        }
    }
}

impl fmt::Display for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names what [`ProviderAuth::outgoing`] does for the same arguments.
#[must_use]
pub const fn describe_auth(auth: &ProviderAuth, imposter: bool) -> AuthToken {
    auth.decide(imposter)
}

/// What happens to the credential of one request on its way to the provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outgoing<'a> {
    /// Write this header, after removing what [`Outgoing::removes`] names.
    Write {
        /// Header name, as configured or as the scheme has it.
        name: &'a str,
        /// Complete header value. A secret: never logged.
        value: &'a [u8],
    },
    /// Leave the caller's credential headers as they are.
    RelayCaller,
    /// Send no credential.
    Nothing {
        /// The field in which this provider looks for one, where it is its own.
        header: Option<&'a str>,
    },
}

impl Outgoing<'_> {
    /// Whether the caller's header `field` must not reach the provider.
    ///
    /// Compared without regard to case (RFC 9110 §5.1). `chatgpt-account-id` belongs to the
    /// caller's subscription login and contradicts a credential of the gateway.
    #[must_use]
    pub fn removes(&self, field: &[u8]) -> bool {
        let is = |name: &str| field.eq_ignore_ascii_case(name.as_bytes());
        let credential = is("authorization") || is("x-api-key");
        match self {
            Self::Write { name, .. } => credential || is("chatgpt-account-id") || is(name),
            Self::Nothing { header } => credential || header.is_some_and(is),
            Self::RelayCaller => false,
        }
    }
}

/// Written by hand because `value` contains the secret.
impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { name, .. } => write!(f, "Write({name})"),
            Self::RelayCaller => f.write_str("RelayCaller"),
            Self::Nothing { .. } => f.write_str("Nothing"),
        }
    }
}
