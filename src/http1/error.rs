//! What can be wrong with a message, and where.
//!
//! Every error is `Copy`, says what was expected and at which byte, and holds nothing the peer
//! wrote. `status` is the answer to a client whose request has the fault; the same fault in a
//! response is a 502 to the client, which the caller decides, because the provider made it.

use std::error::Error;
use std::fmt;

/// A request or response head that is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadError {
    /// Offset of the fault from the first byte that was given to `parse`.
    pub at: u32,
    /// What is wrong there.
    pub reason: HeadReason,
}

/// What is wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadReason {
    /// A CR that no LF follows (RFC 9112 §2.2).
    BareCr,
    /// A LF that no CR precedes. RFC 9112 §2.2 allows reading it as a line end, which two parsers
    /// in a row must then agree on; refused.
    BareLf,
    /// An empty line where the first line belongs. One is skipped before a request
    /// (RFC 9112 §2.2), a second is not.
    EmptyLine,
    /// The first line is not three parts divided by single spaces.
    Line,
    /// The method is not a token.
    Method,
    /// The method is longer than any that is known ([`super::head::METHOD_BYTES_MAX`]).
    MethodTooLong,
    /// The target is empty or holds a byte that is not visible ASCII, or `#`.
    Target,
    /// Not `HTTP/` digit `.` digit.
    Version,
    /// A well-formed version other than 1.0 and 1.1.
    VersionUnsupported,
    /// The status is not three digits in 100..=599, or no space or line end follows it.
    Status,
    /// The reason phrase holds a control character.
    Phrase,
    /// A field name that is not a token, or no colon directly after it.
    FieldName,
    /// A field line that starts with a space or a tab (obs-fold, RFC 9112 §5.2).
    FieldFold,
    /// A control character in a field value.
    FieldValue,
    /// The first line alone is longer than the limit for the head.
    LineTooLong,
    /// The head is longer than its limit.
    TooLong,
    /// More field lines than the limit.
    TooManyFields,
}

impl HeadReason {
    fn expected(self) -> &'static str {
        match self {
            Self::BareCr => "LF after CR",
            Self::BareLf => "CR before LF",
            Self::EmptyLine => "a first line, got an empty one",
            Self::Line => "three parts divided by one space each",
            Self::Method => "a method token",
            Self::MethodTooLong => "a known method, got a longer one",
            Self::Target => "a target of visible ASCII without `#`",
            Self::Version => "`HTTP/1.0` or `HTTP/1.1`",
            Self::VersionUnsupported => "version 1.0 or 1.1, got another",
            Self::Status => "three status digits in 100..=599",
            Self::Phrase => "a reason phrase without control characters",
            Self::FieldName => "a field name token and a colon",
            Self::FieldFold => "a field name, got a folded line",
            Self::FieldValue => "a field value without control characters",
            Self::LineTooLong => "a shorter first line",
            Self::TooLong => "a shorter head",
            Self::TooManyFields => "fewer field lines",
        }
    }
}

impl HeadError {
    /// Status for a request with this fault.
    pub fn status(self) -> u16 {
        match self.reason {
            HeadReason::BareCr
            | HeadReason::BareLf
            | HeadReason::EmptyLine
            | HeadReason::Line
            | HeadReason::Method
            | HeadReason::Target
            | HeadReason::Version
            | HeadReason::Status
            | HeadReason::Phrase
            | HeadReason::FieldName
            | HeadReason::FieldFold
            | HeadReason::FieldValue => 400,
            HeadReason::LineTooLong => 414,
            HeadReason::TooLong | HeadReason::TooManyFields => 431,
            HeadReason::MethodTooLong => 501,
            HeadReason::VersionUnsupported => 505,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at byte {}", self.reason.expected(), self.at)
    }
}

impl Error for HeadError {}

/// A `Host` field that does not name one authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostError {
    /// HTTP/1.1 without `Host` (RFC 9112 §3.2).
    Missing,
    /// More than one `Host` line, equal or not.
    Repeated,
    /// Empty, or not `uri-host [ ":" port ]`.
    Invalid,
}

impl HostError {
    /// Status for a request with this fault: always 400 (RFC 9112 §3.2).
    pub fn status(self) -> u16 {
        400
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "expected a Host field, got none",
            Self::Repeated => "expected one Host field, got several",
            Self::Invalid => "expected Host to be a host and an optional port",
        })
    }
}

impl Error for HostError {}

/// A request target of no form that its method may have (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// `*` with a method other than OPTIONS.
    Asterisk,
    /// CONNECT without `host:port`.
    Connect,
    /// Absolute form with a scheme other than http and https.
    Scheme,
    /// The authority of an absolute form is not `uri-host [ ":" port ]`.
    Authority,
    /// No path, no absolute URI.
    Form,
}

impl TargetError {
    /// Status for a request with this fault: always 400.
    pub fn status(self) -> u16 {
        400
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asterisk => "expected the target `*` with OPTIONS only",
            Self::Connect => "expected the target of CONNECT to be host:port",
            Self::Scheme => "expected the scheme http or https in the target",
            Self::Authority => "expected a host and an optional port in the target",
            Self::Form => "expected the target to be a path or an absolute URI",
        })
    }
}

