//! String escapes, both ways (RFC 8259 §7).

use memchr::memchr;

/// Appends `text` as a JSON string, quotes included. Only what must be escaped is.
pub fn quote(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Decodes the inside of a JSON string that comes in pieces, each cut anywhere.
///
/// The scanner has validated the pieces; on others the output is unspecified, but never a panic. A
/// surrogate without its partner becomes U+FFFD, so the output is always UTF-8 if the input is.
#[derive(Clone, Debug, Default)]
pub struct Unescape {
    state: State,
    /// A high surrogate that waits for its partner, else 0.
    high: u32,
    /// A lone surrogate is given in its three bytes.
    wtf8: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Plain,
    Backslash,
    /// After `\u`: digits seen, and their value.
    Unicode(u8, u32),
}

impl Unescape {
    /// Whether no escape is open.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.state, State::Plain) && self.high == 0
    }

    /// A decoder that gives a lone surrogate in the three bytes of WTF-8, so that two different ones stay
    /// different. What it gives need not be UTF-8.
    #[must_use]
    pub fn wtf8() -> Self {
        Self {
            wtf8: true,
            ..Self::default()
        }
    }

    /// Decodes one piece; `out` gets the text in order, never an empty slice.
    pub fn feed(&mut self, raw: &[u8], mut out: impl FnMut(&[u8])) {
        let mut rest = raw;
        while let [first, tail @ ..] = rest {
            match self.state {
                State::Plain => {
                    if *first == b'\\' {
                        self.state = State::Backslash;
                        rest = tail;
                        continue;
                    }
                    self.flush(&mut out);
                    let (plain, next) = rest.split_at(memchr(b'\\', rest).unwrap_or(rest.len()));
                    out(plain);
                    rest = next;
                }
                State::Backslash => {
                    rest = tail;
                    self.state = if *first == b'u' {
                        State::Unicode(0, 0)
                    } else {
                        self.flush(&mut out);
                        out(&[short(*first)]);
                        State::Plain
                    };
                }
                State::Unicode(seen, value) => {
                    rest = tail;
                    let value = value << 4 | char::from(*first).to_digit(16).unwrap_or(0);
                    self.state = if seen < 3 {
                        State::Unicode(seen + 1, value)
                    } else {
                        self.unit(value, &mut out);
                        State::Plain
                    };
                }
            }
        }
    }

    /// Ends the string and makes the decoder ready for the next one.
    pub fn finish(&mut self, mut out: impl FnMut(&[u8])) {
        self.flush(&mut out);
        self.state = State::Plain;
    }

    /// Takes one UTF-16 code unit.
    fn unit(&mut self, unit: u32, out: &mut impl FnMut(&[u8])) {
        match (self.high, unit) {
            (0, 0xD800..0xDC00) => self.high = unit,
            (0, 0xDC00..0xE000) => self.lone(unit, out),
            (0, _) => emit(unit, out),
            (high, 0xDC00..0xE000) => {
                self.high = 0;
                emit(0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00), out);
            }
            (_, _) => {
                self.flush(out);
                self.unit(unit, out);
            }
        }
    }

    /// Gives up on a waiting high surrogate.
    fn flush(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.high != 0 {
            let high = std::mem::take(&mut self.high);
            self.lone(high, out);
        }
    }

    /// A surrogate without its partner.
    fn lone(&self, unit: u32, out: &mut impl FnMut(&[u8])) {
        if !self.wtf8 {
            return emit(0xFFFD, out);
        }
        // The pattern of three bytes of UTF-8 (RFC 3629 §3), which forbids it for these.
        let six = |shift: u32| u8::try_from(unit >> shift & 0x3F).unwrap_or_default();
        out(&[0xED, 0x80 | six(6), 0x80 | six(0)]);
    }
}

fn emit(code: u32, out: &mut impl FnMut(&[u8])) {
    let decoded = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out(decoded.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The byte that a two-character escape stands for.
const fn short(letter: u8) -> u8 {
    match letter {
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        itself => itself,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `raw` in two pieces, cut at `cut`.
    fn decode(raw: &str, cut: usize) -> String {
        let (mut unescape, mut text) = (Unescape::default(), Vec::new());
        for piece in [&raw.as_bytes()[..cut], &raw.as_bytes()[cut..]] {
            unescape.feed(piece, |b| text.extend_from_slice(b));
        }
        unescape.finish(|b| text.extend_from_slice(b));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_escape_decodes_at_every_cut() {
        for (raw, text) in [
            (r#"a\"\\\/\b\f\n\r\tz"#, "a\"\\/\u{8}\u{c}\n\r\tz"),
            (r"\u0041\u00e9\u6F22\uD83D\ude00", "Aé漢😀"),
            (r"\ud800", "\u{fffd}"),
            (r"\ud800x", "\u{fffd}x"),
            (r"\ud800\n", "\u{fffd}\n"),
            (r"\udc00\ud800", "\u{fffd}\u{fffd}"),
            (r"\ud800\ud83d\ude00", "\u{fffd}😀"),
            (r"\ud800\u0041", "\u{fffd}A"),
        ] {
            for cut in 0..=raw.len() {
                assert_eq!(decode(raw, cut), text, "{raw} cut at {cut}");
            }
        }
    }

    #[test]
    fn quoted_text_reads_back() {
        let text: String = (0..0x80).map(char::from).chain("é漢😀".chars()).collect();
        let mut out = Vec::new();
        quote(&text, &mut out);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}
