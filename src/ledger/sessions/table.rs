//! Sessions in a table beside the ledger's, in SQLite and in PostgreSQL.
//!
//! Each call is one statement that changes a row only if the row is as the change needs it, so that no gateway
//! holds a lock while it thinks, and none takes back what another one did. Both databases understand every
//! statement; their parameters appear in the order of their numbers, which is how SQLite counts them.

use std::time::Duration;

use crate::classify::{
    Claim, Classification, Completion, Evidence, Key, LeaseId, Record, Refused, RemoteTerms,
    Source, deadline_micros, next_at, now_micros,
};
use crate::ledger::sessions::{SessionError, SessionStore};
use crate::limits::{PRUNE_ROWS, REMOTE_ATTEMPTS_MAX};

/// Makes the table and its index where they are not there.
pub(in crate::ledger) const SCHEMA: &str = include_str!("schema.sql");

/// The columns of a [`Stored`], in its order.
const LOAD: &str = "SELECT kind, source, confidence, evidence_code, classification_revision, \
    remote_attempts, remote_lease_id, remote_lease_until, remote_next_eligible_at, updated_at \
    FROM session_classification WHERE scope_kind = $1 AND scope_id = $2";

const PROMOTE: &str = "INSERT INTO session_classification AS kept (scope_kind, scope_id, kind, source, \
    confidence, evidence_code, classification_revision, remote_attempts, remote_lease_id, \
    remote_lease_until, remote_next_eligible_at, updated_at) \
    VALUES ($1, $2, $3, $4, $5, $6, 1, 0, '', NULL, NULL, $7) \
    ON CONFLICT (scope_kind, scope_id) DO UPDATE SET kind = excluded.kind, \
    source = excluded.source, confidence = excluded.confidence, \
    evidence_code = excluded.evidence_code, classification_revision = 1, \
    remote_lease_id = '', remote_lease_until = NULL, remote_next_eligible_at = NULL, \
    updated_at = excluded.updated_at WHERE kept.kind = '' RETURNING remote_attempts";

const CLAIM: &str = "INSERT INTO session_classification AS kept (scope_kind, scope_id, kind, source, \
    confidence, evidence_code, classification_revision, remote_attempts, remote_lease_id, \
    remote_lease_until, remote_next_eligible_at, updated_at) \
    VALUES ($1, $2, '', '', '', '', 0, 1, $3, $4, NULL, $5) \
    ON CONFLICT (scope_kind, scope_id) DO UPDATE SET \
    remote_attempts = kept.remote_attempts + 1, \
    remote_lease_id = excluded.remote_lease_id, \
    remote_lease_until = excluded.remote_lease_until, remote_next_eligible_at = NULL, \
    updated_at = excluded.updated_at \
    WHERE kept.kind = '' AND kept.remote_attempts < $6 \
    AND (kept.remote_lease_id = '' OR kept.remote_lease_until <= $5) \
    AND (kept.remote_next_eligible_at IS NULL OR kept.remote_next_eligible_at <= $5) \
    RETURNING remote_attempts";

const COMPLETE: &str = "UPDATE session_classification SET kind = $1, source = $2, confidence = $3, \
    evidence_code = $4, classification_revision = $5, remote_lease_id = '', \
    remote_lease_until = NULL, remote_next_eligible_at = $6, updated_at = $7 \
    WHERE scope_kind = $8 AND scope_id = $9 AND kind = '' \
    AND remote_lease_id = $10 AND remote_attempts = $11 AND remote_lease_until > $7 \
    RETURNING remote_attempts";

const PRUNE: &str = "DELETE FROM session_classification WHERE (scope_kind, scope_id) IN \
    (SELECT scope_kind, scope_id FROM session_classification WHERE updated_at < $1 \
    ORDER BY updated_at LIMIT $2)";

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger) enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// A number or a moment; none is NULL.
    Number(Option<i64>),
}

/// A row as it is in the database.
#[derive(Debug)]
pub(in crate::ledger) struct Stored {
    /// `kind`, `source`, `confidence` and `evidence_code`.
    pub(in crate::ledger) words: [String; 4],
    pub(in crate::ledger) revision: i64,
    pub(in crate::ledger) attempts: i64,
    pub(in crate::ledger) lease: String,
    pub(in crate::ledger) lease_until: Option<i64>,
    pub(in crate::ledger) next_at: Option<i64>,
    pub(in crate::ledger) updated_at: i64,
}

impl Stored {
    /// Reads the columns of [`LOAD`] by their places; none where a value has another type.
    pub(in crate::ledger) fn read(
        text: impl Fn(usize) -> Option<String>,
        number: impl Fn(usize) -> Option<i64>,
        time: impl Fn(usize) -> Option<Option<i64>>,
    ) -> Option<Self> {
        Some(Self {
            words: [text(0)?, text(1)?, text(2)?, text(3)?],
            revision: number(4)?,
            attempts: number(5)?,
            lease: text(6)?,
            lease_until: time(7)?,
            next_at: time(8)?,
            updated_at: number(9)?,
        })
    }

