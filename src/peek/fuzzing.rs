//! What holds for every input, as functions that panic if it does not. The fuzz targets call them
//! with what the fuzzer makes up, the tests with corpora and made bodies.
#![expect(clippy::unwrap_used, reason = "a check that fails must panic")]

use std::ops::Range;

use crate::dialect::Dialect;
use crate::json::{
    Broken, Container, Patch, Scanner, Sink, Span, Unescape, Want, patched_len, quote, splice,
};
use crate::peek::naive::{self, Facts};
use crate::peek::{
    Capture, Demand, Fact, KeySet, MODEL_BYTES_MAX, Peek, SESSION_FIELD_BYTES_MAX,
    TOOL_NAME_BYTES_MAX, Text, TextReader, ToolName, ToolNames, TopKey, USER_TEXT_BYTES_MAX,
    USER_TEXT_FIRST,
};

/// The scanner accepts what a full parse accepts, in any cut, with any lanes.
pub fn scan(input: &[u8]) {
    let (cuts, body) = cut(input);
    scan_agrees(body, &[cuts, body.chunks(1).collect()]);
}

/// The facts are those of a full parse, in any cut.
pub fn facts(input: &[u8]) {
    let (cuts, body) = cut(input);
    for dialect in Dialect::ALL {
        let naive = naive::facts(dialect, body);
        agree(dialect, body, &cuts, naive.as_ref());
    }
}

/// A patch by span changes the value it names and no other fact.
pub fn patch(input: &[u8]) {
    patch_agrees(input, "a \"new\" näme");
}

/// The first bytes of an input say where the rest is cut.
fn cut(input: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let (sizes, body) = input.split_at(input.len().min(4));
    let (mut pieces, mut rest) = (Vec::new(), body);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, tail) = rest.split_at(usize::from(size % 97 + 1).min(rest.len()));
        pieces.push(piece);
        rest = tail;
    }
    (pieces, body)
}
/// Keeps tool names, `None` for one beyond the bound.
#[derive(Clone, Debug, Default)]
pub struct Names(pub Vec<Option<String>>);

impl ToolNames for Names {
    fn name(&mut self, name: ToolName<'_>) {
        self.0.push(match name {
            ToolName::Named(name) => Some(name.to_owned()),
            ToolName::BeyondBound => None,
        });
    }
}

/// Reads `pieces` with every fact demanded.
pub fn read(dialect: Dialect, pieces: &[&[u8]]) -> (Peek<Names>, Result<(), Broken>) {
    let mut peek = Peek::with(dialect, Demand::ALL, Capture::Bounded, Names::default());
    let pushed = pieces.iter().try_for_each(|piece| peek.push(piece));
    let judged = pushed.and_then(|()| peek.finish());
    (peek, judged)
}

/// The naive value as a fact with a bound.
fn bounded(value: Option<&String>, bytes_max: usize) -> Fact<String> {
    match value {
        Some(value) if value.len() <= bytes_max => Fact::Found(value.clone()),
        Some(_) => Fact::BeyondBound,
        None => Fact::Absent,
    }
}

/// A fact's value, after checking that its span holds that value.
fn owned(fact: Fact<Text<'_>>, body: &[u8]) -> Fact<String> {
    match fact {
        Fact::Found(Text { value, span }) => {
            let spelled = lossless(&body[range(span)]);
            assert_eq!(serde_json::from_slice::<String>(&spelled).unwrap(), value);
            Fact::Found(value.to_owned())
        }
        Fact::NotYet => Fact::NotYet,
        Fact::Absent => Fact::Absent,
        Fact::BeyondBound => Fact::BeyondBound,
    }
}

/// The span as a range of a body in memory.
pub fn range(span: Span) -> Range<usize> {
    usize::try_from(span.start).unwrap()..usize::try_from(span.end).unwrap()
}

/// Whether a text, without white space around it, is kept up to the bound.
fn may_be_switch(text: &str) -> bool {
    text.is_empty() || text.as_bytes().first() == Some(&USER_TEXT_FIRST)
}

