//! What is kept of a session, and how it may change.
//!
//! A session is unknown until evidence is accepted, and then stays identified for ever. While it is unknown
//! the remote service may be asked a bounded number of times, by one asker at a time, who holds a lease. An
//! attempt counts from the moment at which its lease is given, so that one that never ends counts too.
//!
//! Times are microseconds since the Unix epoch: the present is rounded down and a deadline up, so that stores
//! of different precision agree. At its deadline a lease has ended and a pause is over.

use std::time::Duration;

use crate::classify::{Classification, Evidence, Key, RemoteTerms, Source};

/// Names one lease; at most 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseId(Box<str>);

impl LeaseId {
    /// Bytes of the longest.
    pub const BYTES_MAX: usize = 64;

    /// A lease of this name, which must differ from every other one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=Self::BYTES_MAX).contains(&text.len());
        fits.then(|| Self(text.into()))
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is kept of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What it was identified as.
    pub classification: Classification,
    /// Attempts at the remote service, abandoned ones included.
    pub attempts: u32,
    /// The lease of who asks, and when it ends.
    pub lease: Option<(LeaseId, i64)>,
    /// When the next attempt may begin.
    pub next_at: Option<i64>,
    /// When it last changed.
    pub updated_at: i64,
}

/// The right to ask the remote service about a session once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The session.
    pub key: Key,
    /// The lease.
    pub lease: LeaseId,
    /// The number of the attempt, from 1 on.
    pub attempt: u32,
    /// The pause after it, if it does not identify the session.
    pub backoff: Duration,
}

/// Why a lease is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The session is identified.
    Identified(Classification),
    /// Somebody asks already.
    LeaseBusy,
    /// All attempts were made.
    BudgetExhausted,
    /// The pause after the last one is not over.
    Pausing,
}

/// What became of the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The session's classification now.
    pub classification: Classification,
    /// The lease had ended, or the session was identified meanwhile, and nothing was changed.
    pub stale: bool,
}

/// The present, rounded down.
pub(crate) fn now_micros(now: Duration) -> i64 {
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// A deadline `after` the present, rounded up.
pub(crate) fn deadline_micros(now: Duration, after: Duration) -> i64 {
    let nanos = now.saturating_add(after).as_nanos();
    i64::try_from(nanos.div_ceil(1000)).unwrap_or(i64::MAX)
}

/// A session that evidence identifies the first time it is seen.
#[must_use]
pub fn promoted(evidence: Evidence, now: Duration) -> Record {
    Record {
        classification: Classification::by(evidence),
        updated_at: now_micros(now),
        ..Record::default()
    }
}

impl Record {
    /// Accepts local evidence. Whether this identified the session. It ends a lease and a pause; attempts that
    /// were made stay counted.
    pub fn promote(&mut self, evidence: Evidence, now: Duration) -> bool {
        if !self.classification.accept(evidence) {
            return false;
        }
        self.lease = None;
        self.next_at = None;
        self.updated_at = now_micros(now);
        true
    }

    /// Whether a lease may be given.
    ///
    /// # Errors
    /// Why not.
    pub fn eligible(&self, terms: &RemoteTerms, now: Duration) -> Result<(), Refused> {
        let now = now_micros(now);
        if self.classification != Classification::Unknown {
            return Err(Refused::Identified(self.classification));
        }
        if self.lease.as_ref().is_some_and(|(_, until)| now < *until) {
            return Err(Refused::LeaseBusy);
        }
        if self.attempts >= terms.attempts_max {
            return Err(Refused::BudgetExhausted);
        }
        if self.next_at.is_some_and(|at| now < at) {
            return Err(Refused::Pausing);
        }
        Ok(())
    }

    /// Gives a lease.
    ///
    /// # Errors
    /// As [`Record::eligible`]; nothing is changed then.
    pub fn claim(
        &mut self,
        key: Key,
        terms: &RemoteTerms,
        lease: LeaseId,
        now: Duration,
    ) -> Result<Claim, Refused> {
        self.eligible(terms, now)?;
        self.attempts = self.attempts.saturating_add(1);
        self.lease = Some((lease.clone(), deadline_micros(now, terms.lease)));
        self.next_at = None;
        self.updated_at = now_micros(now);
        Ok(Claim {
            key,
            lease,
            attempt: self.attempts,
            backoff: terms.backoff,
        })
    }

    /// Ends an attempt, with the evidence that it led to. Only remote evidence identifies a session here.
    pub fn complete(
        &mut self,
        claim: &Claim,
        evidence: Option<Evidence>,
        now: Duration,
    ) -> Completion {
        let at = now_micros(now);
        let held = self.lease.as_ref().is_some_and(|(lease, until)| {
            *lease == claim.lease && self.attempts == claim.attempt && at < *until
        });
        if !held || self.classification != Classification::Unknown {
            return self.completion(true);
        }
        self.lease = None;
        self.next_at = next_at(claim, now);
        self.updated_at = at;
        let remote = evidence.filter(|it| it.source() == Source::RemoteClassifier);
        if let Some(evidence) = remote {
            self.classification.accept(evidence);
            self.next_at = None;
        }
        self.completion(false)
    }

    const fn completion(&self, stale: bool) -> Completion {
        Completion {
            classification: self.classification,
            stale,
        }
    }
}

/// When the next attempt may begin after this one ended without evidence.
pub(crate) fn next_at(claim: &Claim, now: Duration) -> Option<i64> {
    let pauses = claim.backoff > Duration::ZERO;
    pauses.then(|| deadline_micros(now, claim.backoff))
}
