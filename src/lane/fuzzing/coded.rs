//! A compressed request body in memory: cut anywhere, judged by what it decodes to, sent as it came.

use crate::buf::{Budget, Input, Pool};
use crate::coding::Coding;
use crate::coding::fuzzing::{chosen, decode, decode_open};
use crate::dialect::Dialect;
use crate::http1::framing::BodyLength;
use crate::lane::body::Body;
use crate::lane::fuzzing::{TRAILING_MAX, in_chunks};
use crate::lane::inspect::{Inspection, Rigour};
use crate::peek::{Demand, Peek};

/// Bytes that a body may decode to here.
const LIMIT: u64 = 1 << 20;

/// What a provider gets is what the client sent; a body is accepted if it decodes to one JSON object
/// however it was cut; and what is released before it was accepted does not decode to the byte that
/// closes the root.
///
/// The first byte chooses coding and framing, the second the size of the reads, the rest is the body.
pub fn coded_identity(data: &[u8]) {
    let [choice, step, body @ ..] = data else {
        return;
    };
    let coding = chosen(*choice);
    let step = usize::from(*step).max(1);
    let (sent, length) = if choice & 4 != 0 {
        (in_chunks(body, step), BodyLength::Chunked)
    } else {
        (body.to_vec(), BodyLength::Known(body.len() as u64))
    };
    let relayed = relay(&sent, coding, length, step);
    let decoded = decode(coding, body, body.len().max(1), 1 << 16, LIMIT);
    let valid = decoded.is_ok_and(|decoded| is_one_object(&decoded));
    assert!(valid == relayed.accepted, "a body was judged otherwise");
    assert!(body.starts_with(&relayed.early), "other bytes were sent");
    assert!(!relayed.accepted || relayed.all == body, "bytes were lost");
    let mut early = Vec::new();
    // Other rooms and pieces than those of the relay.
    drop(decode_open(
        coding,
        &relayed.early,
        (1, 1 << 12),
        u64::MAX,
        &mut early,
    ));
    let mut peek = Peek::new(Dialect::Chat, Demand::MODEL);
    let _broken = peek.push(&early);
    assert!(peek.closed_at().is_none(), "the closing byte was released");
}

fn is_one_object(decoded: &[u8]) -> bool {
    let mut facts = Peek::new(Dialect::Chat, Demand::MODEL);
    facts.push(decoded).is_ok()
        && facts.finish().is_ok()
        && facts.ambiguous().is_empty()
        && facts.trailing() <= TRAILING_MAX
}

struct Relayed {
    accepted: bool,
    /// What was released before the body was accepted.
    early: Vec<u8>,
    all: Vec<u8>,
}

fn relay(sent: &[u8], coding: Coding, length: BodyLength, step: usize) -> Relayed {
    let mut input = Input::new(Pool::new(1 << 20));
    let inspection = Inspection::new(Dialect::Chat, Demand::MODEL, Rigour::Required, TRAILING_MAX);
    let mut body = Body::new(length, u64::MAX, false)
        .inspected(Some(inspection))
        .coded(Some(coding), LIMIT);
    let budget = Budget::new(1 << 30);
    let (mut early, mut all) = (Vec::new(), Vec::new());
    let mut reads = sent.chunks(step);
    loop {
        let absorbed = body.absorb(&mut input);
        let accepted = absorbed.is_ok() && body.is_complete();
        if absorbed.is_ok() {
            let count = body.releasable();
            let out = input.bytes().get(..count).unwrap_or_default();
            all.extend_from_slice(out);
            if !accepted {
                early.extend_from_slice(out);
            }
            body.hand_on(&mut input, count);
        }
        if absorbed.is_err() || accepted {
            return Relayed {
                accepted,
                early,
                all,
            };
        }
        if let Some(memory) = body.wants_memory() {
            if let Some(memory) = budget.ask(memory).granted() {
                body.grant(memory);
            }
        } else if !body.is_behind() {
            let read = reads.next().unwrap_or_default();
            let room = input
                .room(1 << 20)
                .and_then(|room| room.get_mut(..read.len()));
            let Some(room) = room.filter(|_| !read.is_empty()) else {
                return Relayed {
                    accepted,
                    early,
                    all,
                };
            };
            room.copy_from_slice(read);
            input.filled(read.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use proptest::prelude::*;

    fn packed(choice: u8, plain: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::fast();
        match chosen(choice) {
            Coding::Gzip => {
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
                packer.write_all(plain).unwrap();
                packer.finish().unwrap()
            }
            Coding::Deflate => {
                let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), level);
                packer.write_all(plain).unwrap();
                packer.finish().unwrap()
            }
            Coding::Zstd => {
                let mut out = vec![0; zstd_safe::compress_bound(plain.len())];
                let written = zstd_safe::compress(&mut out[..], plain, 1).unwrap();
                out.truncate(written);
                out
            }
            Coding::Brotli => {
                let mut packer = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 16);
                packer.write_all(plain).unwrap();
                packer.into_inner()
            }
        }
    }

    #[test]
    fn bodies_of_every_kind() {
        let long = format!(r#"{{"model":"m","messages":["{}"]}}"#, "ab".repeat(5000));
        let bodies: [&[u8]; 6] = [
            br#"{"model":"m","messages":[]}"#,
            br#"{"messages":[{"role":"user","content":"}"}],"model":"m"}   "#,
            br#"{"model":"m"}x"#,
            br#"{"model":"m","model":"n"}"#,
            br#"{"model":"m""#,
            long.as_bytes(),
        ];
        for body in bodies {
            for choice in 0..8 {
                let good = packed(choice, body);
                let two = [&good[..], &good[..]].concat();
                let kinds = [&good[..], &good[..good.len() - 1], &two, body, b""];
                for (kind, step) in kinds
                    .iter()
                    .flat_map(|kind| [1, 2, 7, 255].map(|s| (kind, s)))
                {
                    coded_identity(&[&[choice, step], *kind].concat());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn generated_bodies(choice in 0_u8..8, step: u8, text in "[a-z\\\\\"{}]{0,300}", tail in "[ \n}x]{0,3}", more in "x{0,1}") {
            let text = serde_json::to_string(&text).unwrap();
            let body = format!(r#"{{"messages":[{text}],"model":{text}}}{tail}"#);
            let body = [packed(choice, body.as_bytes()), more.into_bytes()].concat();
            coded_identity(&[&[choice, step], &body[..]].concat());
        }
    }
}
