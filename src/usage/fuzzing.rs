//! What holds for every answer, as functions that panic if it does not.

use crate::coding::Codings;
use crate::dialect::Dialect;
use crate::usage::{Form, Tap, Usage, naive};

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
