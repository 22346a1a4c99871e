//! Who calls: from the credentials in a request head to the client that they belong to.
//!
//! Decides, for the three fields in which a key may come, whose key it is and which fields are used
//! up by that. Reads every one of them in the same lenient way (with `Bearer` or without), because
//! what is not recognised as a client's key may be relayed as a credential for a provider: a strict
//! reading would leak what it refuses. Costs one SHA-256 for each such field, and a lookup.

use std::collections::HashMap;

use crate::auth::allowance::Allowance;
use crate::auth::digest::{Digest, KEY_BYTES_MAX};
use crate::http1::head::Field;

/// A client of one table; meaningful together with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrincipalId(usize);

impl PrincipalId {
    /// Its position in the table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Its name in logs.
    pub name: String,
    /// The SHA-256 of its key.
    pub key: Digest,
    /// How much it may have.
    pub allowance: Allowance,
}

/// All clients of one configuration.
#[derive(Debug)]
pub struct Clients {
    all: Vec<Client>,
    /// With a random seed per table: which entries a lookup meets cannot be chosen from outside.
    by_key: HashMap<Digest, PrincipalId>,
}

/// Why a request belongs to no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unauthorized {
    /// It presents no credential.
    NoKey,
    /// What it presents is no client's key.
    WrongKey,
    /// Its fields hold the keys of different clients, or `X-Lanegate-Key` came more than once.
    Ambiguous,
}

/// Who calls, and with which fields it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The client.
    pub principal: PrincipalId,
    /// The fields that end at the gateway.
    pub spent: Spent,
}

/// The fields of a request that hold a client's key and so go to no provider, whoever gets which
/// credential. `X-Lanegate-Key` is not among them because it never goes anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    authorization: bool,
    api_key: bool,
}

impl Spent {
    /// Whether the field `name` must not reach the provider.
    #[must_use]
    pub fn removes(self, name: &[u8]) -> bool {
        match Place::of(name) {
            Some(Place::Authorization) => self.authorization,
            Some(Place::ApiKey) => self.api_key,
            Some(Place::Own) => true,
            None => false,
        }
    }
}

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Own,
    Authorization,
    ApiKey,
}

impl Place {
    fn of(name: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], Place); 3] = [
            (b"authorization", Place::Authorization),
            (b"x-api-key", Place::ApiKey),
            (b"x-lanegate-key", Place::Own),
        ];
        let named = |(known, _): &(&[u8], Self)| name.eq_ignore_ascii_case(known);
        NAMES.into_iter().find(named).map(|(_, place)| place)
    }
}

impl Clients {
    /// A table in the order of the configuration, in which no two keys are alike.
    #[must_use]
    pub fn new(all: Vec<Client>) -> Self {
        let by_key = all
            .iter()
            .enumerate()
            .map(|(index, client)| (client.key, PrincipalId(index)))
            .collect();
        Self { all, by_key }
    }

    /// A client of this table.
    #[must_use]
    pub fn client(&self, id: PrincipalId) -> Option<&Client> {
        self.all.get(id.0)
    }

    /// All clients, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    /// Finds out who sent a head with these `fields`, whose text is `bytes`.
    ///
    /// `X-Lanegate-Key` decides alone where it is present. Otherwise any key in `Authorization` or
    /// `x-api-key` decides, and what else stands there is none of the gateway's business: it may
    /// be meant for a provider.
    ///
    /// # Errors
    /// When no client is found, or more than one.
    pub fn identify(&self, fields: &[Field], bytes: &[u8]) -> Result<Caller, Unauthorized> {
        let mut spent = Spent::default();
        let mut presented = false;
        // Who the gateway's own field names: outer none if it is absent, inner none if nobody.
        let mut own = None;
        let mut others = None;
        let mut others_differ = false;
        for field in fields {
            let Some(place) = Place::of(field.name.of(bytes)) else {
                continue;
            };
            presented = true;
            let found = self.find(key_in(field.value.of(bytes)));
            match place {
                Place::Own if own.is_some() => return Err(Unauthorized::Ambiguous),
                Place::Own => own = Some(found),
                Place::Authorization => spent.authorization |= found.is_some(),
                Place::ApiKey => spent.api_key |= found.is_some(),
            }
            if place != Place::Own && found.is_some() {
                others_differ |= others.is_some() && others != found;
                others = others.or(found);
            }
        }
        let principal = match own {
            Some(found) => found,
            None if others_differ => return Err(Unauthorized::Ambiguous),
            None => others,
        };
        match principal {
            Some(principal) => Ok(Caller { principal, spent }),
            None if presented => Err(Unauthorized::WrongKey),
            None => Err(Unauthorized::NoKey),
        }
    }

    fn find(&self, key: &[u8]) -> Option<PrincipalId> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return None;
        }
        self.by_key.get(&Digest::of(key)).copied()
    }
}

