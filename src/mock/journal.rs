//! What the mock received: a ring of records, written while requests arrive.
//!
//! A record appears with the head and grows with the body, so that a test can see a request that
//! never ends. Costs one short lock a read.

#![expect(
    clippy::disallowed_types,
    reason = "blocking threads of a test tool share one ring; no lock is held across I/O"
)]

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// Records kept; the oldest goes first.
const RECORDS_MAX: usize = 4096;
/// Body bytes that `GET /mock/requests` shows of one record.
const BODY_SHOWN_MAX: usize = 4096;
/// Bytes kept of a tool result.
const TOOL_RESULT_BYTES_MAX: usize = 4096;

/// One request as it reached the mock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent observations, not a state"
)]
pub struct Recorded {
    /// Number of the connection, from 1, in order of arrival.
    pub connection: u64,
    /// Number of the request on its connection, from 1.
    pub index_on_connection: u64,
    /// Head byte for byte, the empty line included.
    pub head: Vec<u8>,
    /// Body without its framing, at most `record_body_max` bytes of it.
    pub body: Vec<u8>,
    /// Body bytes that arrived, without framing.
    pub body_len: u64,
    /// The body came in chunks.
    pub chunked: bool,
    /// The model answered for, on the paths of the dialects: `unnamed` if the body names none, `unread`
    /// if it is no JSON object.
    pub model: Option<String>,
    /// Text of the tool result that the body ends in, at most 4096 bytes of it.
    pub tool_result: Option<String>,
    /// Trailer lines as received.
    pub trailers: Vec<u8>,
    /// The framing came to its end.
    pub complete: bool,
    /// The request was run: it reached a model path whole, or far enough for its script.
    pub executed: bool,
    /// The mock answered `100 Continue` to an `Expect`.
    pub continue_sent: bool,
    /// The whole answer was written.
    pub answered: bool,
    /// The peer left before the answer was whole.
    pub peer_left: bool,
}

impl Recorded {
    /// Head as text, one char a byte.
    #[must_use]
    pub fn head_text(&self) -> String {
        latin1_text(&self.head)
    }

    /// First value of a header, the name in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self.head_text();
        head.split("\r\n").skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }

    fn shown(&self) -> Value {
        let small = self.body.len() as u64 == self.body_len && self.body.len() <= BODY_SHOWN_MAX;
        json!({
            "connection": self.connection,
            "index_on_connection": self.index_on_connection,
            "head": self.head_text(),
            "body_len": self.body_len,
            "body_base64": small.then(|| base64(&self.body)),
            "model": self.model,
            "tool_result": self.tool_result,
            "chunked": self.chunked,
            "trailers": latin1_text(&self.trailers),
            "complete": self.complete,
            "executed": self.executed,
            "continue_sent": self.continue_sent,
            "answered": self.answered,
            "peer_left": self.peer_left,
        })
    }
}

/// The ring, the count of executions, and who waits for a change of either.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    ring: Mutex<Ring>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Recorded>,
    /// Ticket of the oldest record in `records`; tickets rise by one.
    oldest: u64,
    executions: u64,
}

/// Names one record; stays valid after the record has left the ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(u64);

impl Journal {
    pub(crate) fn begin(&self, record: Recorded) -> Ticket {
        let mut ring = self.lock();
        if ring.records.len() == RECORDS_MAX {
            ring.records.pop_front();
            ring.oldest += 1;
        }
        ring.records.push_back(record);
        let ticket = Ticket(ring.oldest + ring.records.len() as u64 - 1);
        drop(ring);
        self.changed.notify_all();
        ticket
    }

    pub(crate) fn update(&self, ticket: Ticket, change: impl FnOnce(&mut Recorded)) {
        let mut ring = self.lock();
        let place = ticket.0.checked_sub(ring.oldest);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(record) = place.and_then(|place| ring.records.get_mut(place)) {
            change(record);
        }
        drop(ring);
        self.changed.notify_all();
    }

    pub(crate) fn executed(&self, ticket: Ticket) {
        self.lock().executions += 1;
        self.update(ticket, |record| record.executed = true);
    }

    pub(crate) fn executions(&self) -> u64 {
        self.lock().executions
    }

    pub(crate) fn records(&self) -> Vec<Recorded> {
        self.lock().records.iter().cloned().collect()
    }

    /// Forgets the records and the count; requests under way are not recorded any more.
    pub(crate) fn clear(&self) {
        let mut ring = self.lock();
        ring.oldest += ring.records.len() as u64;
        ring.records.clear();
        ring.executions = 0;
    }

    /// Waits until the condition holds, at most `limit`; true if it holds.
    pub(crate) fn wait_until(&self, limit: Duration, holds: impl Fn(&[Recorded]) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |ring| {
            !holds(ring.records.make_contiguous())
        });
        let (_ring, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        !outcome.timed_out()
    }

    /// One JSON object a line, oldest first.
    pub(crate) fn lines(&self) -> String {
        let records = self.records();
        records
            .iter()
            .map(|record| format!("{}\n", record.shown()))
            .collect()
    }

    /// A panic of another thread leaves whole records behind, so the ring stays of use.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a tool result that a record has room for.
pub(crate) fn result_kept(text: &str) -> String {
    let mut end = text.len().min(TOOL_RESULT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

pub(crate) fn latin1_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// RFC 4648 §4, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| group.get(at).map_or(0, |byte| u32::from(*byte));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_vectors_of_rfc_4648() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn kept_result_ends_at_a_character() {
        assert_eq!(result_kept("done"), "done");
        let long = "é".repeat(TOOL_RESULT_BYTES_MAX);
        assert_eq!(
            result_kept(&format!("x{long}")).len(),
            TOOL_RESULT_BYTES_MAX - 1
        );
    }

    #[test]
    fn ring_drops_the_oldest_and_late_updates_of_it() {
        let journal = Journal::default();
        let first = journal.begin(Recorded::default());
        for connection in 1..=RECORDS_MAX as u64 {
            journal.begin(Recorded {
                connection,
                ..Recorded::default()
            });
        }
        journal.update(first, |record| record.complete = true);
        let records = journal.records();
        assert_eq!(records.len(), RECORDS_MAX);
        assert_eq!(records[0].connection, 1);
        assert!(records.iter().all(|record| !record.complete));
    }

    #[test]
    fn updates_after_clear_touch_no_newer_record() {
        let journal = Journal::default();
        let old = journal.begin(Recorded::default());
        journal.clear();
        let new = journal.begin(Recorded::default());
        journal.executed(old);
        assert!(!journal.records()[0].executed);
        journal.executed(new);
        assert!(journal.records()[0].executed);
        assert!(journal.wait_until(Duration::ZERO, |records| records.len() == 1));
        assert!(!journal.wait_until(Duration::ZERO, <[Recorded]>::is_empty));
    }
}