impl Error for TargetError {}

/// A head that does not say, or says twice, how long its body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramingError {
    /// Offset in the head of the field line with the fault.
    pub at: u32,
    /// What is wrong there.
    pub reason: FramingReason,
}

/// What is wrong with the framing fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingReason {
    /// Transfer-Encoding and Content-Length in one head (RFC 9112 §6.1).
    LengthAndCoding,
    /// More than one Content-Length, equal or not, in lines or in a list.
    LengthRepeated,
    /// Content-Length is not digits only.
    Length,
    /// Content-Length is over 2^63 - 1.
    LengthTooLarge,
    /// Transfer-Encoding in HTTP/1.0 (RFC 9112 §6.1).
    CodingInHttp10,
    /// Chunked twice, not last, with parameters, or a value that is no list of codings.
    Coding,
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    CodingUnknown,
    /// More options in Connection than [`super::hop::OPTIONS_MAX`].
    TooManyOptions,
}

impl FramingError {
    /// Status for a request with this fault.
    pub fn status(self) -> u16 {
        match self.reason {
            FramingReason::LengthAndCoding
            | FramingReason::LengthRepeated
            | FramingReason::Length
            | FramingReason::CodingInHttp10
            | FramingReason::Coding => 400,
            FramingReason::LengthTooLarge => 413,
            FramingReason::TooManyOptions => 431,
            FramingReason::CodingUnknown => 501,
        }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = match self.reason {
            FramingReason::LengthAndCoding => "Content-Length or Transfer-Encoding, got both",
            FramingReason::LengthRepeated => "one Content-Length, got several",
            FramingReason::Length => "Content-Length to be digits",
            FramingReason::LengthTooLarge => "Content-Length below 2^63",
            FramingReason::CodingInHttp10 => "no Transfer-Encoding in HTTP/1.0",
            FramingReason::Coding => "Transfer-Encoding to be chunked",
            FramingReason::CodingUnknown => "Transfer-Encoding to be chunked, got another coding",
            FramingReason::TooManyOptions => "fewer options in Connection",
        };
        write!(f, "expected {expected} at byte {}", self.at)
    }
}

impl Error for FramingError {}

/// A body that is not in the chunked coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkError {
    /// Offset of the fault from the first byte of the coded body.
    pub at: u64,
    /// What is wrong there.
    pub reason: ChunkReason,
}

/// What is wrong with a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkReason {
    /// No hex digit where the size of a chunk starts, or another byte after it.
    Size,
    /// A chunk size over 2^63 - 1.
    SizeTooLarge,
    /// More leading zeros than [`super::chunked::SIZE_ZEROS_MAX`].
    SizeTooLong,
    /// An extension outside the grammar of RFC 9112 §7.1.1.
    Extension,
    /// More extension bytes in this body than [`super::chunked::EXTENSION_BYTES_MAX`].
    ExtensionsTooLong,
    /// A line that does not end with CRLF.
    LineEnd,
    /// No CRLF after as many data bytes as the size said.
    DataEnd,
    /// A trailer name that is not a token, no colon directly after it, or a folded line.
    TrailerName,
    /// A control character in a trailer value.
    TrailerValue,
    /// More trailer bytes than [`super::chunked::TRAILER_BYTES_MAX`].
    TrailersTooLong,
    /// More trailer lines than [`super::chunked::TRAILER_FIELDS_MAX`].
    TooManyTrailers,
}

impl ChunkError {
    /// Status for a request with this fault.
    pub fn status(self) -> u16 {
        match self.reason {
            ChunkReason::Size
            | ChunkReason::SizeTooLong
            | ChunkReason::Extension
            | ChunkReason::ExtensionsTooLong
            | ChunkReason::LineEnd
            | ChunkReason::DataEnd
            | ChunkReason::TrailerName
            | ChunkReason::TrailerValue => 400,
            ChunkReason::SizeTooLarge => 413,
            ChunkReason::TrailersTooLong | ChunkReason::TooManyTrailers => 431,
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = match self.reason {
            ChunkReason::Size => "a chunk size in hex digits",
            ChunkReason::SizeTooLarge => "a chunk size below 2^63",
            ChunkReason::SizeTooLong => "fewer leading zeros in a chunk size",
            ChunkReason::Extension => "a chunk extension `;name[=value]`",
            ChunkReason::ExtensionsTooLong => "fewer bytes of chunk extensions",
            ChunkReason::LineEnd => "CRLF at the end of the line",
            ChunkReason::DataEnd => "CRLF at the end of the chunk",
            ChunkReason::TrailerName => "a trailer name token and a colon",
            ChunkReason::TrailerValue => "a trailer value without control characters",
            ChunkReason::TrailersTooLong => "fewer bytes of trailers",
            ChunkReason::TooManyTrailers => "fewer trailer lines",
        };
        write!(f, "expected {expected} at byte {}", self.at)
    }
}

impl Error for ChunkError {}
