//! The last user text, which only `switch` may judge.
//!
//! A switch literal is a few bytes, so a bounded automaton is enough: white space before the text is
//! dropped whatever its length, at most [`USER_TEXT_BYTES_MAX`] bytes are kept, and after them only
//! white space may follow. What does not begin with [`USER_TEXT_FIRST`] is no literal and is given up at its
//! first byte: a long conversation has thousands of texts, and all but the last are of no use. What is kept cannot be printed or read: it can be compared, by the holder
//! of a [`TextReader`].

use crate::json::Unescape;
use crate::limits::{USER_TEXT_BYTES_MAX, USER_TEXT_FIRST};
use crate::peek::{Capture, Fact};

/// The right to judge what a person typed. Module `switch` alone makes one (`tests/tidy.rs`), so no
/// other module can let a decision or a log line depend on message text.
#[derive(Debug)]
pub struct TextReader(());

impl TextReader {
    /// The one in `switch`.
    #[must_use]
    pub const fn for_switch() -> Self {
        Self(())
    }
}

/// Text of the last message of role `user`.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "message text is never printed"
)]
pub struct LastUserText<'a>(&'a str);

impl<'a> LastUserText<'a> {
    /// Index of the first of `literals` that is this text without white space around it.
    #[must_use]
    pub fn position_in(self, literals: &[&str], _: &TextReader) -> Option<usize> {
        let text = self.0.trim();
        literals.iter().position(|literal| *literal == text)
    }

    pub(super) const fn as_str(self) -> &'a str {
        self.0
    }
}

/// The texts of the message being read and of the last user message before it.
#[derive(Clone)]
pub(super) struct UserTexts {
    draft: Draft,
    last: Draft,
    found: bool,
}

impl UserTexts {
    pub(super) fn new(capture: Capture) -> Self {
        Self {
            draft: Draft::new(capture),
            last: Draft::new(capture),
            found: false,
        }
    }

    /// A new text starts.
    pub(super) fn begin(&mut self) {
        self.draft.clear();
    }

    /// A piece of the text, still escaped; `last`: a string value ends here.
    pub(super) fn piece(&mut self, raw: &[u8], last: bool) {
        self.draft.piece(raw, last);
    }

    /// The text belongs to a user message.
    pub(super) fn keep(&mut self) {
        std::mem::swap(&mut self.draft, &mut self.last);
        self.found = true;
    }

    /// The last user message has no text.
    pub(super) fn forget(&mut self) {
        self.found = false;
    }

    /// What is known; `done`: no further message can come; `closed`: the root has closed.
    pub(super) fn fact(&self, done: bool, closed: bool) -> Fact<LastUserText<'_>> {
        match (self.found, done) {
            (true, true) if self.last.beyond => Fact::BeyondBound,
            (true, true) => {
                let text = std::str::from_utf8(self.last.bytes.as_slice()).unwrap_or_default();
                Fact::Found(LastUserText(text))
            }
            (_, _) if closed => Fact::Absent,
            (_, _) => Fact::NotYet,
        }
    }
}

/// Bytes of a text: in place up to the bound, so that texts which are no switch allocate nothing.
#[derive(Clone)]
struct Kept {
    inline: [u8; USER_TEXT_BYTES_MAX],
    len: usize,
    /// All of them, once they are more than that.
    spilled: Vec<u8>,
}

