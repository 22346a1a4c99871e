//! What holds for every answer, as functions that panic if it does not.

use serde_json::{Value, json};

use crate::coding::Codings;
use crate::dialect::Dialect;
use crate::json::splice;
use crate::peek::{Demand, Peek, is_read_as};
use crate::usage::{Form, Injection, Tap, Usage, ask_for_usage, naive};

/// Any cut of an answer gives the usage that a full parse finds in it.
///
/// The first byte chooses dialect, form and how the body ended, the second the size of the pieces.
pub fn tap(data: &[u8]) {
    let [choice, step, body @ ..] = data else {
        return;
    };
    let dialect = Dialect::ALL.get(usize::from(choice & 3)).copied();
    let form = if choice & 4 == 0 {
        Form::Events
    } else {
        Form::Json
    };
    let step = usize::from(*step).max(1);
    agree(
        dialect.unwrap_or(Dialect::Chat),
        form,
        body,
        body.chunks(step),
        choice & 8 == 0,
    );
}

/// What is put into a body that asks for no usage is an edit of the parsed value and of nothing else, and
/// nothing is put in again.
pub fn wish(body: &[u8]) {
    let outcome = wished(body);
    // What a tree cannot hold is not compared.
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    match outcome {
        Some(Ok(Some(patched))) => {
            if !value["stream_options"].is_object() {
                value["stream_options"] = json!({});
            }
            value["stream_options"]["include_usage"] = json!(true);
            assert_eq!(serde_json::from_slice::<Value>(&patched).ok(), Some(value));
            assert_eq!(wished(&patched), Some(Err(Injection::Asked)));
        }
        Some(Ok(None)) => assert_ne!(value["stream"], true),
        Some(Err(Injection::Asked)) => {
            let own = |name: &String| is_read_as(name.as_bytes(), "usage");
            let in_own_form = value.as_object().is_some_and(|it| it.keys().any(own));
            assert!(in_own_form || value["stream_options"]["include_usage"] == true);
        }
        Some(Err(_)) | None => {}
    }
}

/// What becomes of a whole body; none if it is no object.
fn wished(body: &[u8]) -> Option<Result<Option<Vec<u8>>, Injection>> {
    let mut facts = Peek::new(Dialect::Chat, Demand::NOTHING);
    facts.push(body).ok()?;
    facts.finish().ok()?;
    let spliced = |patch| splice(body, &[patch]).unwrap_or_default();
    Some(ask_for_usage(body, &facts).map(|patch| patch.map(spliced)))
}

/// Checks `body`, given in `pieces`, against the full parse.
pub fn agree<'a>(
    dialect: Dialect,
    form: Form,
    body: &'a [u8],
    pieces: impl Iterator<Item = &'a [u8]>,
    whole: bool,
) {
    let cut = read(dialect, form, pieces, whole);
    assert_eq!(cut, read(dialect, form, [body].into_iter(), whole));
    if let Some(expected) = naive::usage(dialect, form, body, whole) {
        assert_eq!(cut, expected, "{}", String::from_utf8_lossy(body));
    }
}

/// The usage that a tap finds in `pieces`.
pub fn read<'a>(
    dialect: Dialect,
    form: Form,
    pieces: impl Iterator<Item = &'a [u8]>,
    whole: bool,
) -> Usage {
    let mut tap = Tap::new(dialect, form, Codings::Plain);
    pieces.for_each(|piece| tap.see(piece));
    tap.finish(whole)
}
