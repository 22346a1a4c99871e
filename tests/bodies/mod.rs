//! Request bodies made from a seed: mostly what clients send, often what they should not.

/// A member's name, and what makes its value.
type Choice<'a> = (&'a str, fn(&mut Bodies) -> String);

/// A small generator (xorshift64*), so that a seed is a body on every machine.
pub(crate) struct Bodies(u64);

impl Bodies {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap() % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn blank(&mut self) -> String {
        let n = if self.below(8) == 0 {
            self.below(70)
        } else {
            self.below(2)
        };
        (0..n).map(|_| self.one(&[" ", "\n", "\t", "\r"])).collect()
    }

    /// `text` as a JSON string, now and then with needless escapes.
    fn quoted(&mut self, text: &str) -> String {
        let plain = self.below(4) != 0;
        let mut out = String::from("\"");
        for c in text.chars() {
            if !plain && self.below(3) == 0 {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out += &format!("\\u{unit:04x}");
                }
            } else if c == '"' || c == '\\' {
                out.push('\\');
                out.push(c);
            } else {
                out.push(c);
            }
        }
        out + "\""
    }

    /// The inside of a string, raw JSON.
    fn prose(&mut self) -> String {
        let n = match self.below(10) {
            0 => 0,
            1..=6 => self.below(6),
            7 | 8 => self.below(60),
            _ => self.below(400),
        };
        let pieces = [
            "a",
            "Z",
            " ",
            "\\n",
            "\\\"",
            "\\\\",
            "\\/",
            "\\t",
            "\\u0041",
            "\\u00a0",
            "\\ud83d\\ude00",
            "\\ud800",
            "\\udc00",
            "é",
            "漢",
            "😀",
            "--who?",
            "\u{3000}",
            "\u{a0}",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "the quick brown fox jumps over the lazy dog, again and again and again; ",
        ];
        (0..n).map(|_| self.one(&pieces)).collect()
    }

    fn string(&mut self) -> String {
        let inside = self.prose();
        format!("\"{inside}\"")
    }

    fn scalar(&mut self) -> String {
        let scalars = [
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1",
            "12",
            "-1.5e-7",
            "1E+2",
            "0.001",
            "1e999",
            "123456789012345678901234567890123456789012345678901234567890123456789",
        ];
        self.one(&scalars).to_owned()
    }

    /// Any value.
    pub(crate) fn value(&mut self, levels: usize) -> String {
        match self.below(if levels == 0 { 4 } else { 7 }) {
            0 | 1 => self.string(),
            2 | 3 => self.scalar(),
            4 => {
                let items = (0..self.below(5)).map(|_| self.value(levels - 1)).collect();
                self.list(items)
            }
            _ => {
                let members = (0..self.below(5)).map(|_| {
                    let names = [
                        "", "a", "role", "type", "text", "name", "content", "user_id", "\u{e9}",
                    ];
                    (self.one(&names), self.value(levels - 1))
                });
                let members = members.collect();
                self.object(members)
            }
        }
    }

    fn list(&mut self, items: Vec<String>) -> String {
        let mut out = String::from("[");
        for (i, item) in items.iter().enumerate() {
            out += if i == 0 { "" } else { "," };
            out += &(self.blank() + item + &self.blank());
        }
        out + &self.blank() + "]"
    }

    fn object(&mut self, members: Vec<(&str, String)>) -> String {
        let mut out = String::from("{");
        for (i, (name, value)) in members.iter().enumerate() {
            out += if i == 0 { "" } else { "," };
            let name = self.quoted(name);
            let (a, b, c, d) = (self.blank(), self.blank(), self.blank(), self.blank());
            out += &format!("{a}{name}{b}:{c}{value}{d}");
        }
        out + &self.blank() + "}"
    }

    /// `usual`, or sometimes any value.
    fn mostly(&mut self, usual: String) -> String {
        if self.below(9) == 0 {
            self.value(2)
        } else {
            usual
        }
    }

    /// Members out of `choices`, in some order, some twice.
    fn members<'a>(&mut self, choices: &[Choice<'a>]) -> Vec<(&'a str, String)> {
        let count = self.below(choices.len() + 2);
        let mut members = Vec::new();
        for _ in 0..count {
            let (name, make) = choices[self.below(choices.len())];
            let known = members.iter().any(|(n, _)| *n == name);
            if !known || self.below(8) == 0 {
                let usual = make(self);
                members.push((name, self.mostly(usual)));
            }
        }
        members
    }

    fn part(&mut self) -> String {
        let members = self.members(&[
            ("type", |b| {
                b.one(&["\"text\"", "\"input_text\"", "\"text\"", "\"image\""])
                    .to_owned()
            }),
            ("text", Self::string),
            ("type", |b| {
                b.one(&["\"text\"", "\"input_text\""]).to_owned()
            }),
            ("cache_control", |b| b.value(2)),
        ]);
        self.object(members)
    }

    fn entry(&mut self) -> String {
        let members = self.members(&[
            ("role", |b| {
                b.one(&["\"user\"", "\"user\"", "\"us\\u0065r\"", "\"assistant\""])
                    .to_owned()
            }),
            ("content", Self::string),
            ("content", |b| {
                let parts = (0..b.below(4)).map(|_| b.part()).collect();
                b.list(parts)
            }),
            ("role", |_| "\"user\"".to_owned()),
            ("type", |b| {
                b.one(&["\"message\"", "\"message\"", "\"function_call\""])
                    .to_owned()
            }),
            ("other", |b| b.value(3)),
        ]);
        self.object(members)
    }

    fn entries(&mut self) -> String {
        let entries = (0..self.below(5)).map(|_| {
            let usual = self.entry();
            self.mostly(usual)
        });
        let entries = entries.collect();
        self.list(entries)
    }

    fn callee(&mut self) -> String {
        let members = self.members(&[("name", Self::string), ("parameters", |b| b.value(3))]);
        self.object(members)
    }

    fn tool(&mut self) -> String {
        let members = self.members(&[
            ("type", |b| {
                b.one(&["\"function\"", "\"custom\"", "\"namespace\""])
                    .to_owned()
            }),
            ("name", Self::string),
            ("function", Self::callee),
            ("custom", Self::callee),
            ("tools", |b| {
                if b.below(3) == 0 {
                    b.tools()
                } else {
                    b.string()
                }
            }),
        ]);
        self.object(members)
    }

    fn tools(&mut self) -> String {
        let tools = (0..self.below(4)).map(|_| {
            let usual = self.tool();
            self.mostly(usual)
        });
        let tools = tools.collect();
        self.list(tools)
    }

    /// A body, valid JSON unless the nesting says otherwise.
    pub(crate) fn body(&mut self) -> String {
        let members = self.members(&[
            ("model", Self::string),
            ("stream", Self::scalar),
            ("messages", Self::entries),
            ("input", Self::entries),
            ("input", Self::string),
            ("tools", Self::tools),
            ("prompt_cache_key", Self::string),
            ("user", Self::string),
            ("session_id", Self::string),
            ("metadata", |b| {
                let members = b.members(&[("user_id", Self::string), ("x", |b| b.value(1))]);
                b.object(members)
            }),
            ("Model", |b| b.value(1)),
            ("\u{17f}tream", |b| b.value(1)),
            ("conversation", |b| b.value(2)),
            ("x", |b| b.value(4)),
        ]);
        let object = self.object(members);
        self.blank() + &object + &self.blank()
    }

    /// `body` with a few bytes changed, dropped, doubled or cut off.
    pub(crate) fn spoil(&mut self, body: &mut Vec<u8>) {
        let bytes = b"\"\\{}[]:,0-.eEutfn \n\0\x1f\x7f\x80\xbf\xc0\xc2\xe0\xed\xf0\xf4\xff";
        for _ in 0..=self.below(3) {
            if body.is_empty() {
                return;
            }
            let at = self.below(body.len());
            let byte = bytes[self.below(bytes.len())];
            match self.below(8) {
                0..=2 => body[at] = byte,
                3 | 4 => body.insert(at, byte),
                5 => _ = body.remove(at),
                6 => body.insert(at, body[at]),
                _ => body.truncate(at),
            }
        }
    }

    /// Cuts `body` into a few pieces, some of them empty.
    pub(crate) fn cut<'a>(&mut self, body: &'a [u8]) -> Vec<&'a [u8]> {
        let scale = [2, 8, 70, 130, 1000][self.below(5)];
        let longest = 1 + self.below(scale);
        let (mut pieces, mut rest) = (Vec::new(), body);
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(self.below(longest + 1).min(rest.len()));
            pieces.push(piece);
            rest = tail;
        }
        pieces
    }
}