/// The key in a value: what follows `Bearer` (RFC 6750 §2.1, RFC 9110 §11.1: in any letter case),
/// or all of it.
fn key_in(value: &[u8]) -> &[u8] {
    const SCHEME: &[u8] = b"bearer";
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, rest @ [b' ' | b'\t', ..])) if scheme.eq_ignore_ascii_case(SCHEME) => {
            rest.trim_ascii()
        }
        _ => value.trim_ascii(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::allowance::{ClientLimits, Meters};
    use crate::clock;
    use crate::http1::head::{HeadLimits, RequestHead};

    const A: &str = "key-of-the-first-client";
    const B: &str = "key-of-the-other-client";

    fn clients() -> Clients {
        let mut meters = Meters::new(clock::now());
        let client = |(name, key): (&str, &str)| Client {
            name: name.to_owned(),
            key: Digest::of(key.as_bytes()),
            allowance: meters.allowance(name, ClientLimits::default()),
        };
        Clients::new([("a", A), ("b", B)].map(client).into())
    }

    /// The name of who sent these fields, and which of Authorization and x-api-key are spent.
    fn identify(fields: &[&str]) -> Result<(String, bool, bool), Unauthorized> {
        let fields = fields.join("\r\n").replace("A!", A).replace("B!", B);
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        let text = text.replace("\r\n\r\n\r\n", "\r\n\r\n");
        let mut head = RequestHead::default();
        let limits = HeadLimits {
            bytes: 1 << 16,
            fields: 100,
        };
        head.parse(text.as_bytes(), limits).unwrap();
        let clients = clients();
        let caller = clients.identify(&head.fields, text.as_bytes())?;
        assert!(caller.spent.removes(b"X-LANEGATE-key"));
        assert!(!caller.spent.removes(b"x-goog-api-key"));
        Ok((
            clients.client(caller.principal).unwrap().name.clone(),
            caller.spent.removes(b"AUTHORIZATION"),
            caller.spent.removes(b"X-Api-Key"),
        ))
    }

    #[test]
    fn a_key_is_found_in_each_of_its_places() {
        let found =
            |name: &str, authorization, api_key| Ok((name.to_owned(), authorization, api_key));
        for (fields, expected) in [
            (&["Authorization: Bearer A!"][..], found("a", true, false)),
            (&["authorization: bEARER \t B! "], found("b", true, false)),
            (&["Authorization: A!"], found("a", true, false)),
            (&["x-api-key: B!"], found("b", false, true)),
            (&["X-API-KEY: Bearer B!"], found("b", false, true)),
            (&["X-Lanegate-Key: A!"], found("a", false, false)),
            (&["x-lanegate-key: Bearer A!"], found("a", false, false)),
            // What is beside the key is for a provider, or is the same key again.
            (
                &["Authorization: Bearer A!", "x-api-key: sk"],
                found("a", true, false),
            ),
            (
                &["Authorization: Bearer sk", "x-api-key: A!"],
                found("a", false, true),
            ),
            (
                &["Authorization: Bearer A!", "x-api-key: A!"],
                found("a", true, true),
            ),
            (
                &["Authorization: Bearer sk", "X-Lanegate-Key: A!"],
                found("a", false, false),
            ),
            // A key is never relayed, even beside the one that decides.
            (
                &["Authorization: Bearer A!", "X-Lanegate-Key: A!"],
                found("a", true, false),
            ),
            (
                &["Authorization: Bearer B!", "X-Lanegate-Key: A!"],
                found("a", true, false),
            ),
            (
                &["X-Lanegate-Key: A!", "x-api-key: B!", "Authorization: sk"],
                found("a", false, true),
            ),
            (
                &["Authorization: Basic eA==", "Authorization: Bearer A!"],
                found("a", true, false),
            ),
        ] {
            assert_eq!(identify(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn everything_else_is_nobody() {
        let long = format!("x-api-key: {}", "k".repeat(KEY_BYTES_MAX + 1));
        let same_length = A.replace("first", "worst");
        let same_length = format!("Authorization: Bearer {same_length}");
        for (fields, expected) in [
            (&[][..], Unauthorized::NoKey),
            (&["Cookie: A!", "api-key: A!"], Unauthorized::NoKey),
            (&["Proxy-Authorization: Bearer A!"], Unauthorized::NoKey),
            (&["Authorization:"], Unauthorized::WrongKey),
            (&["Authorization: Bearer"], Unauthorized::WrongKey),
            (&["Authorization: Basic A!"], Unauthorized::WrongKey),
            (&["Authorization: BearerA!"], Unauthorized::WrongKey),
            (&["Authorization: Bearer A!x"], Unauthorized::WrongKey),
            (
                &["Authorization: Bearer A!, Bearer A!"],
                Unauthorized::WrongKey,
            ),
            (
                &["x-api-key: key-of-the-first-clien"],
                Unauthorized::WrongKey,
            ),
            (&[same_length.as_str()], Unauthorized::WrongKey),
            (&[long.as_str()], Unauthorized::WrongKey),
            // The gateway's own field decides alone.
            (
                &["X-Lanegate-Key: sk", "Authorization: Bearer A!"],
                Unauthorized::WrongKey,
            ),
            (
                &["X-Lanegate-Key:", "x-api-key: A!"],
                Unauthorized::WrongKey,
            ),
            (
                &["X-Lanegate-Key: A!", "X-Lanegate-Key: A!"],
                Unauthorized::Ambiguous,
            ),
            (
                &["X-Lanegate-Key: A!", "X-Lanegate-Key: sk"],
                Unauthorized::Ambiguous,
            ),
            (
                &["Authorization: Bearer A!", "x-api-key: B!"],
                Unauthorized::Ambiguous,
            ),
            (&["x-api-key: A!", "x-api-key: B!"], Unauthorized::Ambiguous),
        ] {
            assert_eq!(identify(fields), Err(expected), "{fields:?}");
        }
    }
}