/// A JSON string that serde_json reads: lone surrogates replaced through the scanner's own decoder.
fn lossless(raw: &[u8]) -> Vec<u8> {
    let (mut unescape, mut text, mut out) = (Unescape::default(), vec![], vec![]);
    unescape.feed(&raw[1..raw.len() - 1], |b| text.extend_from_slice(b));
    unescape.finish(|b| text.extend_from_slice(b));
    quote(&String::from_utf8(text).unwrap(), &mut out);
    out
}

/// Checks every fact of `body`, given in `pieces`, against the full parse.
pub fn agree(dialect: Dialect, body: &[u8], pieces: &[&[u8]], naive: Option<&Facts>) {
    let (peek, judged) = read(dialect, pieces);
    let shown = String::from_utf8_lossy(body);
    let Some(naive) = naive else {
        assert!(judged.is_err(), "{shown}");
        return;
    };
    assert_eq!(judged, Ok(()), "{shown}");
    let field = |value| bounded(value, SESSION_FIELD_BYTES_MAX);
    for (fact, expected) in [
        (peek.model(), bounded(naive.model.as_ref(), MODEL_BYTES_MAX)),
        (
            peek.prompt_cache_key(),
            field(naive.prompt_cache_key.as_ref()),
        ),
        (peek.user(), field(naive.user.as_ref())),
        (peek.session_id(), field(naive.session_id.as_ref())),
        (
            peek.metadata_user_id(),
            field(naive.metadata_user_id.as_ref()),
        ),
    ] {
        assert_eq!(owned(fact, body), expected, "{shown}");
    }
    assert_eq!(peek.stream().found(), naive.stream, "{shown}");
    let names = naive.tool_names.iter().cloned();
    let names: Vec<_> = names
        .map(|n| (n.len() <= TOOL_NAME_BYTES_MAX).then_some(n))
        .collect();
    assert_eq!(peek.tool_names().0, names, "{shown}");
    assert_eq!(usize::try_from(peek.tools()).unwrap(), names.len());
    let repeated: Vec<_> = peek.repeated().iter().collect();
    assert_eq!(repeated, naive.repeated, "{shown}");
    for key in TopKey::ALL {
        let kind = naive
            .kinds
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, kind)| *kind);
        assert_eq!(peek.kind(key).found(), kind, "{key:?} {shown}");
        assert_eq!(peek.span(key).is_some(), kind.is_some());
    }
    let text = naive.last_user_text.as_deref().map(str::trim);
    let same_text = match (peek.last_user(), text) {
        (Fact::Found(found), Some(text)) if may_be_switch(text) => {
            let literals = ["--who?", text];
            let place = found.position_in(&literals, &TextReader::for_switch());
            place == literals.iter().position(|literal| *literal == text)
        }
        (Fact::BeyondBound, Some(text)) => text.len() > USER_TEXT_BYTES_MAX || !may_be_switch(text),
        (Fact::Absent, None) => true,
        (_, _) => false,
    };
    assert!(same_text, "last user text {text:?}: {shown}");
    if let Some(expected) = naive.fingerprint {
        assert_eq!(peek.fingerprint(), Some(expected), "{shown}");
    }
    assert_eq!(peek.open(), Demand::NOTHING);
    let blank = body
        .iter()
        .rev()
        .take_while(|b| b.is_ascii_whitespace())
        .count() as u64;
    assert_eq!(peek.trailing(), blank);
    assert_eq!(peek.closed_at(), Some(body.len() as u64 - blank - 1));
    assert_eq!(peek.offset(), body.len() as u64);
}

/// What a sink was told, with pieces joined.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Trace(Vec<String>, Vec<u8>, u64);

impl Trace {
    /// Looks into most things, by a rule that depends on the input alone.
    fn want(&mut self, at: u64) -> Want {
        self.2 = self.2.wrapping_mul(31).wrapping_add(at);
        if self.2.is_multiple_of(5) && at > 0 {
            Want::Skip
        } else {
            Want::Look
        }
    }
}

