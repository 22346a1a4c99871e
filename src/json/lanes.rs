//! One block of 64 bytes, asked one question at a time; bit `i` of an answer is about byte `i`.

/// Bytes in a block.
pub(super) const BLOCK: usize = 64;

/// How a block answers. The portable form is [`Swar`]; `simd` has the other.
pub(super) trait Lanes: Copy {
    /// Takes a block.
    fn load(block: &[u8; BLOCK]) -> Self;
    /// Bytes equal to `byte`.
    fn eq(self, byte: u8) -> u64;
    /// Control characters (below 0x20) and bytes outside ASCII.
    fn odd(self) -> u64;
    /// The letters `f`, `n`, `r`, `t` and the slash.
    fn fnrt_slash(self) -> u64;
    /// JSON white space.
    fn white(self) -> u64;
    /// `{`, `}`, `[`, `]`, `:`, `,`; may also answer for control characters.
    fn structural(self) -> u64;
    /// Bit `7 - K` of every byte; `plane::<0>()` is "not ASCII".
    fn plane<const K: i32>(self) -> u64;
    /// Bit `i` is the parity of bits `0..=i` of `bits`.
    fn prefix_xor(bits: u64) -> u64;
    /// Length of the longest prefix of whole blocks with neither quote, backslash, control
    /// character nor a byte outside ASCII.
    fn plain(bytes: &[u8]) -> usize;
}

/// Eight words of eight bytes, for every processor.
#[derive(Clone, Copy)]
pub(super) struct Swar([u64; 8]);

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

impl Swar {
    /// Gathers the top bit of every byte of `f(word)`.
    #[inline(always)]
    fn gather(self, f: impl Fn(u64) -> u64) -> u64 {
        let mut bits = 0;
        for (i, word) in self.0.into_iter().enumerate() {
            // The product puts bit 8i of the first factor at bit 56 + i, without carries.
            let byte = ((f(word) & HIGHS) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            bits |= byte << (8 * i);
        }
        bits
    }
}

/// Top bit of every byte that is zero in `word`, exactly.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    !(((word & !HIGHS) + !HIGHS) | word) & HIGHS
}

/// Top bit of every byte of `word` equal to `byte`.
#[inline(always)]
const fn equals(word: u64, byte: u8) -> u64 {
    zeros(word ^ (ONES * byte as u64))
}

/// Top bit of every byte of `word` below 0x20: none of its upper three bits is set.
#[inline(always)]
const fn below_space(word: u64) -> u64 {
    zeros(word & (ONES * 0xE0))
}

impl Lanes for Swar {
    #[inline(always)]
    fn load(block: &[u8; BLOCK]) -> Self {
        let (words, _) = block.as_chunks::<8>();
        let mut loaded = [0; 8];
        for (to, from) in loaded.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*from);
        }
        Self(loaded)
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u64 {
        self.gather(|w| equals(w, byte))
    }

    #[inline(always)]
    fn odd(self) -> u64 {
        self.gather(|w| w | below_space(w))
    }

    #[inline(always)]
    fn fnrt_slash(self) -> u64 {
        self.gather(|w| {
            let letters = equals(w, b'f') | equals(w, b'n') | equals(w, b'r') | equals(w, b't');
            letters | equals(w, b'/')
        })
    }

    #[inline(always)]
    fn white(self) -> u64 {
        self.gather(|w| equals(w, b' ') | equals(w, b'\t') | equals(w, b'\n') | equals(w, b'\r'))
    }

    #[inline(always)]
    fn structural(self) -> u64 {
        self.gather(|w| {
            // `[` and `]` differ from `{` and `}` in this bit alone.
            let curly = w | (ONES * 0x20);
            equals(w, b',') | equals(w, b':') | equals(curly, b'{') | equals(curly, b'}')
        })
    }

    #[inline(always)]
    fn plane<const K: i32>(self) -> u64 {
        self.gather(|w| w << K)
    }

    #[inline(always)]
    fn prefix_xor(mut bits: u64) -> u64 {
        for shift in [1, 2, 4, 8, 16, 32] {
            bits ^= bits << shift;
        }
        bits
    }

    #[inline(always)]
    fn plain(bytes: &[u8]) -> usize {
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        let special = |block: &[u8; BLOCK]| {
            let words = Self::load(block).0.into_iter();
            words.fold(0, |m, w| {
                m | w & HIGHS | equals(w, b'"') | equals(w, b'\\') | below_space(w)
            })
        };
        let plain = blocks.iter().take_while(|b| special(b) == 0).count();
        plain * BLOCK
    }
}
