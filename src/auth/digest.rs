//! A client's key as the gateway keeps it: its SHA-256 and nothing else.
//!
//! A plain hash without salt is enough, because these keys are made by machines and long: nobody
//! guesses 128 random bits, with or without the hash. Comparing digests instead of keys also takes
//! the worth out of timing: who presents a key cannot choose its digest.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of the shortest key that may be configured. 16 characters of base64 hold 96 random bits.
pub const KEY_BYTES_MIN: usize = 16;

/// Bytes of the longest key. Longer ones are never looked up, so that an access token of a few
/// thousand bytes, which is meant for a provider, costs no hashing.
pub const KEY_BYTES_MAX: usize = 512;

/// The SHA-256 of a key (FIPS 180-4).
#[derive(Clone, Copy, Eq)]
pub struct Digest([u8; 32]);

/// Why a text is not a digest or not a key. Never shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Not 64 hexadecimal digits.
    NotDigest,
    /// The digest of no bytes at all: of a variable that was unset when it was hashed, mostly.
    OfNothing,
    /// Too short or too long, in bytes.
    Length(usize),
    /// The byte at this offset cannot stand in a bearer token.
    NotVisible {
        /// Offset in bytes from the start of the key.
        at: usize,
    },
}

impl Digest {
    /// The digest of a key as it was presented, whatever it is.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The digest of a key that may be configured.
    ///
    /// # Errors
    /// A length outside [`KEY_BYTES_MIN`] to [`KEY_BYTES_MAX`], and bytes outside `0x21..=0x7e`.
    pub fn of_key(key: &str) -> Result<Self, KeyError> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(KeyError::Length(key.len()));
        }
        match key.bytes().position(|byte| !byte.is_ascii_graphic()) {
            Some(at) => Err(KeyError::NotVisible { at }),
            None => Ok(Self::of(key.as_bytes())),
        }
    }

    /// Reads 64 hexadecimal digits of any letter case, as `sha256sum` prints them.
    ///
    /// # Errors
    /// Anything else, and the digest of the empty key.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let mut digest = [0; 32];
        if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(KeyError::NotDigest);
        }
        for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| KeyError::NotDigest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| KeyError::NotDigest)?;
        }
        let digest = Self(digest);
        if digest == Self::of(b"") {
            return Err(KeyError::OfNothing);
        }
        Ok(digest)
    }
}

/// In constant time: how far two digests agree shows nowhere.
impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// For a map with a random seed: where a digest is looked for says nothing about it.
impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Lower-case hexadecimal.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// That it exists; a debug dump needs no more.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(set)")
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDigest => {
                f.write_str("expected a SHA-256 as 64 hexadecimal digits (what came is not shown)")
            }
            Self::OfNothing => f.write_str(
                "this is the SHA-256 of no bytes at all: what was to be hashed was empty",
            ),
            Self::Length(got) => write!(
                f,
                "expected a key of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, got {got}"
            ),
            Self::NotVisible { at } => write!(
                f,
                "expected visible ASCII without white space, got another byte at offset {at}"
            ),
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4, the one-block example of its annex.
    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn digests_read_and_print() {
        assert_eq!(Digest::of(b"abc").to_string(), OF_ABC);
        assert_eq!(Digest::from_hex(OF_ABC), Ok(Digest::of(b"abc")));
        let upper = OF_ABC.to_ascii_uppercase();
        assert_eq!(Digest::from_hex(&upper), Ok(Digest::of(b"abc")));
        assert!(Digest::of(b"abc") != Digest::of(b"abd"));
        assert_eq!(format!("{:?}", Digest::of(b"abc")), "Digest(set)");
    }

    #[test]
    fn anything_else_is_no_digest() {
        let short = &OF_ABC[1..];
        let sign = format!("+{short}");
        let wide = format!("é{}", &OF_ABC[2..]);
        for text in ["", "abc", short, &sign, &wide, &format!("{OF_ABC}0")] {
            assert_eq!(Digest::from_hex(text), Err(KeyError::NotDigest), "{text}");
        }
        let of_nothing = Digest::of(b"").to_string();
        assert_eq!(Digest::from_hex(&of_nothing), Err(KeyError::OfNothing));
    }

    #[test]
    fn keys_are_long_and_visible() {
        let longest = "k".repeat(KEY_BYTES_MAX);
        for key in ["0123456789abcdef", "!~#$%&'()*+,-./:;", &longest] {
            assert_eq!(Digest::of_key(key), Ok(Digest::of(key.as_bytes())));
        }
        for (key, error) in [
            ("0123456789abcde", KeyError::Length(15)),
            (&format!("{longest}k"), KeyError::Length(513)),
            ("", KeyError::Length(0)),
            ("Bearer 0123456789", KeyError::NotVisible { at: 6 }),
            ("0123456789abcdef\n", KeyError::NotVisible { at: 16 }),
            ("0123456789abcdé", KeyError::NotVisible { at: 14 }),
        ] {
            assert_eq!(Digest::of_key(key), Err(error), "{key:?}");
        }
    }
}