impl Sink for Trace {
    fn open(&mut self, container: Container, at: u64) -> Want {
        let want = self.want(at);
        self.0.push(format!("{container:?} {at} {want:?}"));
        want
    }
    fn close(&mut self) {
        self.0.push("close".to_owned());
    }
    fn key(&mut self, raw: &[u8], last: bool) {
        self.1.extend_from_slice(raw);
        if last {
            let key = std::mem::take(&mut self.1);
            self.0.push(format!("key {key:?}"));
        }
    }
    fn text(&mut self, at: u64) -> Want {
        let want = self.want(at);
        self.0.push(format!("text {at} {want:?}"));
        want
    }
    fn piece(&mut self, raw: &[u8], last: bool) {
        self.key(raw, last);
    }
    fn scalar(&mut self, first: u8, at: u64) {
        self.0.push(format!("scalar {first} {at}"));
    }
    fn end(&mut self, end: u64) {
        self.0.push(format!("end {end}"));
    }
}

type Outcome = (Result<(), Broken>, Option<u64>, u64, Trace);

fn trace(mut scanner: Scanner, pieces: &[&[u8]]) -> Outcome {
    let mut sink = Trace::default();
    let pushed = pieces
        .iter()
        .try_for_each(|piece| scanner.push(piece, &mut sink));
    let judged = pushed.and_then(|()| scanner.finish());
    // What came of a string that never ended is not an event.
    sink.1.clear();
    (judged, scanner.closed_at(), scanner.offset(), sink)
}

/// Every kind of lanes and every given cut give one outcome; it is the full parse's.
pub fn scan_agrees(body: &[u8], cuts: &[Vec<&[u8]>]) {
    let whole = trace(Scanner::new(), &[body]);
    let shown = String::from_utf8_lossy(body);
    assert_eq!(
        whole.0.is_ok(),
        naive::is_valid(body),
        "{:?} {shown}",
        whole.0
    );
    for pieces in cuts {
        assert_eq!(trace(Scanner::new(), pieces), whole, "{shown}");
        assert_eq!(trace(Scanner::portable(), pieces), whole, "{shown}");
    }
    assert_eq!(trace(Scanner::portable(), &[body]), whole, "{shown}");
}

/// Replaces every string that a patch may replace, and compares with an edit of the parsed facts.
pub fn patch_agrees(body: &[u8], replacement: &str) {
    let (peek, judged) = read(Dialect::Chat, &[body]);
    if judged.is_err() || peek.repeated() != KeySet::NONE {
        return;
    }
    let mut quoted = Vec::new();
    quote(replacement, &mut quoted);
    let facts = [peek.model(), peek.session_id(), peek.prompt_cache_key()];
    let spans = facts.iter().filter_map(|fact| Some(fact.found()?.span));
    let mut patches: Vec<_> = spans
        .map(|Span { start, end }| Patch {
            start,
            end,
            replacement: quoted.clone().into(),
        })
        .collect();
    patches.sort_by_key(|patch| patch.start);
    let spliced = splice(body, &patches).unwrap();
    assert_eq!(
        patched_len(body.len() as u64, &patches),
        Some(spliced.len() as u64)
    );

    let mut edited = naive::facts(Dialect::Chat, body).unwrap();
    for (fact, value) in [
        (facts[0], &mut edited.model),
        (facts[1], &mut edited.session_id),
        (facts[2], &mut edited.prompt_cache_key),
    ] {
        if let Fact::Found(_) = fact {
            *value = Some(replacement.to_owned());
        }
    }
    let mut found = naive::facts(Dialect::Chat, &spliced).unwrap();
    if edited.fingerprint.is_none() {
        // It was not known because of a character in what is replaced.
        found.fingerprint = None;
    }
    let shown = String::from_utf8_lossy(&spliced);
    assert!(found == edited, "{shown}");
}
