//! What holds for every event stream that a sieve is in, as functions that panic if it does not.

use crate::limits::EXTRA_CHUNK_BYTES;
use crate::usage::{Sieve, naive};

/// Bytes that are held at most: the data, its field's name and three line ends.
const HELD_MAX: usize = 4096 + 5 + 6;
const _: () = assert!(HELD_MAX as u64 == EXTRA_CHUNK_BYTES + 5 + 6);

/// Any cut of the stream gives the same bytes: those of the stream without the events that a naive
/// reading takes for the extra chunk.
///
/// The first byte is the size of the pieces.
pub fn sift(data: &[u8]) {
    let [step, stream @ ..] = data else {
        return;
    };
    agree(stream, stream.chunks(usize::from(*step).max(1)));
}

/// Checks `stream`, given in `pieces`, against the whole of it and against the naive reading.
pub fn agree<'a>(stream: &[u8], pieces: impl Iterator<Item = &'a [u8]> + Clone) {
    let whole = sifted([stream].into_iter(), true);
    assert_eq!(shown(&sifted(pieces.clone(), true)), shown(&whole));
    assert_eq!(shown(&sifted(pieces, false)), shown(&whole));
    if let Some(expected) = naive::without_extra_chunks(stream) {
        assert_eq!(shown(&whole), shown(&expected));
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// What passes of `pieces`. The end is known with the last of them, or else nothing comes behind it.
pub fn sifted<'a>(pieces: impl Iterator<Item = &'a [u8]>, known_end: bool) -> Vec<u8> {
    let (mut sieve, mut ready, mut out) = (Sieve::default(), Vec::new(), Vec::new());
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        ready.extend_from_slice(piece);
        let whole = known_end && pieces.peek().is_none();
        loop {
            let passage = sieve.sift(&ready, whole);
            out.extend(ready.drain(..passage.pass));
            ready.drain(..passage.remove);
            if passage.remove == 0 {
                break;
            }
        }
        assert!(ready.len() <= HELD_MAX, "{} bytes are held", ready.len());
        assert!(!whole || ready.is_empty(), "held beyond the end");
    }
    out.extend(ready);
    out
}
