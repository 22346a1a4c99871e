//! One prepared request of a target, sent again and again.

use crate::bench::plan::{Plan, Target};
use crate::dialect::Dialect;

/// Head and body, both whole; the body is that of all targets.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    pub(super) head: Vec<u8>,
    pub(super) body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(super) fn new(plan: &Plan, target: &Target, body: &'a [u8]) -> Self {
        let (path, version) = match plan.dialect {
            Dialect::Chat => ("/v1/chat/completions", ""),
            Dialect::Messages => ("/v1/messages", "anthropic-version: 2023-06-01\r\n"),
            Dialect::Responses => ("/v1/responses", ""),
        };
        let accept = if plan.stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        let mut head = format!(
            "POST {}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: {accept}\r\nUser-Agent: lanegate-bench\r\n{version}Content-Length: {}\r\n",
            target.url.prefix,
            target.url.authority,
            body.len(),
        )
        .into_bytes();
        head.extend_from_slice(&plan.fields);
        head.extend_from_slice(b"\r\n");
        Self { head, body }
    }

    pub(super) fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// What is left to send after `sent` bytes, in two parts.
    pub(super) fn rest(&self, sent: usize) -> [&[u8]; 2] {
        let head = self.head.get(sent..).unwrap_or_default();
        let body_sent = sent.saturating_sub(self.head.len());
        [head, self.body.get(body_sent..).unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_the_same_bytes_at_every_cut() {
        let request = Request {
            head: b"HEAD".to_vec(),
            body: b"body",
        };
        for sent in 0..=request.bytes() {
            assert_eq!(request.rest(sent).concat(), b"HEADbody"[sent..], "{sent}");
        }
    }
}
