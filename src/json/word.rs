//! Short words, escaped or not.

use std::fmt;

use crate::json::Unescape;

/// Bytes of the longest word that is told from others (per word).
pub const WORD_BYTES_MAX: usize = 64;

/// Collects a short word that may come in pieces and with escapes.
#[derive(Clone)]
pub struct Word {
    bytes: [u8; WORD_BYTES_MAX],
    len: usize,
    /// A piece of the word has come.
    open: bool,
    too_long: bool,
    unescape: Unescape,
}

impl Default for Word {
    fn default() -> Self {
        Self {
            bytes: [0; WORD_BYTES_MAX],
            len: 0,
            open: false,
            too_long: false,
            unescape: Unescape::default(),
        }
    }
}

/// What a word says may be a person's.
impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word").finish_non_exhaustive()
    }
}

impl Word {
    /// Takes the next piece of a word, as [`crate::json::Sink::key`] gets it: the decoded word, once its
    /// last piece has come; empty if it came in pieces or with escapes and is longer than
    /// [`WORD_BYTES_MAX`].
    pub fn take<'a>(&'a mut self, raw: &'a [u8], last: bool) -> Option<&'a [u8]> {
        if last && !self.open && !raw.contains(&b'\\') {
            return Some(raw);
        }
        if !self.open {
            (self.len, self.open, self.too_long) = (0, true, false);
        }
        let (bytes, len, too_long) = (&mut self.bytes, &mut self.len, &mut self.too_long);
        let mut keep = |text: &[u8]| match bytes.get_mut(*len..*len + text.len()) {
            Some(room) if !*too_long => {
                room.copy_from_slice(text);
                *len += text.len();
            }
            _ => *too_long = true,
        };
        self.unescape.feed(raw, &mut keep);
        if !last {
            return None;
        }
        self.unescape.finish(&mut keep);
        self.open = false;
        let len = if self.too_long { 0 } else { self.len };
        Some(&self.bytes[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_longer_than_any_known_one_are_no_word() {
        let mut word = Word::default();
        let long = [b'x'; WORD_BYTES_MAX];
        assert_eq!(word.take(&long, false), None);
        assert_eq!(word.take(b"y", true), Some(&b""[..]));
        assert_eq!(word.take(b"mod", false), None);
        assert_eq!(word.take(b"\\u0065l", true), Some(&b"model"[..]));
    }
}