    /// What it says; none if it is not a row that this program writes.
    fn record(self) -> Option<Record> {
        let [kind, source, confidence, code] = &self.words;
        let classification =
            Classification::stored((kind, source, confidence), code, self.revision)?;
        let attempts = u32::try_from(self.attempts).ok()?;
        let lease = match (LeaseId::new(&self.lease), self.lease_until) {
            (Some(lease), Some(until)) if until > 0 => Some((lease, until)),
            (None, None) if self.lease.is_empty() => None,
            _ => return None,
        };
        let sound = attempts <= REMOTE_ATTEMPTS_MAX
            && self.updated_at > 0
            && self.next_at.is_none_or(|at| at > 0);
        sound.then_some(Record {
            classification,
            attempts,
            lease,
            next_at: self.next_at,
            updated_at: self.updated_at,
        })
    }
}

/// A database that has the table. Statements have at most one row as their result.
pub(in crate::ledger) trait SessionDatabase {
    /// Brings the table up to [`SCHEMA`].
    fn ensure(&mut self) -> Result<(), SessionError>;

    /// The row that `statement` finds; [`SessionError::Refused`] if its values have other types.
    fn find(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Stored>, SessionError>;

    /// The number that `statement` returns of the row that it changed, if it did.
    fn change(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Option<i64>, SessionError>;

    /// How many rows `statement` deleted.
    fn delete(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, SessionError>;
}

/// The sessions of a database that is open.
#[derive(Debug)]
pub(in crate::ledger) struct SessionTable<D>(pub(in crate::ledger) D);

impl<D: SessionDatabase> SessionTable<D> {
    fn found(&mut self, key: &Key) -> Result<Record, SessionError> {
        Ok(self.load(key)?.unwrap_or_default())
    }
}

impl<D: SessionDatabase> SessionStore for SessionTable<D> {
    fn ensure(&mut self) -> Result<(), SessionError> {
        self.0.ensure()
    }

    fn load(&mut self, key: &Key) -> Result<Option<Record>, SessionError> {
        let id = key.id_text();
        let of = [Value::Text(key.scope().as_str()), Value::Text(&id)];
        let stored = self.0.find(LOAD, &of)?;
        stored
            .map(|stored| stored.record().ok_or(SessionError::Refused))
            .transpose()
    }

    fn promote(
        &mut self,
        key: &Key,
        evidence: Evidence,
        now: Duration,
    ) -> Result<(Classification, bool), SessionError> {
        let found = Classification::by(evidence);
        let values = [
            Value::Text(key.scope().as_str()),
            Value::Text(&key.id_text()),
            Value::Text(found.kind()),
            Value::Text(evidence.source().as_str()),
            Value::Text(Classification::CONFIDENCE),
            Value::Text(evidence.as_str()),
            Value::Number(Some(now_micros(now))),
        ];
        match self.0.change(PROMOTE, &values)? {
            Some(_) => Ok((found, true)),
            // Somebody was first.
            None => Ok((self.found(key)?.classification, false)),
        }
    }

    fn claim(
        &mut self,
        key: &Key,
        terms: &RemoteTerms,
        lease: LeaseId,
        now: Duration,
    ) -> Result<Result<Claim, Refused>, SessionError> {
        let values = [
            Value::Text(key.scope().as_str()),
            Value::Text(&key.id_text()),
            Value::Text(lease.as_str()),
            Value::Number(Some(deadline_micros(now, terms.lease))),
            Value::Number(Some(now_micros(now))),
            Value::Number(Some(i64::from(terms.attempts_max))),
        ];
        if let Some(attempt) = self.0.change(CLAIM, &values)? {
            return Ok(Ok(Claim {
                key: *key,
                lease,
                attempt: u32::try_from(attempt).map_err(|_| SessionError::Refused)?,
                backoff: terms.backoff,
            }));
        }
        let why = self.found(key)?.eligible(terms, now);
        // What was in the way may be gone already; the next turn asks again.
        Ok(Err(why.err().unwrap_or(Refused::LeaseBusy)))
    }

    fn complete(
        &mut self,
        claim: &Claim,
        evidence: Option<Evidence>,
        now: Duration,
    ) -> Result<Completion, SessionError> {
        let evidence = evidence.filter(|it| it.source() == Source::RemoteClassifier);
        let found = evidence.map_or(Classification::Unknown, Classification::by);
        let word = |word: &'static str| Value::Text(if evidence.is_some() { word } else { "" });
        let values = [
            word(found.kind()),
            word(Source::RemoteClassifier.as_str()),
            word(Classification::CONFIDENCE),
            Value::Text(evidence.map(Evidence::as_str).unwrap_or_default()),
            Value::Number(Some(i64::from(evidence.is_some()))),
            Value::Number(next_at(claim, now).filter(|_| evidence.is_none())),
            Value::Number(Some(now_micros(now))),
            Value::Text(claim.key.scope().as_str()),
            Value::Text(&claim.key.id_text()),
            Value::Text(claim.lease.as_str()),
            Value::Number(Some(i64::from(claim.attempt))),
        ];
        let stale = self.0.change(COMPLETE, &values)?.is_none();
        let classification = if stale {
            self.found(&claim.key)?.classification
        } else {
            found
        };
        Ok(Completion {
            classification,
            stale,
        })
    }

    fn prune(&mut self, oldest: Duration) -> Result<bool, SessionError> {
        let most = u64::from(PRUNE_ROWS);
        let values = [
            Value::Number(Some(now_micros(oldest))),
            Value::Number(Some(i64::from(PRUNE_ROWS))),
        ];
        Ok(self.0.delete(PRUNE, &values)? >= most)
    }
}
