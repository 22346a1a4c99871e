//! Numbers and literals, byte by byte (RFC 8259 §3 and §6).

/// How far a number or literal has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    /// After `-`.
    Minus,
    /// After a leading zero.
    Zero,
    /// In the integer part.
    Integer,
    /// After the point.
    Point,
    /// In the fraction.
    Fraction,
    /// After `e`.
    Exponent,
    /// After the exponent's sign.
    Sign,
    /// In the exponent's digits.
    Power,
    /// The bytes that a literal still needs.
    Literal(&'static [u8]),
}

impl Scalar {
    /// The state after the first byte of a scalar, if it can start one.
    #[inline(always)]
    pub(super) const fn start(byte: u8) -> Option<Self> {
        Some(match byte {
            b'-' => Self::Minus,
            b'0' => Self::Zero,
            b'1'..=b'9' => Self::Integer,
            b't' => Self::Literal(b"rue"),
            b'f' => Self::Literal(b"alse"),
            b'n' => Self::Literal(b"ull"),
            _ => return None,
        })
    }

    /// The state after one more byte, if the grammar allows it.
    #[inline(always)]
    pub(super) fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::Sign,
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            (Self::Literal([next, rest @ ..]), _) if *next == byte => Self::Literal(rest),
            _ => return None,
        })
    }

    /// Whether the scalar may end here.
    #[inline(always)]
    pub(super) const fn complete(self) -> bool {
        match self {
            Self::Zero | Self::Integer | Self::Fraction | Self::Power => true,
            Self::Literal(rest) => rest.is_empty(),
            Self::Minus | Self::Point | Self::Exponent | Self::Sign => false,
        }
    }
}
