//! Strings, by word algebra: where they are, and whether what is in them is sound.

use crate::json::Reason;
use crate::json::lanes::Lanes;
use crate::json::utf8::{Utf8, spill};

/// What earlier bytes mean for the next block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strings {
    /// All ones inside a string, else 0.
    inside: u64,
    /// 1 if the next byte is escaped.
    escaped: u64,
    /// Bits 0..4: positions that must be hexadecimal digits.
    hex_due: u64,
    utf8: Utf8,
}

/// One block's strings.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// Quotes that open or close a string.
    pub(super) quotes: u64,
    /// From an opening quote to before the closing one.
    pub(super) inside: u64,
    /// Bytes below 0x20.
    pub(super) controls: u64,
    /// Anything that needs a look even inside a string.
    special: u64,
    /// The first byte that no string, or no UTF-8 text, may have there.
    pub(super) fault: Option<(u32, Reason)>,
}

impl Words {
    /// Nothing but unremarkable text inside one string.
    #[inline(always)]
    pub(super) const fn is_plain_text(self) -> bool {
        self.special == 0 && self.inside == u64::MAX
    }

    /// Anything outside strings, or a quote.
    #[inline(always)]
    pub(super) const fn has_tokens(self) -> bool {
        self.quotes != 0 || self.inside != u64::MAX
    }
}

impl Strings {
    /// Reads the first `len` (1..=64) bytes of a block; the others are spaces.
    #[inline(always)]
    pub(super) fn read<L: Lanes>(&mut self, lanes: L, len: u32) -> Words {
        let (quote, backslash) = (lanes.eq(b'"'), lanes.eq(b'\\'));
        let odd = lanes.odd();
        let (controls, high) = match odd {
            0 => (0, 0),
            _ => (odd & !lanes.plane::<0>(), odd & lanes.plane::<0>()),
        };
        let carried = self.escaped | self.hex_due | u64::from(self.utf8.open());
        let special = quote | backslash | odd | carried;
        if special == 0 {
            let inside = self.inside;
            return Words {
                quotes: 0,
                inside,
                controls,
                special,
                fault: None,
            };
        }

        let escaped = self.escaped(backslash, len);
        let quotes = quote & !escaped;
        let inside = L::prefix_xor(quotes) ^ self.inside;
        self.inside = 0_u64.wrapping_sub(inside >> (len - 1) & 1);

        let mut escape_faults = 0;
        if escaped | self.hex_due != 0 {
            escape_faults = self.escapes(lanes, escaped, quote | backslash, len);
        }
        let mut utf8_faults = 0;
        if high != 0 || self.utf8.open() {
            utf8_faults = self.utf8.check(lanes, len);
        }
        let control_faults = controls & inside;
        let faults = escape_faults | utf8_faults | control_faults;
        let fault = (faults != 0).then(|| {
            let bit = faults.trailing_zeros();
            let first = 1 << bit;
            let reason = if utf8_faults & first != 0 {
                Reason::Utf8
            } else if control_faults & first != 0 {
                Reason::Control
            } else {
                Reason::Escape
            };
            (bit, reason)
        });
        Words {
            quotes,
            inside,
            controls,
            special,
            fault,
        }
    }

    /// Bytes that a backslash before them escapes.
    ///
    /// In a run of backslashes every other one escapes. The subtraction finds, for every run, whether
    /// it started at an odd or even bit and flips the bits of the run accordingly.
    #[inline(always)]
    fn escaped(&mut self, backslash: u64, len: u32) -> u64 {
        const ODD: u64 = 0xAAAA_AAAA_AAAA_AAAA;
        if backslash == 0 {
            return std::mem::take(&mut self.escaped);
        }
        let may_escape = backslash & !self.escaped;
        let runs = (may_escape << 1 | ODD).wrapping_sub(may_escape) ^ ODD;
        let escaped = runs ^ (backslash | self.escaped);
        let escaping = runs & backslash;
        self.escaped = escaping >> (len - 1) & 1;
        escaped & (u64::MAX >> (64 - len))
    }

    /// Marks escapes that do not exist: an unknown letter, or a byte after `\u` that is no digit.
    #[inline(always)]
    fn escapes<L: Lanes>(&mut self, lanes: L, escaped: u64, quoting: u64, len: u32) -> u64 {
        let rare = escaped & !(quoting | lanes.fnrt_slash());
        if rare | self.hex_due == 0 {
            return 0;
        }
        let unicode = rare & lanes.eq(b'u');
        let unknown = rare & !(unicode | lanes.eq(b'b'));
        if unicode | self.hex_due == 0 {
            return unknown;
        }
        let due = unicode << 1 | unicode << 2 | unicode << 3 | unicode << 4 | self.hex_due;
        let beyond = unicode >> 63 | unicode >> 62 | unicode >> 61 | unicode >> 60;
        self.hex_due = spill(due, beyond, len);
        (unknown | due & !hexadecimal(lanes)) & (u64::MAX >> (64 - len))
    }
}

/// `0..=9` is 0011_0000 to 0011_1001; `A..=F` and `a..=f` are 01x0_0001 to 01x0_0110.
#[inline(always)]
fn hexadecimal<L: Lanes>(lanes: L) -> u64 {
    let (b7, b6) = (lanes.plane::<0>(), lanes.plane::<1>());
    let (b5, b4, b3) = (lanes.plane::<2>(), lanes.plane::<3>(), lanes.plane::<4>());
    let (b2, b1, b0) = (lanes.plane::<5>(), lanes.plane::<6>(), lanes.plane::<7>());
    let digit = !b6 & b5 & b4 & !(b3 & (b2 | b1));
    let letter = b6 & !b4 & !b3 & (b2 | b1 | b0) & !(b2 & b1 & b0);
    !b7 & (digit | letter)
}
