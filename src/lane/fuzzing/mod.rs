//! A whole request body in memory: cut anywhere, decoded, judged, patched and framed again.

mod coded;

pub use coded::coded_identity;

use crate::buf::{Input, Pool};
use crate::dialect::Dialect;
use crate::http1::chunked::Decoder;
use crate::http1::framing::BodyLength;
use crate::json::{Patch, Patches};
use crate::lane::body::Body;
use crate::lane::flight::{Flight, whole};
use crate::lane::inspect::{Inspection, Rigour};
use crate::peek::{Demand, Peek};

/// Bytes of white space that may follow the root.
const TRAILING_MAX: u64 = 1 << 16;

/// Wire identity (docs/ARCHITECTURE.md): what a provider decodes is what the client sent, however
/// the bytes arrived, or the model replaced, or a session put in before everything else, and nothing
/// else; and nothing from the byte that closes the
/// root on is released before the body was accepted.
///
/// The first byte chooses framing and patches, the second the size of the reads, the rest is the body.
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
    let relayed = relay(&sent, length, step, (choice & 2 != 0, choice & 4 != 0));
    let mut facts = Peek::new(Dialect::Chat, Demand::MODEL);
    let valid = facts.push(body).is_ok()
        && facts.finish().is_ok()
        && facts.ambiguous().is_empty()
        && facts.trailing() <= TRAILING_MAX;
    let closed_at = facts.closed_at().and_then(|at| usize::try_from(at).ok());
    match relayed {
        Relayed::Accepted { out, patches } => {
            assert!(valid, "a body was accepted that is no single JSON object");
            let decoded = if chunked { from_chunks(&out) } else { out };
            let expected = crate::json::splice(body, patches.as_slice()).unwrap_or_default();
            assert!(decoded == expected, "the provider got other bytes");
        }
        Relayed::Refused { out, patches } => {
            assert!(!valid, "a good body was refused");
            let decoded = if chunked { from_chunks(&out) } else { out };
            let open = body
                .get(..closed_at.unwrap_or(body.len()))
                .unwrap_or_default();
            let releasable = crate::json::splice(open, patches.as_slice()).unwrap_or_default();
            assert!(
                releasable.starts_with(&decoded),
                "the provider got other bytes, or the closing one"
            );
        }
    }
}

enum Relayed {
    Accepted { out: Vec<u8>, patches: Patches },
    Refused { out: Vec<u8>, patches: Patches },
}

/// The patches of a body whose facts are known so far, once those that were asked for are.
fn patches_of(facts: Option<&Peek>, (model, session): (bool, bool)) -> Option<Patches> {
    let mut patches = Patches::default();
    let put = |start, end, text: &str| Patch {
        start,
        end,
        replacement: text.as_bytes().into(),
    };
    if session {
        let at = facts?.opened_at()?.saturating_add(1);
        patches.add(put(at, at, r#""session_id":"s","#)).ok()?;
    }
    if model {
        let span = facts?.model().found()?.span;
        patches
            .add(put(span.start, span.end, r#""another""#))
            .ok()?;
    }
    Some(patches)
}

fn relay(sent: &[u8], length: BodyLength, step: usize, patching: (bool, bool)) -> Relayed {
    let mut input = Input::new(Pool::new(1 << 20));
    let inspection = Inspection::new(Dialect::Chat, Demand::MODEL, Rigour::Required, TRAILING_MAX);
    let mut body = Body::new(length, u64::MAX, false).inspected(Some(inspection));
    let mut out = Vec::new();
    let mut patches = Patches::default();
    let mut opened = false;
    let mut reads = sent.chunks(step);
    loop {
        if body.absorb(&mut input).is_err() {
            return Relayed::Refused { out, patches };
        }
        let complete = body.is_complete();
        if !opened {
            // Patches are sent in the first flight, once the spans they replace are known.
            let known = patches_of(body.facts(), patching);
            opened = known.is_some() || complete;
            patches = known.unwrap_or_default();
        }
        let count = body.releasable();
        if opened && (count > 0 || complete) {
            let data = input.bytes().get(..count).unwrap_or_default();
            let first = out.is_empty();
            let flight = Flight {
                head: &[],
                data: if first {
                    patches.around(data)
                } else {
                    whole(data)
                },
                last: complete,
                chunked: length == BodyLength::Chunked,
                ending: &[],
            };
            flight.append_to(&mut out);
            body.hand_on(&mut input, count);
        }
        if complete {
            return Relayed::Accepted { out, patches };
        }
        let Some(read) = reads.next() else {
            return Relayed::Refused { out, patches };
        };
        let Some(room) = input.room(1 << 20) else {
            return Relayed::Refused { out, patches };
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
            for choice in 0..8 {
                for step in [1, 2, 3, 7, 255] {
                    wire_identity(&[&[choice, step], body].concat());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn generated_bodies(choice in 0_u8..8, step: u8, text in "[a-z\\\\\"{}]{0,40}", tail in "[ \n}x]{0,5}") {
            let text = serde_json::to_string(&text).unwrap();
            let body = format!(r#"{{"messages":[{text}],"model":{text}}}{tail}"#);
            wire_identity(&[&[choice, step], body.as_bytes()].concat());
        }
    }
}
