//! A compressed body cut anywhere.

use crate::coding::{CODING_PIECE_BYTES, CODING_RATIO_MAX, Coding, CodingError, Decoder};
use crate::coding::{memory_needed, zlib};

/// Bytes that a body may decode to here.
const LIMIT: u64 = 1 << 20;

/// Any cut of the body and any room for its decode give the same bytes or none, within the limits.
///
/// The first byte chooses the coding, the second the size of the pieces, the third the room.
pub fn cuts(data: &[u8]) {
    let [choice, step, room, body @ ..] = data else {
        return;
    };
    let coding = chosen(*choice);
    let whole = decode(coding, body, body.len().max(1), 1 << 16, LIMIT);
    let (step, room) = (usize::from(*step).max(1), usize::from(*room).max(1));
    let cut = decode(coding, body, step, room, LIMIT);
    match (&whole, &cut) {
        (Ok(whole), Ok(cut)) => {
            assert!(whole == cut, "another cut gave other bytes");
            let most = (body.len() as u64).next_multiple_of(CODING_PIECE_BYTES as u64);
            let bytes = whole.len() as u64;
            assert!(bytes <= LIMIT && bytes <= most * CODING_RATIO_MAX);
            let memory = memory_needed(coding, body);
            assert!(matches!(memory, Ok(Some(bytes)) if bytes >= zlib::MEMORY));
        }
        (Err(_), Err(_)) => {}
        _ => unreachable!("a body was refused in one cut and not in another: {whole:?}, {cut:?}"),
    }
}

/// One coding for each value of the lowest two bits.
#[must_use]
pub fn chosen(choice: u8) -> Coding {
    let codings = [Coding::Gzip, Coding::Deflate, Coding::Zstd, Coding::Brotli];
    codings
        .get(usize::from(choice & 3))
        .copied()
        .unwrap_or(Coding::Gzip)
}

/// What `body` decodes to, in pieces of `step` bytes and through `room` bytes.
///
/// # Errors
/// As those of [`Decoder`].
pub fn decode(
    coding: Coding,
    body: &[u8],
    step: usize,
    room: usize,
    limit: u64,
) -> Result<Vec<u8>, CodingError> {
    let mut out = Vec::new();
    let decoder = decode_open(coding, body, (step, room), limit, &mut out)?;
    decoder.finish()?;
    Ok(out)
}

/// As [`decode`], of a body that may break off; `out` gets what came before a fault too.
///
/// # Errors
/// As those of [`Decoder::step`].
pub fn decode_open(
    coding: Coding,
    body: &[u8],
    (step, room): (usize, usize),
    limit: u64,
    out: &mut Vec<u8>,
) -> Result<Decoder, CodingError> {
    memory_needed(coding, body)?;
    let mut decoder = Decoder::new(coding, limit);
    let mut room = vec![0; room];
    for mut piece in body.chunks(step) {
        loop {
            let done = decoder.step(piece, &mut room)?;
            piece = piece.get(done.consumed..).unwrap_or_default();
            out.extend_from_slice(room.get(..done.produced).unwrap_or_default());
            if done.drained && piece.is_empty() {
                break;
            }
        }
    }
    Ok(decoder)
}
