//! Answers that need no provider.

use crate::http1::emit;

/// A complete response of the gateway's own, ready to be written.
#[derive(Debug)]
pub struct Answer {
    /// Head and body.
    pub bytes: Vec<u8>,
    /// Whether the connection closes after it.
    pub close: bool,
}

impl Answer {
    /// The answer to `HEAD /`, with which an agent asks whether anybody is there (Claude Code does
    /// before its first request).
    #[must_use]
    pub fn alive(request_id: &str, close: bool) -> Self {
        let mut bytes = Vec::with_capacity(128);
        emit::status_line(&mut bytes, 200, b"OK");
        emit::field(&mut bytes, b"content-length", b"0");
        emit::field(&mut bytes, b"x-lanegate-request-id", request_id.as_bytes());
        if close {
            emit::field(&mut bytes, b"connection", b"close");
        }
        emit::end(&mut bytes);
        Self { bytes, close }
    }
}
