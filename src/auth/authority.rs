//! What the gateway vouches for: identifiers of sessions that nobody else can make.
//!
//! An identifier is an HMAC of what is meant under a key of the gateway's own, so that who knows the name of a
//! client and what its conversation is called knows nothing of the identifier, and two clients that call their
//! conversations alike have two sessions. A token carries such an identifier to a client and back, bound to the
//! client that it was made for and valid for a week. It is no credential: it says which session, never who.

use std::fmt;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of the shortest key: those of what it makes.
pub const AUTHORITY_KEY_BYTES_MIN: usize = 32;

/// How long a token is valid.
pub const SESSION_TOKEN_VALID: Duration = Duration::from_hours(168);

/// Bytes of a token: version, key id, time of issue, number and code, in hexadecimal with dots.
pub const SESSION_TOKEN_BYTES: usize = 2 + 1 + 8 + 1 + 16 + 1 + 32 + 1 + 64;

/// Block of SHA-256 (FIPS 180-4 §1).
const BLOCK: usize = 64;

/// The key of the gateway.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// The key, or its digest where it is longer than a block (RFC 2104 §2), and zeros.
    block: [u8; BLOCK],
    /// Tells keys apart; says nothing about them.
    id: [u8; 4],
}

/// Why bytes are no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTooShort {
    /// The bytes that came.
    pub got: usize,
}

impl fmt::Display for KeyTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let got = self.got;
        write!(
            f,
            "expected a key of {AUTHORITY_KEY_BYTES_MIN} bytes or more, got {got}"
        )
    }
}

impl std::error::Error for KeyTooShort {}

/// Why a token leads to no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// Not made by this gateway, or not for this client.
    NotOurs,
    /// Made too long ago.
    Expired,
}

impl Authority {
    /// The authority with this key.
    ///
    /// # Errors
    /// A key of less than [`AUTHORITY_KEY_BYTES_MIN`] bytes.
    pub fn new(key: &[u8]) -> Result<Self, KeyTooShort> {
        if key.len() < AUTHORITY_KEY_BYTES_MIN {
            return Err(KeyTooShort { got: key.len() });
        }
        Ok(Self::of(key))
    }

    fn of(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if let Some(start) = block.get_mut(..key.len()) {
            start.copy_from_slice(key);
        } else {
            let digest: [u8; 32] = Sha256::digest(key).into();
            block[..32].copy_from_slice(&digest);
        }
        let mut authority = Self { block, id: [0; 4] };
        let id = authority.code(b"id", &[]);
        authority.id.copy_from_slice(&id[..4]);
        authority
    }

    /// The identifier of a conversation of a principal.
    #[must_use]
    pub fn leg(&self, principal: &str, conversation: &str) -> [u8; 32] {
        self.code(b"a_leg", &[principal.as_bytes(), conversation.as_bytes()])
    }

    /// A token for a new session of a principal, empty where clients have no names. `number` has to differ from
    /// every other one.
    #[must_use]
    pub fn token(&self, principal: &str, number: u128, now: Duration) -> String {
        let (seconds, number) = (now.as_secs().to_be_bytes(), number.to_be_bytes());
        let code = self.code(b"token", &[principal.as_bytes(), &seconds, &number]);
        let mut token = String::with_capacity(SESSION_TOKEN_BYTES);
        token.push_str("v1");
        for part in [&self.id[..], &seconds, &number, &code] {
            token.push('.');
            push_hex(&mut token, part);
        }
        token
    }

    /// The identifier of the session that a token was made for, if it was made for this principal.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn session(
        &self,
        token: &[u8],
        principal: &str,
        now: Duration,
    ) -> Result<[u8; 32], TokenError> {
        let parts = parts(token).ok_or(TokenError::NotOurs)?;
        let expected = self.code(
            b"token",
            &[principal.as_bytes(), &parts.seconds, &parts.number],
        );
        if parts.id != self.id || !bool::from(expected.ct_eq(&parts.code)) {
            return Err(TokenError::NotOurs);
        }
        let issued = Duration::from_secs(u64::from_be_bytes(parts.seconds));
        if now >= issued.saturating_add(SESSION_TOKEN_VALID) {
            return Err(TokenError::Expired);
        }
        Ok(self.code(b"secure_session", &[principal.as_bytes(), &parts.number]))
    }

    /// The code of a purpose and parts, each behind its length, so that no two lists of parts are the same bytes.
    fn code(&self, purpose: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.hmac(|text| {
            for part in [purpose].iter().chain(parts) {
                text.update((part.len() as u64).to_be_bytes());
                text.update(part);
            }
        })
    }

    /// HMAC-SHA-256 (RFC 2104) of what is fed.
    fn hmac(&self, feed: impl FnOnce(&mut Sha256)) -> [u8; 32] {
        let pad = |with: u8| self.block.map(|byte| byte ^ with);
        let mut inner = Sha256::new_with_prefix(pad(0x36));
        feed(&mut inner);
        let outer = Sha256::new_with_prefix(pad(0x5c));
        outer.chain_update(inner.finalize()).finalize().into()
    }
}

