//! A whole request body in memory: cut anywhere, decoded, judged, patched and framed again.

mod coded;

pub use coded::coded_identity;

use crate::buf::{Input, Pool};
use crate::dialect::Dialect;
use crate::http1::chunked::Decoder;
use crate::http1::framing::BodyLength;
use crate::json::Patch;
use crate::lane::body::Body;
use crate::lane::flight::Flight;
use crate::lane::inspect::{Inspection, Rigour};
use crate::lane::request::patched;
use crate::peek::{Demand, Peek};

/// Bytes of white space that may follow the root.
const TRAILING_MAX: u64 = 1 << 16;

/// Wire identity (docs/ARCHITECTURE.md): what a provider decodes is what the client sent, however
/// the bytes arrived, or the model replaced and nothing else; and nothing from the byte that closes the
/// root on is released before the body was accepted.
///
/// The first byte chooses framing and patch, the second the size of the reads, the rest is the body.
pub fn wire_identity(data: &[u8]) {
    let [choice, step, body @ ..] = data else {
        return;
    };
    let chunked = choice & 1 != 0;
    let step = usize::from(*step).max(1);
    let sent = if chunked {
        in_chunks(body, step)
    } else {
        body.to_vec()
    };
    let length = if chunked {
        BodyLength::Chunked
    } else {
        BodyLength::Known(body.len() as u64)
    };
    let relayed = relay(&sent, length, step, choice & 2 != 0);
    let mut facts = Peek::new(Dialect::Chat, Demand::MODEL);
    let valid = facts.push(body).is_ok()
        && facts.finish().is_ok()
        && facts.ambiguous().is_empty()
        && facts.trailing() <= TRAILING_MAX;
    let closed_at = facts.closed_at().and_then(|at| usize::try_from(at).ok());
    match relayed {
        Relayed::Accepted { out, patch } => {
            assert!(valid, "a body was accepted that is no single JSON object");
            let decoded = if chunked { from_chunks(&out) } else { out };
            let expected = match patch {
                Some(patch) => crate::json::splice(body, &[patch]).unwrap_or_default(),
                None => body.to_vec(),
            };
            assert!(decoded == expected, "the provider got other bytes");
        }
        Relayed::Refused { out, patch } => {
            assert!(!valid, "a good body was refused");
            let decoded = if chunked { from_chunks(&out) } else { out };
            let open = body
                .get(..closed_at.unwrap_or(body.len()))
                .unwrap_or_default();
            let releasable = match patch {
                Some(patch) => crate::json::splice(open, &[patch]).unwrap_or_default(),
                None => open.to_vec(),
            };
            assert!(
                releasable.starts_with(&decoded),
                "the provider got other bytes, or the closing one"
            );
        }
    }
}

enum Relayed {
    Accepted { out: Vec<u8>, patch: Option<Patch> },
    Refused { out: Vec<u8>, patch: Option<Patch> },
}

fn relay(sent: &[u8], length: BodyLength, step: usize, patching: bool) -> Relayed {
    let mut input = Input::new(Pool::new(1 << 20));
    let inspection = Inspection::new(Dialect::Chat, Demand::MODEL, Rigour::Required, TRAILING_MAX);
    let mut body = Body::new(length, u64::MAX, false).inspected(Some(inspection));
    let mut out = Vec::new();
    let mut patch = None;
    let mut opened = !patching;
    let mut reads = sent.chunks(step);
    loop {
        if body.absorb(&mut input).is_err() {
            return Relayed::Refused { out, patch };
        }
        let complete = body.is_complete();
        if !opened {
            // A patch is sent in the first flight, once the span it replaces is known.
            let model = body
                .facts()
                .and_then(|facts| facts.model().found().map(|m| m.span));
            patch = model.map(|span| Patch {
                start: span.start,
                end: span.end,
                replacement: b"\"another\"".as_slice().into(),
            });
            opened = patch.is_some() || complete;
        }
        let count = body.releasable();
        if opened && (count > 0 || complete) {
            let data = input.bytes().get(..count).unwrap_or_default();
            let first = out.is_empty();
            let flight = Flight {
                head: &[],
                data: patched(data, patch.as_ref().filter(|_| first)),
                last: complete,
                chunked: length == BodyLength::Chunked,
                ending: &[],
            };
            flight.append_to(&mut out);
            body.hand_on(&mut input, count);
        }
        if complete {
            return Relayed::Accepted { out, patch };
        }
        let Some(read) = reads.next() else {
            return Relayed::Refused { out, patch };
        };
        let Some(room) = input.room(1 << 20) else {
            return Relayed::Refused { out, patch };
        };
        if let Some(room) = room.get_mut(..read.len()) {
            room.copy_from_slice(read);
            input.filled(read.len());
        }
    }
}

fn in_chunks(body: &[u8], step: usize) -> Vec<u8> {
    let mut coded = Vec::new();
    for chunk in body.chunks(step) {
        coded.extend_from_slice(format!("{:x};x=y\r\n", chunk.len()).as_bytes());
        coded.extend_from_slice(chunk);
        coded.extend_from_slice(b"\r\n");
    }
    coded.extend_from_slice(b"0\r\nx-sum: 1\r\n\r\n");
    coded
}

/// What a chunked body that may break off decodes to.
fn from_chunks(coded: &[u8]) -> Vec<u8> {
    let mut decoded = coded.to_vec();
    let produced = Decoder::new()
        .decode(&mut decoded)
        .map_or(0, |decoded| decoded.produced);
    decoded.truncate(produced);
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bodies_of_every_kind() {
        let bodies: [&[u8]; 8] = [
            br#"{"model":"m","messages":[]}"#,
            br#"{"messages":[{"role":"user","content":"}"}],"model":"mo\u0064el"}   "#,
            br#"{"model":"m"}x"#,
            br#"{"model":"m","model":"n"}"#,
            br#"{"messages":[]}"#,
            br#"{"model":"m""#,
            b"",
            b"[]",
        ];
        for body in bodies {
            for choice in 0..4 {
                for step in [1, 2, 3, 7, 255] {
                    wire_identity(&[&[choice, step], body].concat());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn generated_bodies(choice in 0_u8..4, step: u8, text in "[a-z\\\\\"{}]{0,40}", tail in "[ \n}x]{0,5}") {
            let text = serde_json::to_string(&text).unwrap();
            let body = format!(r#"{{"messages":[{text}],"model":{text}}}{tail}"#);
            wire_identity(&[&[choice, step], body.as_bytes()].concat());
        }
    }
}
