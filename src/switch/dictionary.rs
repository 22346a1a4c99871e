//! Which session has which id at the providers: made by `--newsession`, for as long as the process
//! lives.
//!
//! First come, first kept: a mapping is never replaced, taken away, or given up for another, so an agent
//! that goes on under its own session id stays in one session at the provider. The public surface has
//! the two operations that this needs and nothing that could break it:
//!
//! ```
//! use lanegate::switch::{Added, Dictionary};
//! let dictionary = Dictionary::new(100);
//! let Added::New(id) = dictionary.try_add("ci", "their-id") else { panic!() };
//! assert_eq!(dictionary.try_translate("ci", "their-id"), Some(id));
//! assert_eq!(dictionary.try_translate("another client", "their-id"), None);
//! ```
//! ```compile_fail,E0599
//! # let dictionary = lanegate::switch::Dictionary::new(100);
//! dictionary.remove("ci", "their-id");
//! ```
//! ```compile_fail,E0599
//! # let dictionary = lanegate::switch::Dictionary::new(100);
//! dictionary.clear();
//! ```
//! ```compile_fail,E0599
//! # let mut dictionary = lanegate::switch::Dictionary::new(100);
//! dictionary.evict();
//! ```
//! ```compile_fail,E0616
//! # let dictionary = lanegate::switch::Dictionary::new(100);
//! dictionary.shards;
//! ```
//!
//! It is shared by all cores, because a client comes back on any. While it is empty a look-up is one
//! relaxed load; otherwise a hash and a read lock of one of 16 shards. A key is the SHA-256 of principal
//! and id, so that an entry takes about 100 bytes whatever a client sends, and the ids of clients are
//! not kept. At most `switches.max_entries` of them: a bound on growth is not an eviction (decision S12).

#![expect(
    clippy::disallowed_types,
    reason = "a lock per shard, written to by one switch alone and read on routes that forward sessions"
)]

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use crossbeam::utils::CachePadded;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::limits::SWITCH_SHARDS as SHARDS;

/// The id that a provider gets in the place of the client's: 32 random hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticId(Uuid);

impl fmt::Display for SyntheticId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// What came of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// This id was made.
    New(SyntheticId),
    /// The session had this one before.
    Known(SyntheticId),
    /// There is no room for another, or the id is blank.
    Refused,
}

type Key = [u8; 32];

type Shard = RwLock<HashMap<Key, SyntheticId>>;

/// The mappings of the process.
pub struct Dictionary {
    shards: [CachePadded<Shard>; SHARDS],
    entries: AtomicUsize,
    entries_max: usize,
}

impl Dictionary {
    /// Without entries, with room for so many.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| CachePadded::default()),
            entries: AtomicUsize::new(0),
            entries_max,
        }
    }

    /// The id that stands for `caller`, the session id of a client of this name (empty where clients
    /// have none).
    #[must_use]
    pub fn try_translate(&self, principal: &str, caller: &str) -> Option<SyntheticId> {
        if self.entries.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let key = key(principal, caller);
        let shard = self.shard(&key)?;
        let entries = shard.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&key).copied()
    }

    /// As [`Self::try_translate`], and makes an id where there is none.
    #[must_use]
    pub fn try_add(&self, principal: &str, caller: &str) -> Added {
        let key = key(principal, caller);
        let Some(shard) = self.shard(&key).filter(|_| !caller.trim().is_empty()) else {
            return Added::Refused;
        };
        let mut entries = shard.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = entries.get(&key) {
            return Added::Known(*known);
        }
        let one_more = |count| (count < self.entries_max).then_some(count + 1);
        let (taken, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.entries.fetch_update(taken, seen, one_more).is_err() {
            return Added::Refused;
        }
        let id = SyntheticId(Uuid::new_v4());
        entries.insert(key, id);
        Added::New(id)
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: &Key) -> Option<&Shard> {
        let [first, ..] = key;
        self.shards
            .get(usize::from(*first) % SHARDS)
            .map(|shard| &**shard)
    }
}

