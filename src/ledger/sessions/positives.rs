//! The sessions that are known to be identified, for every core to read.
//!
//! A table of fixed size with one writer, the thread of the store. A reader takes no lock: it reads a place, and
//! takes it for empty if the writer was at it meanwhile. Where many sessions meet in one part of the table, the
//! one that was asked for the longest time ago makes room; it is still in the store.
//!
//! A key is an HMAC, so 128 of its bits tell sessions apart and nobody can choose where one stands.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::classify::{Evidence, Key, Scope};
use crate::limits::{POSITIVE_IDLE_MINUTES, SESSIONS_KEPT};

/// Places in which one session can stand.
const WAYS: usize = 8;
const SETS: usize = SESSIONS_KEPT / WAYS;
const _: () = assert!(SETS.is_power_of_two());

#[derive(Default)]
struct Place {
    /// Odd while the writer is at it.
    version: AtomicU32,
    /// The minute at which it was last asked for, written by readers too.
    touched: AtomicU32,
    high: AtomicU64,
    low: AtomicU64,
    /// Position of the evidence among all, from 1 on; 0 for an empty place.
    evidence: AtomicU32,
}

/// The table, 2 MiB.
pub struct Positives {
    places: Box<[Place]>,
}

impl Default for Positives {
    fn default() -> Self {
        Self {
            places: (0..SETS * WAYS).map(|_| Place::default()).collect(),
        }
    }
}

/// What tells a key from others, and where it may stand.
struct Mark {
    high: u64,
    low: u64,
    set: usize,
}

impl Mark {
    fn of(key: &Key) -> Self {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(key.id().get(at..at + 8).unwrap_or(&[0; 8]));
            u64::from_le_bytes(bytes)
        };
        let high = match key.scope() {
            Scope::SecureSession => word(0),
            Scope::ALeg => !word(0),
        };
        let set = usize::try_from(word(16) % SETS as u64).unwrap_or_default();
        let low = word(8);
        Self { high, low, set }
    }
}

impl Positives {
    fn set(&self, mark: &Mark) -> &[Place] {
        let start = mark.set * WAYS;
        self.places.get(start..start + WAYS).unwrap_or_default()
    }

    /// What a session was identified by, if it is here and was asked for not too long before this minute.
    #[must_use]
    pub fn find(&self, key: &Key, minute: u32) -> Option<Evidence> {
        let mark = Mark::of(key);
        self.set(&mark).iter().find_map(|place| {
            let evidence = place.read(&mark)?;
            let touched = place.touched.load(Ordering::Relaxed);
            if minute.saturating_sub(touched) > POSITIVE_IDLE_MINUTES {
                return None;
            }
            if touched != minute {
                place.touched.store(minute, Ordering::Relaxed);
            }
            Some(evidence)
        })
    }

    /// Puts a session in. Of one thread only.
    pub(super) fn insert(&self, key: &Key, evidence: Evidence, minute: u32) {
        let mark = Mark::of(key);
        let set = self.set(&mark);
        let same = set.iter().find(|place| place.read(&mark).is_some());
        let oldest = || {
            set.iter().min_by_key(|place| {
                let filled = place.evidence.load(Ordering::Relaxed) != 0;
                (filled, place.touched.load(Ordering::Relaxed))
            })
        };
        if let Some(place) = same.or_else(oldest) {
            place.write(&mark, evidence, minute);
        }
    }
}

impl Place {
    /// The evidence, if this is the place of that session.
    fn read(&self, mark: &Mark) -> Option<Evidence> {
        let before = self.version.load(Ordering::Acquire);
        let high = self.high.load(Ordering::Relaxed);
        let low = self.low.load(Ordering::Relaxed);
        let evidence = self.evidence.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        let is_whole = before == after && before.is_multiple_of(2);
        if !is_whole || high != mark.high || low != mark.low {
            return None;
        }
        let position = usize::try_from(evidence.checked_sub(1)?).ok()?;
        Evidence::ALL.get(position).copied()
    }

    fn write(&self, mark: &Mark, evidence: Evidence, minute: u32) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.high.store(mark.high, Ordering::Relaxed);
        self.low.store(mark.low, Ordering::Relaxed);
        self.evidence.store(evidence as u32 + 1, Ordering::Relaxed);
        self.touched.store(minute, Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }
}

impl fmt::Debug for Positives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Positives").finish_non_exhaustive()
    }
}
