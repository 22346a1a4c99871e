//! UTF-8 as algebra on bit planes (RFC 3629 §4): which bytes are continuations, and which should be.

use crate::json::lanes::Lanes;

/// What the bytes before a block demand of its first bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utf8 {
    /// Bits 0..3: positions that must be continuations.
    due: u64,
    /// Bit 0: the first byte follows 0xE0, 0xED, 0xF0, 0xF4, each of which narrows it.
    after: [u64; 4],
}

/// Moves bits at and above `n` down to bit 0: `within` holds bits 0..64 and `beyond` those from 64
/// on. `n` is 1..=64.
#[inline(always)]
pub(super) fn spill(within: u64, beyond: u64, n: u32) -> u64 {
    within.checked_shr(n).unwrap_or(0) | beyond << (64 - n)
}

impl Utf8 {
    /// Whether a character is open.
    #[inline(always)]
    pub(super) const fn open(self) -> bool {
        self.due != 0
    }

    /// Marks each of the first `n` bytes of a block that cannot continue what stands before it.
    #[inline(always)]
    pub(super) fn check<L: Lanes>(&mut self, lanes: L, n: u32) -> u64 {
        let (b7, b6) = (lanes.plane::<0>(), lanes.plane::<1>());
        let (b5, b4, b3) = (lanes.plane::<2>(), lanes.plane::<3>(), lanes.plane::<4>());
        let (b2, b1, b0) = (lanes.plane::<5>(), lanes.plane::<6>(), lanes.plane::<7>());

        let continuation = b7 & !b6;
        let lead = b7 & b6;
        let (lead3, lead4) = (lead & b5 & !b4, lead & b5 & b4 & !b3);
        let (from3, from4) = (lead & b5, lead & b5 & b4);
        let due = lead << 1 | from3 << 2 | from4 << 3 | self.due;
        let never = (lead & !(b5 | b4 | b3 | b2 | b1)) // C0, C1: overlong
            | (lead4 & b2 & (b1 | b0)) // F5..F7: beyond U+10FFFF
            | (from4 & b3); // F8..FF
        let narrowing = [
            lead3 & !(b3 | b2 | b1 | b0), // E0 then A0..BF, else overlong
            lead3 & b3 & b2 & !b1 & b0,   // ED then 80..9F, else a surrogate
            lead4 & !(b2 | b1 | b0),      // F0 then 90..BF, else overlong
            lead4 & b2 & !(b1 | b0),      // F4 then 80..8F, else beyond U+10FFFF
        ];
        let wrong = [!b5, b5, !(b5 | b4), b5 | b4];

        let mut errors = (due ^ continuation) | never;
        for ((narrow, after), wrong) in narrowing.iter().zip(&mut self.after).zip(wrong) {
            errors |= (narrow << 1 | *after) & wrong;
            *after = spill(narrow << 1, narrow >> 63, n) & 1;
        }
        self.due = spill(due, lead >> 63 | from3 >> 62 | from4 >> 61, n);
        errors & (u64::MAX >> (64 - n))
    }
}
