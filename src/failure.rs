//! What can go wrong with an exchange: whose fault, which status, which words.
//!
//! The words name what was expected and what came, never a provider, an address, a credential or a
//! byte of a body.

use std::borrow::Cow;

use crate::auth::{Exceeded, Unauthorized};
use crate::coding::{CodingError, READABLE};
use crate::dialect::Family;
use crate::http1::error::{ChunkError, FramingError, HeadError, HostError, TargetError};
use crate::json::Broken;
use crate::lane::{BodyError, Decline};
use crate::ledger::ReportError;
use crate::observe::EndReason;
use crate::peek::TopKey;
use crate::upstream::ConnectError;

/// Seconds after which a client may try again when the gateway was short of something: memory and
/// slots are given back as soon as a request ends.
const SHORTAGE_SECONDS: u64 = 1;

/// A failure that becomes a response of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request head is malformed or beyond a limit.
    Head(HeadError),
    /// The client ended its stream inside the head.
    HeadCut,
    /// The `Host` field is missing, repeated or malformed.
    Host(HostError),
    /// The request target is malformed.
    Target(TargetError),
    /// The framing fields contradict each other.
    Framing(FramingError),
    /// The path has dot segments.
    DotSegments,
    /// CONNECT, TRACE, or a method that no API here has.
    Method,
    /// No client, or more than one, is named by the credentials of the request.
    Unauthorized(Unauthorized),
    /// The client has had what its limits allow, for now.
    Exceeded(Exceeded),
    /// An expectation other than `100-continue`.
    Expectation,
    /// The body's chunked coding is broken.
    Chunk(ChunkError),
    /// The body is longer than `limits.body_bytes`.
    BodyTooLong,
    /// The body is not one JSON object.
    Json(Broken),
    /// A key that decides about the request has two readings.
    Ambiguous(TopKey),
    /// Too much white space follows the JSON object.
    TrailingSpace,
    /// The body names no model, or not by a string.
    NoModel,
    /// The model's name is longer than any that is routed.
    ModelTooLong,
    /// No provider takes this model.
    UnknownModel,
    /// The query does not ask what this path answers.
    Question,
    /// The body would have to be read, and its content coding is none that can be.
    ContentCoding(Decline),
    /// The body is not one stream in its content coding, or decodes to something beyond bounds.
    Coding(CodingError),
    /// There was no memory to hold the body, for as long as a request may wait.
    MemoryExhausted,
    /// No API answers on this path.
    NoRoute,
    /// No provider of this family is configured as its default.
    NoProvider,
    /// The head did not arrive in time.
    HeadTimeout,
    /// Nothing more came of the body, before a provider waited for it.
    BodyTimeout,
    /// Too little came of the body while a provider waited for it.
    BodyTooSlow,
    /// No connection to the provider came about.
    Connect(ConnectError),
    /// The provider ended the connection without a response.
    UpstreamClosed,
    /// What the provider sent is not an HTTP response that can be relayed.
    UpstreamMalformed,
    /// The provider sent more interim responses than are passed on.
    UpstreamInterim,
    /// The provider switched protocols, which nobody had asked for.
    UpstreamSwitched,
    /// The provider sent nothing within `timeouts.first_byte`.
    FirstByteTimeout,
    /// The provider took no more of the request for as long as it may.
    UpstreamStalled,
    /// The report of an outcome is not recorded.
    Report(ReportError),
    /// A WebSocket was asked for where only HTTP is spoken.
    WebSocket,
    /// The process ends, and the exchange has run as long as it may.
    Stopping,
    /// A defect of the gateway.
    Internal,
}

