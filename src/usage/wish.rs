//! The request's half of `usage: inject`: what makes a chat provider send the usage of its stream.
//!
//! It takes `stream_options.include_usage` (OpenAI API reference, 2026-11). A body gets one patch: the
//! whole member, or what is missing of its value; every other byte stays. What asks already, or could be
//! read in two ways, is left alone: a patch must never turn a request into another one, and an extra chunk
//! that the client did ask for must never be taken from it.
//!
//! Cost: the facts are those of the scan that judges the body anyway; only the value of `stream_options`
//! is scanned once more, where it is an object.

use crate::json::{Container, Patch, Scanner, Sink, Span, Want, Word};
use crate::peek::{Fact, Kind, Peek, StreamFlag, TopKey, is_read_as};
use crate::usage::Injection;

/// The member of `stream_options` that asks.
const ASKS: &str = "include_usage";

/// The name of the root member, as it has to be spelled.
const OPTIONS_SPELLED: &[u8] = b"\"stream_options\"";

/// Whether these facts, of a body or of its beginning, say that no stream is asked for. Not where they say
/// so and the opposite.
#[must_use]
pub fn is_for_no_stream(facts: &Peek) -> bool {
    let may_be = matches!(facts.stream(), Fact::NotYet | Fact::Found(StreamFlag::True));
    !may_be && !facts.repeated().contains(TopKey::Stream)
}

/// What has to change in `body`, a whole one with these facts, so that its provider sends usage. None if it
/// asks for no stream, whose usage comes by itself.
///
/// # Errors
/// Why nothing is changed in a request for a stream.
pub fn ask_for_usage(body: &[u8], facts: &Peek) -> Result<Option<Patch>, Injection> {
    if is_for_no_stream(facts) {
        return Ok(None);
    }
    let repeated = facts.repeated();
    if repeated.contains(TopKey::Stream) || repeated.contains(TopKey::StreamOptions) {
        return Err(Injection::RequestAmbiguous);
    }
    // Some providers are asked by a member of this name, in a form of their own.
    let is_null = facts.kind(TopKey::Usage) == Fact::Found(Kind::Null);
    if facts.keys().contains(TopKey::Usage) && (!is_null || repeated.contains(TopKey::Usage)) {
        return Err(Injection::Asked);
    }
    if facts.keys().contains(TopKey::StreamOptions) {
        return complete(body, facts).map(Some);
    }
    // A request for a stream has another member, so a comma follows.
    let member = br#""stream_options":{"include_usage":true},"#;
    Ok(facts.opened_at().map(|at| put_in(at + 1, member)))
}

