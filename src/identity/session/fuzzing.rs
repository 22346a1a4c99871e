//! Sessions of hostile requests: what holds for every one of them.

use crate::dialect::Dialect;
use crate::http1::head::{HeadLimits, Progress, RequestHead};
use crate::identity::session::{Asker, DEMAND, SESSION_ID_BYTES_MAX, Session};
use crate::peek::{KeySet, Peek, TopKey};

/// A request, head and body as they are sent. Its session can be a header value as it is; it is the same
/// however the body was cut; and once it is known, the rest of a body without repeats changes nothing.
pub fn session(request: &[u8]) {
    let mut head = RequestHead::default();
    let limits = HeadLimits {
        bytes: 1 << 16,
        fields: 200,
    };
    if !matches!(head.parse(request, limits), Ok(Progress::Complete)) {
        return;
    }
    let (text, body) = request.split_at_checked(head.len).unwrap_or_default();
    let asker = |peek: &Peek| {
        let asker = Asker {
            fields: &head.fields,
            text,
            body: Some(peek),
        };
        (asker.is_open(), asker.session())
    };
    let mut whole = Peek::new(Dialect::Chat, DEMAND);
    if whole.push(body).and_then(|()| whole.finish()).is_err() {
        return;
    }
    let (open, found) = asker(&whole);
    assert!(!open, "a whole body leaves the session open");
    assert!(
        found.as_ref().is_none_or(is_header_value),
        "no header value"
    );
    let decided = KeySet::NONE
        .with(TopKey::PromptCacheKey)
        .with(TopKey::Metadata)
        .with(TopKey::User);
    let plain = whole.repeated().and(decided).is_empty();
    let mut cut = Peek::new(Dialect::Chat, DEMAND);
    let half = body.len() / 2;
    for piece in [body.get(..half), body.get(half..)].into_iter().flatten() {
        assert!(cut.push(piece).is_ok(), "a cut made a body broken");
        if let (false, early) = asker(&cut) {
            assert!(!plain || early == found, "a known session changed");
        }
    }
    assert!(asker(&cut) == (false, found), "a cut changed the session");
}

fn is_header_value(session: &Session) -> bool {
    let id = session.id();
    let fits = (1..=SESSION_ID_BYTES_MAX).contains(&id.len());
    fits && id.trim() == id && id.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
