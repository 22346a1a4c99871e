//! One event's data, and whether it is the extra chunk.

use crate::json::{Broken, Container, Scanner, Sink, Want, Word};

/// Reads one object that comes in pieces.
#[derive(Debug)]
pub(super) struct Chunk {
    scanner: Scanner,
    reading: Reading,
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self {
            scanner: Scanner::new(),
            reading: Reading::default(),
        }
    }

    /// Bytes read.
    pub(super) const fn bytes(&self) -> u64 {
        self.scanner.offset()
    }

    /// Reads the next bytes. Whether it can still be the extra chunk.
    pub(super) fn push(&mut self, piece: &[u8]) -> bool {
        let pushed: Result<(), Broken> = self.scanner.push(piece, &mut self.reading);
        pushed.is_ok() && !self.reading.is_other
    }

    /// Whether it was the extra chunk: an object with an empty list of `choices` and a `usage` that is an
    /// object, each once, and no `error`.
    pub(super) fn is_extra(&mut self) -> bool {
        let Reading {
            is_other,
            choices,
            usage,
            ..
        } = self.reading;
        self.scanner.finish().is_ok() && !is_other && choices && usage
    }
}

#[derive(Debug, Default)]
struct Reading {
    place: Place,
    key: Key,
    word: Word,
    /// An empty list of choices has come, and a usage.
    choices: bool,
    usage: bool,
    /// Something has come with which it is another chunk.
    is_other: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    Root,
    Choices,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    Choices,
    Usage,
    Error,
    #[default]
    Other,
}

impl Key {
    fn of(name: &[u8]) -> Self {
        match name {
            b"choices" => Self::Choices,
            b"usage" => Self::Usage,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }
}

impl Reading {
    /// A value begins that is no container; whether it is null.
    fn plain(&mut self, is_null: bool) {
        self.is_other |= match (self.place, self.key) {
            (Place::Choices, _) | (_, Key::Choices | Key::Usage) => true,
            (_, Key::Error) => !is_null,
            (_, Key::Other) => false,
        };
    }
}

impl Sink for Reading {
    fn open(&mut self, container: Container, _: u64) -> Want {
        match (self.place, self.key, container) {
            (Place::Outside, ..) => {
                self.place = Place::Root;
                return Want::Look;
            }
            (Place::Root, Key::Choices, Container::Array) if !self.choices => {
                self.place = Place::Choices;
                return Want::Look;
            }
            (Place::Root, Key::Usage, Container::Object) if !self.usage => self.usage = true,
            (Place::Root, Key::Other, _) => {}
            (Place::Root, Key::Choices | Key::Usage | Key::Error, _) | (Place::Choices, ..) => {
                self.is_other = true;
            }
        }
        Want::Skip
    }

    fn close(&mut self) {
        if self.place == Place::Choices {
            self.choices = true;
            self.place = Place::Root;
        } else {
            self.place = Place::Outside;
        }
    }

    fn key(&mut self, raw: &[u8], last: bool) {
        if let Some(name) = self.word.take(raw, last) {
            self.key = Key::of(name);
        }
    }

    fn text(&mut self, _: u64) -> Want {
        self.plain(false);
        Want::Skip
    }

    fn piece(&mut self, _: &[u8], _: bool) {}

    fn scalar(&mut self, first: u8, _: u64) {
        self.plain(first == b'n');
    }

    fn end(&mut self, _: u64) {}
}