impl Kept {
    const fn new() -> Self {
        Self {
            inline: [0; USER_TEXT_BYTES_MAX],
            len: 0,
            spilled: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.len = 0;
        self.spilled.clear();
    }

    fn extend_from_slice(&mut self, more: &[u8]) {
        let end = self.len + more.len();
        match self.inline.get_mut(self.len..end) {
            Some(room) if self.spilled.is_empty() => room.copy_from_slice(more),
            _ => {
                if self.spilled.is_empty() {
                    let kept = self.inline.get(..self.len).unwrap_or_default();
                    self.spilled.extend_from_slice(kept);
                }
                self.spilled.extend_from_slice(more);
            }
        }
        self.len = end;
    }

    fn as_slice(&self) -> &[u8] {
        if self.spilled.is_empty() {
            self.inline.get(..self.len).unwrap_or_default()
        } else {
            &self.spilled
        }
    }
}

#[derive(Clone)]
struct Draft {
    /// The text from its first byte that is not white space; unbounded: from its first byte.
    bytes: Kept,
    /// A character whose bytes have not all come.
    partial: [u8; 4],
    partial_len: usize,
    /// White space was dropped after what is kept.
    gap: bool,
    /// More than the bound has come.
    beyond: bool,
    capture: Capture,
    unescape: Unescape,
}

impl Draft {
    fn new(capture: Capture) -> Self {
        let (bytes, unescape) = (Kept::new(), Unescape::default());
        let (partial, partial_len) = ([0; 4], 0);
        Self {
            bytes,
            partial,
            partial_len,
            gap: false,
            beyond: false,
            capture,
            unescape,
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.partial_len = 0;
        (self.gap, self.beyond) = (false, false);
        self.unescape = Unescape::default();
    }

    fn piece(&mut self, raw: &[u8], last: bool) {
        if self.is_given_up(raw) {
            return;
        }
        let mut unescape = std::mem::take(&mut self.unescape);
        // In steps, so that nothing is decoded once the bound is passed.
        for step in raw.chunks(USER_TEXT_BYTES_MAX) {
            if self.beyond {
                break;
            }
            unescape.feed(step, |text| self.text(text));
        }
        if last {
            unescape.finish(|text| self.text(text));
        }
        self.unescape = unescape;
    }

    /// Whether nothing of this text will be kept, as its first byte tells where it is plain.
    fn is_given_up(&mut self, raw: &[u8]) -> bool {
        let first = raw.first().filter(|_| self.is_untouched());
        let plain = first.filter(|byte| byte.is_ascii_graphic() && **byte != b'\\');
        self.beyond |= plain.is_some_and(|byte| *byte != USER_TEXT_FIRST);
        self.beyond
    }

    /// Whether no byte of the text has come, and one that is plain would be its first.
    fn is_untouched(&self) -> bool {
        self.capture == Capture::Bounded
            && self.bytes.len == 0
            && self.partial_len == 0
            && self.unescape.is_plain()
    }

    fn text(&mut self, text: &[u8]) {
        match self.capture {
            Capture::Unbounded => self.bytes.extend_from_slice(text),
            Capture::Bounded => self.bounded(text),
        }
    }

    fn bounded(&mut self, mut text: &[u8]) {
        while let [first, rest @ ..] = text {
            if self.beyond {
                return;
            }
            let inside = self.bytes.len > 0 && self.partial_len == 0 && !self.gap;
            let room = if inside {
                USER_TEXT_BYTES_MAX - self.bytes.len
            } else {
                0
            };
            let ascii = text.iter().take(room).take_while(|b| b.is_ascii()).count();
            if ascii == 0 {
                self.byte(*first);
                text = rest;
            } else {
                let (plain, rest) = text.split_at(ascii);
                self.bytes.extend_from_slice(plain);
                text = rest;
            }
        }
    }

    /// Takes a byte of UTF-8; judges the character when it is complete.
    fn byte(&mut self, byte: u8) {
        self.partial[self.partial_len] = byte;
        self.partial_len += 1;
        // Continuations still to come are told by the lead byte (RFC 3629 §3).
        let len = (self.partial[0].leading_ones() as usize).clamp(1, 4);
        if self.partial_len < len {
            return;
        }
        self.partial_len = 0;
        let character = &self.partial[..len];
        let blank = std::str::from_utf8(character).is_ok_and(|c| c.trim().is_empty());
        let fits = !self.gap && self.bytes.len + len <= USER_TEXT_BYTES_MAX;
        match (blank, fits) {
            (true, _) if self.bytes.len == 0 => {}
            (false, _) if self.bytes.len == 0 && character != [USER_TEXT_FIRST] => {
                self.beyond = true;
            }
            (_, true) => self.bytes.extend_from_slice(character),
            (true, false) => self.gap = true,
            (false, false) => self.beyond = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> Fact<String> {
        let mut texts = UserTexts::new(Capture::Bounded);
        texts.begin();
        for byte in text.as_bytes() {
            texts.piece(&[*byte], false);
        }
        texts.piece(b"", true);
        texts.keep();
        match texts.fact(true, true) {
            Fact::Found(found) => Fact::Found(found.as_str().trim().to_owned()),
            Fact::BeyondBound => Fact::BeyondBound,
            Fact::Absent => Fact::Absent,
            Fact::NotYet => Fact::NotYet,
        }
    }

    #[test]
    fn white_space_of_any_length_around_a_bounded_text() {
        let blank = "\u{a0}\u{3000} \u{85}\u{2028}".repeat(1000);
        let longest = format!("--{}", "é".repeat(USER_TEXT_BYTES_MAX / 2 - 1));
        for text in ["--who?", "- b", "", &longest] {
            let padded = format!("{blank}{text}{blank}");
            assert_eq!(judge(&padded), Fact::Found(text.to_owned()));
        }
        assert_eq!(
            judge(&format!("{blank}{longest}x{blank}")),
            Fact::BeyondBound
        );
        assert_eq!(judge(&format!("-{blank}x")), Fact::BeyondBound);
        for text in ["a b", "\u{200b}--who?", "é", "\u{ad}-", "_"] {
            for padded in [text.to_owned(), format!("{blank}{text}")] {
                assert_eq!(judge(&padded), Fact::BeyondBound, "{text}");
            }
        }
    }

    #[test]
    fn the_first_byte_tells_also_where_it_is_escaped() {
        let judge = |pieces: &[&str]| {
            let mut texts = UserTexts::new(Capture::Bounded);
            texts.begin();
            for piece in pieces {
                texts.piece(piece.as_bytes(), false);
            }
            texts.piece(b"", true);
            texts.keep();
            texts
                .fact(true, true)
                .found()
                .map(|found| found.as_str().to_owned())
        };
        assert_eq!(judge(&["\\u00", "2d-who?"]).as_deref(), Some("--who?"));
        assert_eq!(judge(&["\\", "n", "--who?"]).as_deref(), Some("--who?"));
        assert_eq!(judge(&["\\u0078", "--who?"]), None);
        assert_eq!(judge(&["\\", "u0078"]), None);
    }

    #[test]
    fn a_character_across_the_bound_is_beyond_it() {
        let text = format!("{}\u{3000}x", "-".repeat(USER_TEXT_BYTES_MAX - 1));
        assert_eq!(judge(&text), Fact::BeyondBound);
        let text = format!("{}\u{3000}", "-".repeat(USER_TEXT_BYTES_MAX - 1));
        assert_eq!(judge(&text), Fact::Found(text.trim().to_owned()));
    }
}
