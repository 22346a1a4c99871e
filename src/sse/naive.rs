//! The same events from the whole stream at once, line by line as the standard writes it: the oracle of
//! tests and fuzzing, never used on a response.

use crate::sse::Fate;

/// An event with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `sse`")]
pub struct Event {
    pub name: Vec<u8>,
    pub data: Vec<u8>,
    pub fate: Fate,
    pub end: u64,
}

/// The events of `stream`.
#[must_use]
pub fn events(stream: &[u8]) -> Vec<Event> {
    let mut found = Vec::new();
    let (mut name, mut data) = (Vec::new(), None::<Vec<u8>>);
    let mut at = if stream.starts_with(b"\xEF\xBB\xBF") {
        3
    } else {
        0
    };
    while at < stream.len() {
        let rest = &stream[at..];
        let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n'));
        let line = &rest[..end.unwrap_or(rest.len())];
        if line.is_empty() {
            found.push(Event {
                name: std::mem::take(&mut name),
                fate: data.as_ref().map_or(Fate::Empty, |_| Fate::Whole),
                data: data.take().unwrap_or_default(),
                end: (at + 1) as u64,
            });
        }
        let colon = line.iter().position(|b| *b == b':');
        let (field, value) = match colon {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            b"event" => name = value.to_vec(),
            _ => {}
        }
        at += line.len();
        at += if stream[at..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
    }
    found.extend(data.map(|data| Event {
        name,
        data,
        fate: Fate::Unfinished,
        end: stream.len() as u64,
    }));
    found
}