impl Failure {
    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Head(error) => error.status(),
            Self::Report(error) => error.status(),
            Self::Host(error) => error.status(),
            Self::Target(error) => error.status(),
            Self::Framing(error) => error.status(),
            Self::Chunk(error) => error.status(),
            Self::HeadCut
            | Self::DotSegments
            | Self::Json(_)
            | Self::Ambiguous(_)
            | Self::TrailingSpace
            | Self::Coding(_)
            | Self::NoModel
            | Self::Question
            | Self::ModelTooLong => 400,
            Self::Unauthorized(_) => 401,
            Self::Exceeded(_) => 429,
            Self::ContentCoding(_) => 415,
            Self::Method => 501,
            Self::Expectation => 417,
            Self::BodyTooLong => 413,
            Self::NoRoute | Self::NoProvider | Self::UnknownModel => 404,
            Self::HeadTimeout | Self::BodyTimeout | Self::BodyTooSlow => 408,
            Self::Connect(ConnectError::Exhausted | ConnectError::Busy)
            | Self::MemoryExhausted
            | Self::Stopping => 503,
            Self::Connect(
                ConnectError::TimedOut | ConnectError::Unresolved | ConnectError::HandshakeTimedOut,
            )
            | Self::FirstByteTimeout
            | Self::UpstreamStalled => 504,
            Self::Connect(
                ConnectError::Refused
                | ConnectError::CertificateExpired
                | ConnectError::CertificateName
                | ConnectError::CertificateIssuer
                | ConnectError::Tls,
            )
            | Self::UpstreamClosed
            | Self::UpstreamMalformed
            | Self::UpstreamInterim
            | Self::UpstreamSwitched => 502,
            Self::WebSocket => 426,
            Self::Internal => 500,
        }
    }

    /// The gateway's own word for it, as in the `x-lanegate-error` field.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Head(_) | Self::HeadCut => "malformed_head",
            Self::Host(_) => "malformed_host",
            Self::Target(_) => "malformed_target",
            Self::Framing(_) => "malformed_framing",
            Self::Chunk(_) => "malformed_chunk",
            Self::DotSegments => "dot_segments",
            Self::Method => "method_not_implemented",
            Self::Unauthorized(_) => "unauthorized",
            Self::Exceeded(Exceeded::Concurrency) => "concurrency_limited",
            Self::Exceeded(Exceeded::Rate { .. }) => "rate_limited",
            Self::Expectation => "expectation_failed",
            Self::BodyTooLong => "body_too_large",
            Self::Json(_) => "malformed_json",
            Self::Ambiguous(_) => "ambiguous_body",
            Self::TrailingSpace => "trailing_space",
            Self::NoModel => "no_model",
            Self::ModelTooLong => "model_too_long",
            Self::UnknownModel => "unknown_model",
            Self::Question => "malformed_query",
            Self::ContentCoding(_) => "content_coding",
            Self::Coding(CodingError::Ratio | CodingError::Window | CodingError::TooLong) => {
                "coding_beyond_bounds"
            }
            Self::Coding(_) => "malformed_coding",
            Self::MemoryExhausted => "memory_exhausted",
            Self::NoRoute => "no_route",
            Self::NoProvider => "no_provider",
            Self::HeadTimeout | Self::BodyTimeout | Self::BodyTooSlow => "request_timeout",
            Self::Connect(ConnectError::Refused) => "upstream_refused",
            Self::Connect(ConnectError::TimedOut) => "upstream_connect_timeout",
            Self::Connect(ConnectError::Unresolved) => "upstream_unresolved",
            Self::Connect(ConnectError::Exhausted) => "descriptors_exhausted",
            Self::Connect(ConnectError::Busy) => "upstream_busy",
            Self::Connect(ConnectError::CertificateExpired) => "upstream_certificate_expired",
            Self::Connect(ConnectError::CertificateName) => "upstream_certificate_name",
            Self::Connect(ConnectError::CertificateIssuer) => "upstream_certificate_unknown_issuer",
            Self::Connect(ConnectError::Tls) => "upstream_tls",
            Self::Connect(ConnectError::HandshakeTimedOut) => "upstream_handshake_timeout",
            Self::UpstreamClosed => "upstream_closed",
            Self::UpstreamMalformed => "upstream_malformed",
            Self::UpstreamInterim => "upstream_interim_flood",
            Self::UpstreamSwitched => "upstream_switched_protocol",
            Self::FirstByteTimeout => "upstream_first_byte_timeout",
            Self::UpstreamStalled => "upstream_stalled",
            Self::Report(error) => error.code(),
            Self::WebSocket => "websocket_not_spoken",
            Self::Stopping => "stopping",
            Self::Internal => "internal",
        }
    }

    /// One sentence for the person who reads the client's log.
    #[must_use]
    pub fn message(self) -> Cow<'static, str> {
        match self {
            Self::Head(error) => format!("malformed request head: {error}").into(),
            Self::HeadCut => "the stream ended inside the request head".into(),
            Self::Host(error) => format!("malformed Host: {error}").into(),
            Self::Target(error) => format!("malformed request target: {error}").into(),
            Self::Framing(error) => format!("malformed framing: {error}").into(),
            Self::Chunk(error) => format!("malformed chunked body: {error}").into(),
            Self::DotSegments => "the path has dot segments; send the resolved path".into(),
            Self::Method => "this method is not implemented".into(),
            Self::Unauthorized(Unauthorized::NoKey) => {
                "this gateway asks for a client key: send yours as `Authorization: Bearer`, \
                 `x-api-key` or `X-Lanegate-Key`"
                    .into()
            }
            Self::Unauthorized(Unauthorized::WrongKey) => {
                "the credentials of the request hold no valid client key".into()
            }
            Self::Unauthorized(Unauthorized::Ambiguous) => {
                "the credentials of the request hold more than one client key".into()
            }
            Self::Exceeded(Exceeded::Concurrency) => {
                "as many requests of this client are running as may; let one end".into()
            }
            Self::Exceeded(Exceeded::Rate { .. }) => {
                "this client has used up its requests of the minute; wait for Retry-After".into()
            }
            Self::Expectation => "the only expectation that can be met is 100-continue".into(),
            Self::BodyTooLong => "the request body is longer than limits.body_bytes".into(),
            Self::Json(broken) => format!("the request body is not valid JSON: {broken}").into(),
            Self::Ambiguous(key) => format!(
                "the request body has `{}` more than once; send each key once",
                key.as_str()
            )
            .into(),
            Self::TrailingSpace => "too much white space follows the JSON object".into(),
            Self::NoModel => "the request body needs a `model`, a string that is not blank".into(),
            Self::ModelTooLong => "the name in `model` is longer than 256 bytes".into(),
            Self::UnknownModel => "no provider of this API is configured for this model".into(),
            Self::ContentCoding(_) => format!(
                "the request body has to be read; send it plain or in one coding of: {READABLE}"
            )
            .into(),
            Self::Coding(error) => {
                format!("the compressed request body is refused: {error}").into()
            }
            Self::MemoryExhausted => {
                "the gateway is short of memory for large requests; try again".into()
            }
            Self::NoRoute => {
                "no API answers on this path; expected one /v1/ and what follows it, at the start or \
                 behind /openai or /anthropic"
                    .into()
            }
            Self::Question => "expected ?dialect=chat|messages|responses&model=M, once each".into(),
            Self::NoProvider => "no default provider is configured for this API".into(),
            Self::HeadTimeout => "the request head did not arrive in time".into(),
            Self::BodyTimeout => "the request body stopped arriving".into(),
            Self::BodyTooSlow => "the request body arrived too slowly".into(),
            Self::Connect(error) => error.to_string().into(),
            Self::UpstreamClosed => "the provider ended the connection without a response".into(),
            Self::UpstreamMalformed => "the provider's response is not valid HTTP/1.1".into(),
            Self::UpstreamInterim => "the provider sent too many interim responses".into(),
            Self::UpstreamSwitched => "the provider switched protocols unasked".into(),
            Self::FirstByteTimeout => "the provider did not answer in time".into(),
            Self::UpstreamStalled => "the provider stopped reading the request".into(),
            Self::Report(error) => error.message().into(),
            Self::WebSocket => "WebSocket is not spoken here; send the request by POST".into(),
            Self::Stopping => "the gateway ends; send the request again".into(),
            Self::Internal => "the gateway failed; the request may be sent again".into(),
        }
    }

    /// The word of the client's API for this class of error.
    #[must_use]
    pub fn kind(self, family: Family) -> &'static str {
        match (self.status(), family) {
            (401, Family::Anthropic) => "authentication_error",
            (404, _) => "not_found_error",
            (429, _) => "rate_limit_error",
            (413, Family::Anthropic) => "request_too_large",
            (502 | 504, _) => "upstream_error",
            (503, Family::Anthropic) => "overloaded_error",
            (503, Family::OpenAi) => "server_error",
            (500, _) => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// Why its exchange ended, in records.
    #[must_use]
    pub fn end_reason(self) -> EndReason {
        match self {
            Self::HeadTimeout => EndReason::HeadTimeout,
            Self::BodyTimeout => EndReason::ClientIdleTimeout,
            Self::BodyTooSlow => EndReason::RequestProgressTimeout,
            Self::MemoryExhausted => EndReason::ReservationTimeout,
            Self::Connect(error) => match error {
                ConnectError::Unresolved | ConnectError::TimedOut => EndReason::ConnectTimeout,
                ConnectError::HandshakeTimedOut => EndReason::HandshakeTimeout,
                ConnectError::Busy => EndReason::UpstreamBusy,
                ConnectError::Refused | ConnectError::Exhausted => EndReason::UpstreamUnreachable,
                ConnectError::CertificateExpired
                | ConnectError::CertificateName
                | ConnectError::CertificateIssuer
                | ConnectError::Tls => EndReason::UpstreamTls,
            },
            Self::FirstByteTimeout => EndReason::FirstByteTimeout,
            Self::UpstreamStalled => EndReason::UpstreamWriteTimeout,
            Self::UpstreamClosed => EndReason::UpstreamClosed,
            Self::UpstreamMalformed | Self::UpstreamInterim | Self::UpstreamSwitched => {
                EndReason::UpstreamMalformed
            }
            Self::Stopping => EndReason::Drained,
            Self::Internal => EndReason::Internal,
            _ => EndReason::Rejected,
        }
    }

    /// Seconds after which a client may try again, where that helps; at least one.
    #[must_use]
    pub fn retry_after(self) -> Option<u64> {
        match self {
            // Whole seconds (RFC 9110 §10.2.3), never before there is a request left.
            Self::Exceeded(Exceeded::Rate { wait }) => {
                let whole = wait.as_secs();
                Some(
                    whole
                        .saturating_add(u64::from(wait.subsec_nanos() > 0))
                        .max(1),
                )
            }
            Self::Exceeded(Exceeded::Concurrency) => Some(SHORTAGE_SECONDS),
            _ if self.status() == 503 => Some(SHORTAGE_SECONDS),
            _ => None,
        }
    }

    /// Whether the same request would fail again, so that a client should not repeat it.
    #[must_use]
    pub fn is_deterministic(self) -> bool {
        matches!(self.status(), 400..=407 | 409..=428 | 431 | 501 | 505)
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Chunk(error) => Self::Chunk(error),
            BodyError::TooLong => Self::BodyTooLong,
            BodyError::Json(broken) => Self::Json(broken),
            BodyError::Ambiguous(key) => Self::Ambiguous(key),
            BodyError::TrailingSpace => Self::TrailingSpace,
            BodyError::Coding(error) => Self::Coding(error),
        }
    }
}
