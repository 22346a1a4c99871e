//! A failure as a response in the shape of the client's API.

use crate::coding::READABLE;
use crate::dialect::{ErrorText, Family, error_body};
use crate::exchange::Next;
use crate::exchange::intake::OWN_ANSWER;
use crate::failure::Failure;
use crate::http1::emit;
use crate::lane::write_all;
use crate::local::Answer;
use crate::observe::{EndReason, Record, RequestId, Way};
use crate::runtime::{Either, race, sleep};
use crate::tls::Stream;

/// What a client is asked for that was not recognised (RFC 9110 §11.6.1). The name of the
/// protection space is the same everywhere, since one key opens all of it.
const CHALLENGE: &[u8] = b"Bearer realm=\"lanegate\"";

/// A refusal and how it is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejection {
    pub(super) failure: Failure,
    pub(super) family: Family,
    pub(super) id: RequestId,
    /// Whether the connection ends after it.
    pub(super) close: bool,
    /// Whether it answers HEAD, so that it has no body.
    pub(super) to_head: bool,
}

impl Rejection {
    /// Writes the response; a client that does not take it within [`OWN_ANSWER`] is given up.
    /// `unread` if bytes of the request may still come.
    /// What it says is noted in `record`.
    pub(super) async fn send(&self, to: &Stream, unread: bool, record: &mut Record) -> Next {
        record.family = Some(self.family);
        record.status = self.failure.status();
        record.error = Some(self.failure.code());
        record.end = self.failure.end_reason();
        if let Failure::ContentCoding(decline) = self.failure {
            record.way = Way::Canonical(decline);
        }
        let rendered = self.render();
        match (write_own(to, &rendered, record).await, unread, self.close) {
            (false, ..) => Next::Reset,
            (true, true, _) => Next::Linger,
            (true, false, true) => Next::Close,
            (true, false, false) => Next::KeepAlive,
        }
    }

    fn render(&self) -> Vec<u8> {
        let id = self.id.to_string();
        let failure = self.failure;
        let message = failure.message();
        let text = ErrorText {
            kind: failure.kind(self.family),
            code: failure.code(),
            message: &message,
            request_id: &id,
        };
        let body = error_body(self.family, &text);
        let mut out = Vec::with_capacity(512);
        emit::status_line(&mut out, failure.status(), reason(failure.status()));
        emit::field(&mut out, b"content-type", b"application/json");
        emit::field(
            &mut out,
            b"content-length",
            body.len().to_string().as_bytes(),
        );
        emit::field(&mut out, b"x-lanegate-request-id", id.as_bytes());
        emit::field(&mut out, b"x-lanegate-error", failure.code().as_bytes());
        if failure.status() == 401 {
            emit::field(&mut out, b"www-authenticate", CHALLENGE);
        }
        if let Some(seconds) = failure.retry_after() {
            emit::field(&mut out, b"retry-after", seconds.to_string().as_bytes());
        }
        // RFC 9110 §12.5.3: a 415 for a content coding names those that are read.
        if matches!(failure, Failure::ContentCoding(_)) {
            emit::field(&mut out, b"accept-encoding", READABLE.as_bytes());
        }
        if failure.is_deterministic() {
            emit::field(&mut out, b"x-should-retry", b"false");
        }
        // RFC 9110 §15.5.22: a 426 names the protocol that it wants.
        match (failure.status() == 426, self.close) {
            (true, close) => {
                emit::field(&mut out, b"upgrade", b"HTTP/1.1");
                let options: &[u8] = if close { b"upgrade, close" } else { b"upgrade" };
                emit::field(&mut out, b"connection", options);
            }
            (false, true) => emit::field(&mut out, b"connection", b"close"),
            (false, false) => {}
        }
        emit::end(&mut out);
        if !self.to_head {
            out.extend_from_slice(body.as_bytes());
        }
        out
    }
}

impl Answer {
    /// Writes the answer.
    pub(super) async fn send(&self, to: &Stream, record: &mut Record) -> Next {
        record.status = 200;
        record.end = EndReason::Complete;
        match (write_own(to, &self.bytes, record).await, self.close) {
            (false, _) => Next::Reset,
            (true, true) => Next::Close,
            (true, false) => Next::KeepAlive,
        }
    }
}

/// Writes a response of the gateway's own. False if it was not written whole: nothing may follow it
/// then, because it would be read as its rest.
async fn write_own(to: &Stream, bytes: &[u8], record: &mut Record) -> bool {
    let written = race(
        write_all(to, [bytes], &mut record.response_bytes),
        sleep(OWN_ANSWER),
    );
    match written.await {
        Either::First(Ok(())) => true,
        Either::First(Err(_)) => {
            record.end = EndReason::ClientClosed;
            false
        }
        Either::Second(()) => {
            record.end = EndReason::ClientWriteTimeout;
            false
        }
    }
}

/// The reason phrase of a status that the gateway itself sends (RFC 9110 §15, RFC 6585).
fn reason(status: u16) -> &'static [u8] {
    match status {
        400 => b"Bad Request",
        401 => b"Unauthorized",
        404 => b"Not Found",
        408 => b"Request Timeout",
        409 => b"Conflict",
        413 => b"Content Too Large",
        414 => b"URI Too Long",
        415 => b"Unsupported Media Type",
        417 => b"Expectation Failed",
        422 => b"Unprocessable Content",
        426 => b"Upgrade Required",
        429 => b"Too Many Requests",
        431 => b"Request Header Fields Too Large",
        500 => b"Internal Server Error",
        501 => b"Not Implemented",
        502 => b"Bad Gateway",
        503 => b"Service Unavailable",
        504 => b"Gateway Timeout",
        505 => b"HTTP Version Not Supported",
        _ => b"",
    }
}
