//! What holds for every event stream, as functions that panic if it does not.

use crate::sse::naive::{self, Event};
use crate::sse::{Fate, Framer, NAME_BYTES_MAX, Sink};

/// Bytes of data that an event may have in the bounded reading.
const BOUND: usize = 40;

/// Any cut of the stream gives the events that the naive reading finds, and with a bound the same ones
/// save the data of those beyond it.
///
/// The first byte is the size of the pieces.
pub fn events(data: &[u8]) {
    let [step, stream @ ..] = data else {
        return;
    };
    agree(stream, stream.chunks(usize::from(*step).max(1)));
}

/// Checks `stream`, given in `pieces`, against the naive reading.
pub fn agree<'a>(stream: &[u8], pieces: impl Iterator<Item = &'a [u8]> + Clone) {
    let expected: Vec<_> = naive::events(stream).into_iter().map(named).collect();
    assert_eq!(read(pieces.clone(), u64::MAX), expected);
    let bounded: Vec<_> = expected.into_iter().map(cut_off).collect();
    let mut found = read(pieces, BOUND as u64);
    for event in &mut found {
        if event.fate == Fate::TooLong {
            event.data.clear();
        }
    }
    assert_eq!(found, bounded);
}

/// The event as a framer names it.
fn named(mut event: Event) -> Event {
    if event.name.len() > NAME_BYTES_MAX {
        event.name.clear();
    }
    event
}

/// The event under the bound.
fn cut_off(mut event: Event) -> Event {
    if event.data.len() > BOUND {
        event.data.clear();
        event.fate = Fate::TooLong;
    }
    event
}

/// The events that a framer finds in `pieces`.
pub fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, data_max: u64) -> Vec<Event> {
    let mut framer = Framer::new(data_max);
    let mut kept = Kept::default();
    for piece in pieces {
        framer.push(piece, &mut kept);
    }
    framer.finish(&mut kept);
    kept.events
}

#[derive(Default)]
struct Kept {
    data: Vec<u8>,
    events: Vec<Event>,
}

impl Sink for Kept {
    fn data(&mut self, piece: &[u8]) {
        self.data.extend_from_slice(piece);
    }

    fn end(&mut self, event: crate::sse::Event<'_>) {
        self.events.push(Event {
            name: event.name.to_vec(),
            data: std::mem::take(&mut self.data),
            fate: event.fate,
            end: event.end,
        });
    }
}
