//! How many conversations there are, and how many of them have a name: sketches of a window of time.
//!
//! The window is a ring of [`ADOPTION_PARTS`] parts, each with a count of decisions and a set of hashed
//! keys: exact up to 512 of them, beyond that a HyperLogLog of 4096 registers (Flajolet et al. 2007), 1.6 %
//! off at most two times in three. Memory is at most 288 KiB, whatever clients send.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::identity::KeyKind;
use crate::limits::ADOPTION_PARTS;

/// Keys that a set holds exactly.
const EXACT_MAX: usize = 512;

/// Bits of a hash that choose its register.
const REGISTER_BITS: u32 = 12;
const REGISTERS: usize = 1 << REGISTER_BITS;

/// The bias of the mean for so many registers (Flajolet et al. 2007, figure 3).
const ALPHA: f64 = 0.721_3 / (1.0 + 1.079 / 4096.0);

#[derive(Clone, Debug)]
enum Sketch {
    /// Sorted.
    Exact(Vec<u64>),
    Registers(Box<[u8]>),
}

impl Sketch {
    const fn new() -> Self {
        Self::Exact(Vec::new())
    }

    fn add(&mut self, hash: u64) {
        match self {
            Self::Exact(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else {
                    return;
                };
                if hashes.len() < EXACT_MAX {
                    return hashes.insert(at, hash);
                }
                let mut registers = vec![0; REGISTERS].into_boxed_slice();
                for known in hashes.iter().chain([&hash]) {
                    raise(&mut registers, *known);
                }
                *self = Self::Registers(registers);
            }
            Self::Registers(registers) => raise(registers, hash),
        }
    }

    fn merge(&mut self, other: &Self) {
        match other {
            Self::Exact(hashes) => hashes.iter().for_each(|hash| self.add(*hash)),
            Self::Registers(theirs) => {
                if let Self::Exact(hashes) = self {
                    let mut registers = vec![0; REGISTERS].into_boxed_slice();
                    hashes.iter().for_each(|hash| raise(&mut registers, *hash));
                    *self = Self::Registers(registers);
                }
                if let Self::Registers(ours) = self {
                    for (ours, theirs) in ours.iter_mut().zip(theirs) {
                        *ours = (*ours).max(*theirs);
                    }
                }
            }
        }
    }

    fn distinct(&self) -> u64 {
        match self {
            Self::Exact(hashes) => hashes.len() as u64,
            Self::Registers(registers) => estimate(registers),
        }
    }
}

/// Notes a hash in its register: the highest number of leading zeros, counted from one.
fn raise(registers: &mut [u8], hash: u64) {
    let index = usize::try_from(hash >> (u64::BITS - REGISTER_BITS)).unwrap_or(0);
    // The bit below the rest ends a run that would go on for ever.
    let rest = hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1);
    let rank = u8::try_from(rest.leading_zeros() + 1).unwrap_or(u8::MAX);
    if let Some(register) = registers.get_mut(index) {
        *register = (*register).max(rank);
    }
}

fn estimate(registers: &[u8]) -> u64 {
    let sum: f64 = registers
        .iter()
        .map(|rank| 0.5_f64.powi(i32::from(*rank)))
        .sum();
    let count = 4096.0;
    let raw = ALPHA * count * count / sum;
    let empty = registers.iter().filter(|rank| **rank == 0).count();
    // Linear counting is better where registers are empty.
    let estimate = match u32::try_from(empty) {
        Ok(empty) if empty > 0 && raw <= 2.5 * count => count * (count / f64::from(empty)).ln(),
        _ => raw,
    };
    rounded(estimate)
}

fn rounded(estimate: f64) -> u64 {
    Duration::try_from_secs_f64(estimate.round()).map_or(u64::MAX, |it| it.as_secs())
}

/// One kind of key in one part of the window.
#[derive(Clone, Debug)]
struct Cell {
    decisions: u64,
    keys: Sketch,
}

type Part = [Cell; KeyKind::ALL.len()];

fn empty_part() -> Part {
    std::array::from_fn(|_| Cell {
        decisions: 0,
        keys: Sketch::new(),
    })
}

/// The window.
#[derive(Debug)]
pub(super) struct Adoption {
    part: Duration,
    began: Instant,
    /// Number of the newest part, counted from `began`.
    newest: u64,
    parts: Vec<Part>,
}

/// One kind of key, as it is at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Conversations.
    pub distinct: u64,
    /// Decisions.
    pub decisions: u64,
}