/// What is missing of the `stream_options` that are there.
fn complete(body: &[u8], facts: &Peek) -> Result<Patch, Injection> {
    let span = facts.span(TopKey::StreamOptions);
    let span = span.filter(|span| is_plainly_named(body, *span));
    let span = span.ok_or(Injection::RequestAmbiguous)?;
    match facts.kind(TopKey::StreamOptions) {
        Fact::Found(Kind::Null) => Ok(put_over(span, br#"{"include_usage":true}"#)),
        Fact::Found(Kind::Object) => Options::of(body, span)?.complete(span.start),
        _ => Err(Injection::RequestOtherType),
    }
}

/// Whether the value at `span` has its name without an escape before it.
fn is_plainly_named(body: &[u8], span: Span) -> bool {
    let before = within(
        body,
        Span {
            start: 0,
            end: span.start,
        },
    );
    let name = before.trim_ascii_end().strip_suffix(b":");
    let name = name.unwrap_or_default().trim_ascii_end();
    name.ends_with(OPTIONS_SPELLED)
}

fn within(body: &[u8], span: Span) -> &[u8] {
    let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
    body.get(at(span.start)..at(span.end)).unwrap_or_default()
}

fn put_in(at: u64, text: &[u8]) -> Patch {
    put_over(Span { start: at, end: at }, text)
}

fn put_over(span: Span, text: &[u8]) -> Patch {
    Patch {
        start: span.start,
        end: span.end,
        replacement: text.into(),
    }
}

/// What one `stream_options` says.
#[derive(Debug, Default)]
struct Options {
    word: Word,
    /// Members so far.
    members: u32,
    /// Whether the member at hand is one that asks, or is read as if by some.
    asks: bool,
    /// How many such there are.
    asking: u32,
    /// One of them is not spelled plainly.
    is_odd: bool,
    /// The value of the last of them, and where it stands in `stream_options`.
    value: Option<(Value, Span)>,
    /// Whether the object itself is open.
    is_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    True,
    /// False or null.
    No,
    Other,
}

impl Options {
    /// Reads the object at `span`.
    fn of(body: &[u8], span: Span) -> Result<Self, Injection> {
        let mut options = Self::default();
        let mut scanner = Scanner::new();
        let scanned = scanner.push(within(body, span), &mut options);
        match scanned.and_then(|()| scanner.finish()) {
            Ok(()) => Ok(options),
            // It was part of a body that was found whole.
            Err(_) => Err(Injection::RequestOtherType),
        }
    }

    /// The patch that makes the object at `start` ask.
    fn complete(&self, start: u64) -> Result<Patch, Injection> {
        if self.is_odd || self.asking > 1 {
            return Err(Injection::RequestAmbiguous);
        }
        match self.value {
            Some((Value::True, _)) => Err(Injection::Asked),
            Some((Value::Other, _)) => Err(Injection::RequestOtherType),
            Some((Value::No, span)) => {
                let span = Span {
                    start: start.saturating_add(span.start),
                    end: start.saturating_add(span.end),
                };
                Ok(put_over(span, b"true"))
            }
            None if self.members == 0 => Ok(put_in(start + 1, br#""include_usage":true"#)),
            None => Ok(put_in(start + 1, br#""include_usage":true,"#)),
        }
    }

    /// The value of the member at hand begins.
    fn begin(&mut self, value: Value, at: u64) {
        if self.asks {
            self.value = Some((value, Span { start: at, end: at }));
        }
    }
}

impl Sink for Options {
    fn open(&mut self, _: Container, at: u64) -> Want {
        if self.is_open {
            self.begin(Value::Other, at);
            return Want::Skip;
        }
        self.is_open = true;
        Want::Look
    }

    fn close(&mut self) {
        // What ends behind it is no member.
        self.asks = false;
    }

    fn key(&mut self, raw: &[u8], last: bool) {
        let Some(name) = self.word.take(raw, last) else {
            return;
        };
        self.members += 1;
        self.asks = is_read_as(name, ASKS);
        if self.asks {
            self.asking += 1;
            self.is_odd |= raw != ASKS.as_bytes();
        }
    }

    fn text(&mut self, at: u64) -> Want {
        self.begin(Value::Other, at);
        Want::Skip
    }

    fn piece(&mut self, _: &[u8], _: bool) {}

    fn scalar(&mut self, first: u8, at: u64) {
        let value = match first {
            b't' => Value::True,
            b'f' | b'n' => Value::No,
            _ => Value::Other,
        };
        self.begin(value, at);
    }

    fn end(&mut self, end: u64) {
        if let Some((_, span)) = self.value.as_mut().filter(|_| self.asks) {
            span.end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::json::splice;
    use crate::peek::Demand;

    fn asked(body: &str) -> Result<Option<String>, Injection> {
        let mut facts = Peek::new(Dialect::Chat, Demand::NOTHING);
        facts.push(body.as_bytes()).unwrap();
        facts.finish().unwrap();
        let patch = ask_for_usage(body.as_bytes(), &facts)?;
        Ok(patch.map(|patch| {
            let spliced = splice(body.as_bytes(), &[patch]).unwrap();
            String::from_utf8(spliced).unwrap()
        }))
    }

    #[test]
    fn what_is_missing_is_put_in_and_nothing_else_changes() {
        for (body, patched) in [
            (
                r#" {"stream":true}"#,
                r#" {"stream_options":{"include_usage":true},"stream":true}"#,
            ),
            (
                r#"{"stream_options" : null ,"stream":true}"#,
                r#"{"stream_options" : {"include_usage":true} ,"stream":true}"#,
            ),
            (
                r#"{"stream":true,"stream_options":{ }}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true }}"#,
            ),
            (
                r#"{"stream":true,"stream_options":{ "a":{"include_usage":true}}}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true, "a":{"include_usage":true}}}"#,
            ),
            (
                r#"{"stream":true,"stream_options":{"a":"include_usage","include_usage": false , "b":1}}"#,
                r#"{"stream":true,"stream_options":{"a":"include_usage","include_usage": true , "b":1}}"#,
            ),
            (
                r#"{"usage":null,"stream":true}"#,
                r#"{"stream_options":{"include_usage":true},"usage":null,"stream":true}"#,
            ),
            (
                r#"{"stream_options":{"include_usage":null},"stream":true}"#,
                r#"{"stream_options":{"include_usage":true},"stream":true}"#,
            ),
        ] {
            assert_eq!(asked(body), Ok(Some(patched.to_owned())), "{body}");
        }
    }

    #[test]
    fn what_asks_or_can_be_read_in_two_ways_is_left_alone() {
        use Injection::{Asked, RequestAmbiguous, RequestOtherType};
        for (options, why) in [
            (r#""stream_options":{"include_usage":true}"#, Asked),
            (
                r#""stream_options":{"a":[1],"include_usage" : true }"#,
                Asked,
            ),
            (r#""usage":{"include":true}"#, Asked),
            (r#""Usage":false,"stream_options":{}"#, Asked),
            (r#""usage":{"include":true},"usage":null"#, Asked),
            (r#""stream_options":[]"#, RequestOtherType),
            (r#""stream_options":false"#, RequestOtherType),
            (r#""stream_options":"null""#, RequestOtherType),
            (r#""stream_options":{"include_usage":1}"#, RequestOtherType),
            (
                r#""stream_options":{"include_usage":"true"}"#,
                RequestOtherType,
            ),
            (r#""stream_options":{"include_usage":{}}"#, RequestOtherType),
            (r#""stream_options":{"include_usage":[]}"#, RequestOtherType),
            (
                r#""stream_options":null,"stream_options":null"#,
                RequestAmbiguous,
            ),
            (
                r#""stream_options":null,"Stream_Options":{}"#,
                RequestAmbiguous,
            ),
            (r#""Stream_options":null"#, RequestAmbiguous),
            (r#""\u017ftream_options":null"#, RequestAmbiguous),
            (r#""stream\u005foptions":null"#, RequestAmbiguous),
            (r#""stream":true"#, RequestAmbiguous),
            (r#""Stream":false"#, RequestAmbiguous),
            (r#""stream":false"#, RequestAmbiguous),
            (
                r#""stream_options":{"include_usage":false,"include_usage":false}"#,
                RequestAmbiguous,
            ),
            (
                r#""stream_options":{"include\u005fusage":false}"#,
                RequestAmbiguous,
            ),
            (
                r#""stream_options":{"Include_Usage":true}"#,
                RequestAmbiguous,
            ),
            (
                r#""stream_options":{"\u0131nclude_usage":true}"#,
                RequestAmbiguous,
            ),
        ] {
            for body in [
                format!(r#"{{"stream":true,{options}}}"#),
                format!(r#"{{{options} ,"stream": true}}"#),
            ] {
                assert_eq!(asked(&body), Err(why), "{body}");
            }
        }
    }

    #[test]
    fn who_asks_for_no_stream_is_left_alone() {
        for body in [
            "{}",
            r#"{"stream":false}"#,
            r#"{"stream":"true","stream_options":7}"#,
            r#"{"stream":1}"#,
            r#"{"Stream":true}"#,
            r#"{"a":{"stream":true}}"#,
            r#"{"stream":null,"stream_options":null}"#,
        ] {
            assert_eq!(asked(body), Ok(None), "{body}");
        }
    }
}
