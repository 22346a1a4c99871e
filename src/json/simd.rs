//! The AVX2 lanes, and the choice of lanes for this processor.
//!
//! The only `unsafe` of this module. [`Level`] can be `Avx2` only after the processor was asked, and
//! `Avx2` is private to this file and used only below `drive_avx2`.
#![expect(
    unsafe_code,
    reason = "vector instructions; every block answers as the portable lanes do (property test)"
)]

use crate::json::lanes::Swar;
use crate::json::scan::Scanner;
use crate::json::{Broken, Sink};

/// Which lanes a scanner uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Level {
    /// Lanes that every processor has.
    pub(super) const PORTABLE: Self = Self(Kind::Portable);

    /// The best lanes of this processor; asks once per process.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("lzcnt")
        {
            return Self(Kind::Avx2);
        }
        Self::PORTABLE
    }
}

/// Scans `chunk` with the lanes of `level`.
#[inline]
pub(super) fn drive<S: Sink>(
    level: Level,
    scanner: &mut Scanner,
    chunk: &[u8],
    sink: &mut S,
) -> Result<(), Broken> {
    match level.0 {
        Kind::Portable => scanner.drive::<Swar, S>(chunk, sink),
        // SAFETY: `Kind::Avx2` is made only by `Level::detect`, after it found the features.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { x86::drive_avx2(scanner, chunk, sink) },
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_set_epi64x,
        _mm_set1_epi8, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8,
        _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
        _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_testz_si256,
    };

    use crate::json::lanes::{BLOCK, Lanes};
    use crate::json::scan::Scanner;
    use crate::json::{Broken, Sink};

    #[target_feature(enable = "avx2,pclmulqdq,bmi1,lzcnt")]
    pub(super) fn drive_avx2<S: Sink>(
        scanner: &mut Scanner,
        chunk: &[u8],
        sink: &mut S,
    ) -> Result<(), Broken> {
        scanner.drive::<Avx2, S>(chunk, sink)
    }

    /// Two vectors of 32 bytes.
    #[derive(Clone, Copy)]
    struct Avx2(__m256i, __m256i);

    // SAFETY of every block in this impl: `Avx2` is named only by `drive_avx2`, whose own features
    // cover those of the function called.
    impl Lanes for Avx2 {
        #[inline(always)]
        fn load(block: &[u8; BLOCK]) -> Self {
            // SAFETY: see the impl.
            unsafe { load(block) }
        }

        #[inline(always)]
        fn eq(self, byte: u8) -> u64 {
            // SAFETY: see the impl.
            unsafe { eq(self, byte) }
        }

        #[inline(always)]
        fn odd(self) -> u64 {
            // SAFETY: see the impl.
            unsafe { odd(self) }
        }

        #[inline(always)]
        fn fnrt_slash(self) -> u64 {
            // SAFETY: see the impl.
            unsafe { fnrt_slash(self) }
        }

        #[inline(always)]
        fn white(self) -> u64 {
            // SAFETY: see the impl.
            unsafe { white(self) }
        }

        #[inline(always)]
        fn structural(self) -> u64 {
            // SAFETY: see the impl.
            unsafe { structural(self) }
        }

        #[inline(always)]
        fn plane<const K: i32>(self) -> u64 {
            // SAFETY: see the impl.
            unsafe { plane::<K>(self) }
        }

        #[inline(always)]
        fn prefix_xor(bits: u64) -> u64 {
            // SAFETY: see the impl.
            unsafe { prefix_xor(bits) }
        }

        #[inline(always)]
        fn plain(bytes: &[u8]) -> usize {
            // SAFETY: see the impl.
            unsafe { plain(bytes) }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(block: &[u8; BLOCK]) -> Avx2 {
        let (halves, _) = block.as_chunks::<32>();
        Avx2(load_half(&halves[0]), load_half(&halves[1]))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_half(half: &[u8; 32]) -> __m256i {
        // SAFETY: the reference covers the 32 bytes read; the load needs no alignment.
        unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
    }

    /// The top bit of every byte.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn tops(low: __m256i, high: __m256i) -> u64 {
        let low = _mm256_movemask_epi8(low).cast_unsigned();
        let high = _mm256_movemask_epi8(high).cast_unsigned();
        u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn eq(Avx2(low, high): Avx2, byte: u8) -> u64 {
        let wanted = _mm256_set1_epi8(byte.cast_signed());
        tops(
            _mm256_cmpeq_epi8(low, wanted),
            _mm256_cmpeq_epi8(high, wanted),
        )
    }

    /// As signed bytes, those outside ASCII are below 0x20 too.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn odd(Avx2(low, high): Avx2) -> u64 {
        let space = _mm256_set1_epi8(0x20);
        tops(
            _mm256_cmpgt_epi8(space, low),
            _mm256_cmpgt_epi8(space, high),
        )
    }

    /// A table with one byte for each low nibble, in both halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn nibbles(table: [u8; 16]) -> __m256i {
        // SAFETY: the reference covers the 16 bytes read; the load needs no alignment.
        let half = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        _mm256_broadcastsi128_si256(half)
    }

    /// Bytes that the table names for their own low nibble. 0xFF names none: the shuffle gives 0 for
    /// bytes above 0x7F.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn named(v: __m256i, table: __m256i) -> __m256i {
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, v), v)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn white(Avx2(low, high): Avx2) -> u64 {
        const TABLE: [u8; 16] = {
            let mut t = [0xFF; 16];
            t[0x0] = b' ';
            t[0x9] = b'\t';
            t[0xA] = b'\n';
            t[0xD] = b'\r';
            t
        };
        let table = nibbles(TABLE);
        tops(named(low, table), named(high, table))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn fnrt_slash(Avx2(low, high): Avx2) -> u64 {
        const TABLE: [u8; 16] = {
            let mut t = [0xFF; 16];
            t[0x2] = b'r';
            t[0x4] = b't';
            t[0x6] = b'f';
            t[0xE] = b'n';
            t[0xF] = b'/';
            t
        };
        let table = nibbles(TABLE);
        tops(named(low, table), named(high, table))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn structural(Avx2(low, high): Avx2) -> u64 {
        const TABLE: [u8; 16] = {
            let mut t = [0xFF; 16];
            t[0xA] = b':';
            t[0xB] = b'{';
            t[0xC] = b',';
            t[0xD] = b'}';
            t
        };
        let table = nibbles(TABLE);
        // `[` and `]` differ from `{` and `}` in this bit alone; 0x0C and 0x1A become `,` and `:`.
        let curly = _mm256_set1_epi8(0x20);
        let is = |v| named(_mm256_or_si256(v, curly), table);
        tops(is(low), is(high))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn plane<const K: i32>(Avx2(low, high): Avx2) -> u64 {
        // Bits that cross into the neighbour byte of a pair stay below its top bit.
        tops(_mm256_slli_epi16::<K>(low), _mm256_slli_epi16::<K>(high))
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn prefix_xor(bits: u64) -> u64 {
        // A carry-less product with all ones is the running parity.
        let bits = _mm_set_epi64x(0, bits.cast_signed());
        let product = _mm_clmulepi64_si128::<0>(bits, _mm_set1_epi8(-1));
        _mm_cvtsi128_si64(product).cast_unsigned()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn plain(bytes: &[u8]) -> usize {
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        let mut passed = 0;
        for block in blocks {
            let Avx2(low, high) = load(block);
            let special = _mm256_or_si256(special(low), special(high));
            if _mm256_testz_si256(special, special) == 0 {
                break;
            }
            passed += BLOCK;
        }
        passed
    }

    /// Non-zero bytes for quote, backslash, control character, and all above 0x7F.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn special(v: __m256i) -> __m256i {
        const TABLE: [u8; 16] = {
            let mut t = [0xFF; 16];
            t[0x2] = b'"';
            t[0xC] = b'\\';
            t
        };
        // As signed bytes, those above 0x7F are below 0x20 too.
        let low = _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), v);
        _mm256_or_si256(low, named(v, nibbles(TABLE)))
    }
}