impl Adoption {
    pub(super) fn new(window: Duration, now: Instant) -> Self {
        let parts = u32::try_from(ADOPTION_PARTS).unwrap_or(1);
        Self {
            part: (window / parts).max(Duration::from_millis(1)),
            began: now,
            newest: 0,
            parts: (0..ADOPTION_PARTS).map(|_| empty_part()).collect(),
        }
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.began).as_nanos() / self.part.as_nanos();
        let number = u64::try_from(passed).unwrap_or(u64::MAX);
        let parts = self.parts.len() as u64;
        let fresh = number.saturating_sub(self.newest).min(parts);
        for step in 0..fresh {
            let index = usize::try_from((number - step) % parts).unwrap_or(0);
            if let Some(part) = self.parts.get_mut(index) {
                *part = empty_part();
            }
        }
        self.newest = self.newest.max(number);
    }

    /// Counts a decision.
    pub(super) fn count(&mut self, kind: KeyKind, principal: &str, session: &str, now: Instant) {
        self.advance(now);
        // Keys in a fixed order of the hash, not of this process: the same key counts once.
        let mut hasher = DefaultHasher::new();
        (principal, session).hash(&mut hasher);
        let index = usize::try_from(self.newest % self.parts.len() as u64).unwrap_or(0);
        if let Some(part) = self.parts.get_mut(index) {
            let cell = &mut part[kind as usize];
            cell.decisions = cell.decisions.saturating_add(1);
            cell.keys.add(hasher.finish());
        }
    }

    /// What the window holds now, in the order of [`KeyKind::ALL`].
    pub(super) fn now(&mut self, now: Instant) -> [Adopted; KeyKind::ALL.len()] {
        self.advance(now);
        KeyKind::ALL.map(|kind| {
            let mut keys = Sketch::new();
            let mut decisions = 0_u64;
            for part in &self.parts {
                let cell = &part[kind as usize];
                keys.merge(&cell.keys);
                decisions = decisions.saturating_add(cell.decisions);
            }
            Adopted {
                distinct: keys.distinct(),
                decisions,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a38_conversations_count_once_and_decisions_each() {
        let now = clock::now();
        let mut adoption = Adoption::new(24 * HOUR, now);
        for _ in 0..5 {
            for name in ["c:a", "c:b", "c:c"] {
                adoption.count(KeyKind::Client, "", name, now);
            }
            adoption.count(KeyKind::Fingerprint, "", "0123456789abcdef", now);
        }
        let [client, native, fingerprint] = adoption.now(now);
        assert_eq!((client.distinct, client.decisions), (3, 15));
        assert_eq!(native, Adopted::default());
        assert_eq!((fingerprint.distinct, fingerprint.decisions), (1, 5));
    }

    #[test]
    fn one_key_in_two_parts_and_of_two_principals() {
        let now = clock::now();
        let mut adoption = Adoption::new(24 * HOUR, now);
        adoption.count(KeyKind::Client, "one", "c:a", now);
        adoption.count(KeyKind::Client, "one", "c:a", now + 3 * HOUR);
        adoption.count(KeyKind::Client, "two", "c:a", now + 3 * HOUR);
        let [client, ..] = adoption.now(now + 4 * HOUR);
        assert_eq!((client.distinct, client.decisions), (2, 3));
    }

    #[test]
    fn a39_nothing_is_left_after_the_window() {
        let now = clock::now();
        let mut adoption = Adoption::new(24 * HOUR, now);
        adoption.count(KeyKind::Client, "", "c:a", now);
        let [client, ..] = adoption.now(now + 22 * HOUR);
        assert_eq!(client.distinct, 1);
        for hours in [25, 26, 1000] {
            let kinds = adoption.now(now + hours * HOUR);
            assert_eq!(kinds, [Adopted::default(); 3], "{hours}");
        }
    }

    #[test]
    fn a40_a_million_keys_are_estimated_within_bounds_of_memory_and_error() {
        let now = clock::now();
        let mut adoption = Adoption::new(24 * HOUR, now);
        for number in 0..1_000_000_u32 {
            let at = now + Duration::from_millis(u64::from(number) * 80);
            adoption.count(KeyKind::Client, "", &format!("c:{number}"), at);
        }
        for part in &adoption.parts {
            match &part[0].keys {
                Sketch::Exact(hashes) => assert!(hashes.len() <= EXACT_MAX),
                Sketch::Registers(registers) => assert_eq!(registers.len(), REGISTERS),
            }
        }
        let [client, ..] = adoption.now(now + Duration::from_secs(80_000));
        assert_eq!(client.decisions, 1_000_000);
        let off = client.distinct.abs_diff(1_000_000);
        assert!(off < 50_000, "{}", client.distinct);
    }

    #[test]
    fn the_estimate_is_near_at_every_size() {
        let mut sketch = Sketch::new();
        let mut added = 0_u64;
        for size in [512_u64, 513, 2_000, 10_000, 12_000, 100_000] {
            for number in added..size {
                let mut hasher = DefaultHasher::new();
                number.hash(&mut hasher);
                sketch.add(hasher.finish());
            }
            added = size;
            let off = sketch.distinct().abs_diff(size);
            assert!(off * 20 <= size, "{size}: {}", sketch.distinct());
        }
    }
}
