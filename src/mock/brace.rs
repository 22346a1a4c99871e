//! Where the root object of a body ends, found while the bytes arrive.
//!
//! Some providers decode with a stopping decoder: it runs the request when the root closes, not when
//! the framing ends. This tracker knows only strings, escapes and nesting, as much as such a decoder
//! needs to stop; it does not check the JSON.

/// Nesting state of the bytes seen so far.
#[derive(Debug, Default)]
pub(crate) struct Brace {
    depth: u64,
    in_string: bool,
    escaped: bool,
    closed: bool,
}

impl Brace {
    /// Feeds the next bytes. Answers how many of them belong to the root once it closes, the closing
    /// brace included; nothing while it is open, and nothing after it closed.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.closed {
            return None;
        }
        for (at, byte) in bytes.iter().enumerate() {
            if self.step(*byte) {
                self.closed = true;
                return Some(at + 1);
            }
        }
        None
    }

    /// True when this byte closes the root.
    fn step(&mut self, byte: u8) -> bool {
        if self.escaped {
            self.escaped = false;
            return false;
        }
        match (byte, self.in_string) {
            (b'\\', true) => self.escaped = true,
            (b'"', _) => self.in_string = !self.in_string,
            (b'{' | b'[', false) => self.depth += 1,
            (b'}' | b']', false) => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_at_the_root_only() {
        for (text, end) in [
            ("{}", Some(2)),
            ("{} {}", Some(2)),
            (" \n{\"a\":{\"b\":[1,{}]}}\n", Some(20)),
            (r#"{"a":"}"}"#, Some(9)),
            (r#"{"a":"\"}"}x"#, Some(11)),
            (r#"{"a":"\\"}x"#, Some(10)),
            (r#"{"a\u007d":1"#, None),
            ("{\"a\":{}", None),
            ("", None),
        ] {
            assert_eq!(Brace::default().feed(text.as_bytes()), end, "{text}");
        }
    }

    #[test]
    fn every_cut_of_the_input_closes_at_the_same_byte() {
        let text = br#" {"a":"x\"}\\","b":[{"c":"{"},[]]} tail"#;
        let whole = Brace::default().feed(text).unwrap();
        for cut in 0..=text.len() {
            let mut brace = Brace::default();
            let first = brace.feed(&text[..cut]);
            let second = brace.feed(&text[cut..]).map(|end| cut + end);
            assert_eq!(first.or(second), Some(whole), "cut at {cut}");
            assert!(
                first.is_none() || second.is_none(),
                "closed twice, cut at {cut}"
            );
        }
    }
}