// Sessions of clients are nobody else's business.
impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary")
            .field("entries", &self.len())
            .field("entries_max", &self.entries_max)
            .finish_non_exhaustive()
    }
}

/// Names of clients hold no control characters, so that NUL keeps the two apart.
fn key(principal: &str, caller: &str) -> Key {
    let mut hash = Sha256::new();
    hash.update(principal);
    hash.update([0]);
    hash.update(caller);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn new(added: Added) -> SyntheticId {
        match added {
            Added::New(id) => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn x1_the_first_addition_is_translated_from_then_on() {
        let dictionary = Dictionary::new(9);
        assert!(dictionary.is_empty());
        let id = new(dictionary.try_add("", "a"));
        let shown = id.to_string();
        assert_eq!(shown.len(), 32);
        assert!(
            shown
                .bytes()
                .all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
        );
        assert_eq!(dictionary.try_translate("", "a"), Some(id));
    }

    #[test]
    fn x2_the_second_addition_of_a_key_finds_the_first() {
        let dictionary = Dictionary::new(9);
        let id = new(dictionary.try_add("", "a"));
        assert_eq!(dictionary.try_add("", "a"), Added::Known(id));
        assert_eq!(dictionary.len(), 1);
    }

    #[test]
    fn x3_an_unknown_key_has_no_translation() {
        let dictionary = Dictionary::new(9);
        assert_eq!(dictionary.try_translate("", "a"), None);
        let _id = dictionary.try_add("", "b");
        assert_eq!(dictionary.try_translate("", "a"), None);
    }

    #[test]
    fn x4_keys_have_ids_of_their_own() {
        let dictionary = Dictionary::new(9);
        let keys = [("", "a"), ("", "b"), ("p", "a"), ("pa", "b"), ("p", "ab")];
        let made = keys.map(|(principal, caller)| new(dictionary.try_add(principal, caller)));
        let distinct: HashSet<String> = made.iter().map(SyntheticId::to_string).collect();
        assert_eq!((distinct.len(), dictionary.len()), (5, 5));
        for ((principal, caller), id) in keys.into_iter().zip(made) {
            assert_eq!(dictionary.try_translate(principal, caller), Some(id));
        }
    }

    #[test]
    fn x5_blank_ids_are_refused() {
        let dictionary = Dictionary::new(9);
        for blank in ["", " ", "\t\u{a0}"] {
            assert_eq!(dictionary.try_add("", blank), Added::Refused);
            assert_eq!(dictionary.try_translate("", blank), None);
        }
        assert!(dictionary.is_empty());
    }

    #[test]
    fn x6_of_sixty_four_threads_one_makes_the_id_and_all_see_it() {
        let dictionary = Dictionary::new(9);
        let start = std::sync::Barrier::new(64);
        let all: Vec<Added> = std::thread::scope(|scope| {
            let ask = || {
                start.wait();
                let added = dictionary.try_add("p", "a");
                let seen = dictionary.try_translate("p", "a");
                assert!(matches!(added, Added::New(id) | Added::Known(id) if seen == Some(id)));
                added
            };
            let threads: Vec<_> = (0..64).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let made = all.iter().filter(|it| matches!(it, Added::New(_)));
        assert_eq!((made.count(), dictionary.len()), (1, 1));
    }

    #[test]
    fn a_full_dictionary_keeps_what_it_has_and_takes_no_more() {
        let dictionary = Dictionary::new(2);
        let first = new(dictionary.try_add("", "a"));
        let _second = new(dictionary.try_add("", "b"));
        assert_eq!(dictionary.try_add("", "c"), Added::Refused);
        assert_eq!(dictionary.try_add("", "a"), Added::Known(first));
        assert_eq!(dictionary.try_translate("", "c"), None);
        assert_eq!(dictionary.len(), 2);
        assert_eq!(Dictionary::new(0).try_add("", "a"), Added::Refused);
    }

    #[test]
    fn nothing_of_an_id_is_printed() {
        let dictionary = Dictionary::new(2);
        let _id = dictionary.try_add("", "their-id");
        assert!(!format!("{dictionary:?}").contains("their"));
    }
}