/// That it exists.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority(set)")
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
}

/// The parts of a token.
struct Parts {
    id: [u8; 4],
    seconds: [u8; 8],
    number: [u8; 16],
    code: [u8; 32],
}

fn parts(token: &[u8]) -> Option<Parts> {
    if token.len() != SESSION_TOKEN_BYTES {
        return None;
    }
    let rest = token.strip_prefix(b"v1")?;
    let (id, rest) = take(rest)?;
    let (seconds, rest) = take(rest)?;
    let (number, rest) = take(rest)?;
    let (code, rest) = take(rest)?;
    rest.is_empty().then_some(Parts {
        id,
        seconds,
        number,
        code,
    })
}

/// A dot and as many bytes as asked for, in lower-case hexadecimal.
fn take<const N: usize>(text: &[u8]) -> Option<([u8; N], &[u8])> {
    let text = text.strip_prefix(b".")?;
    let (digits, rest) = text.split_at_checked(2 * N)?;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?;
    }
    Some((bytes, rest))
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_796_000_000);

    fn authority() -> Authority {
        Authority::new(&[0xaa; 131]).unwrap()
    }

    /// RFC 4231 §4.7: a key longer than a block. The input is given as it is, without lengths.
    #[test]
    fn codes_are_those_of_the_standard() {
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let code = authority().hmac(|input| input.update(text));
        let mut text = String::new();
        push_hex(&mut text, &code);
        assert_eq!(
            text,
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn two_principals_with_one_label_have_two_sessions() {
        let authority = authority();
        let one = authority.leg("a", "c:x");
        assert_eq!(one, authority.leg("a", "c:x"));
        assert_ne!(one, authority.leg("b", "c:x"));
        // No part runs into the next.
        assert_ne!(authority.leg("ab", "c"), authority.leg("a", "bc"));
        let other = Authority::new(&[1; 32]).unwrap();
        assert_ne!(one, other.leg("a", "c:x"));
    }

    #[test]
    fn a_token_leads_to_its_session_for_a_week_and_for_its_principal_only() {
        let authority = authority();
        let token = authority.token("a", 7, NOW);
        assert_eq!(token.len(), SESSION_TOKEN_BYTES);
        let session = authority.session(token.as_bytes(), "a", NOW).unwrap();
        let last = NOW + SESSION_TOKEN_VALID - Duration::from_secs(1);
        assert_eq!(authority.session(token.as_bytes(), "a", last), Ok(session));
        let late = authority.session(token.as_bytes(), "a", NOW + SESSION_TOKEN_VALID);
        assert_eq!(late, Err(TokenError::Expired));
        let theirs = authority.session(token.as_bytes(), "b", NOW);
        assert_eq!(theirs, Err(TokenError::NotOurs));
        let next = authority.token("a", 8, NOW);
        assert_ne!(authority.session(next.as_bytes(), "a", NOW), Ok(session));
        let other = Authority::new(&[1; 32]).unwrap();
        let foreign = other.session(token.as_bytes(), "a", NOW);
        assert_eq!(foreign, Err(TokenError::NotOurs));
    }

    #[test]
    fn every_changed_byte_of_a_token_is_noticed() {
        let authority = authority();
        let token = authority.token("a", 7, NOW).into_bytes();
        for at in 0..token.len() {
            for other in *b"0f.Z" {
                let mut changed = token.clone();
                changed[at] = other;
                let read = authority.session(&changed, "a", NOW);
                assert_eq!(read.is_ok(), changed == token, "{at}");
            }
        }
        for text in [&token[1..], &[&token[..], b"0"].concat(), b""] {
            let read = authority.session(text, "a", NOW);
            assert_eq!(read, Err(TokenError::NotOurs));
        }
    }

    #[test]
    fn short_keys_are_refused_and_none_is_shown() {
        assert_eq!(Authority::new(&[1; 31]), Err(KeyTooShort { got: 31 }));
        assert_eq!(format!("{:?}", authority()), "Authority(set)");
    }
}
