//! Sessions in a table beside the ledger's.
//!
//! Each call is one statement that changes a row only if the row is as the change needs it, so that no gateway
//! holds a lock while it thinks, and none takes back what another one did. Statements keep to what other
//! databases understand too.

#![expect(
    clippy::result_large_err,
    reason = "the library's own error, in calls that it makes"
)]

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use crate::classify::{
    Claim, Classification, Completion, Evidence, Key, LeaseId, Record, Refused, RemoteTerms,
    Source, deadline_micros, next_at, now_micros,
};
use crate::ledger::sessions::{SessionError, SessionStore};
use crate::limits::{PRUNE_ROWS, REMOTE_ATTEMPTS_MAX};

/// The sessions of a database that is open.
#[derive(Debug)]
pub(in crate::ledger) struct SessionTable<'a>(pub(in crate::ledger) &'a Connection);

const COLUMNS: &str = "kind, source, confidence, evidence_code, classification_revision, \
    remote_attempts, remote_lease_id, remote_lease_until, remote_next_eligible_at, updated_at";

/// A row as it is read; none if it is not one that this program writes, values of other types included.
fn record(row: &Row<'_>) -> Option<Record> {
    let text = |column| row.get::<_, String>(column).ok();
    let number = |column| row.get::<_, i64>(column).ok();
    let time = |column| row.get::<_, Option<i64>>(column).ok();
    let (kind, source, confidence) = (text(0)?, text(1)?, text(2)?);
    let classification =
        Classification::stored((&kind, &source, &confidence), &text(3)?, number(4)?)?;
    let attempts = u32::try_from(number(5)?).ok()?;
    let (lease, until) = (text(6)?, time(7)?);
    let lease = match (LeaseId::new(&lease), until) {
        (Some(lease), Some(until)) if until > 0 => Some((lease, until)),
        (None, None) if lease.is_empty() => None,
        _ => return None,
    };
    let (next_at, updated_at) = (time(8)?, number(9)?);
    let sound =
        attempts <= REMOTE_ATTEMPTS_MAX && updated_at > 0 && next_at.is_none_or(|at| at > 0);
    sound.then_some(Record {
        classification,
        attempts,
        lease,
        next_at,
        updated_at,
    })
}

impl SessionTable<'_> {
    fn found(&mut self, key: &Key) -> Result<Record, SessionError> {
        Ok(self.load(key)?.unwrap_or_default())
    }
}

impl SessionStore for SessionTable<'_> {
    fn ensure(&mut self) -> Result<(), SessionError> {
        self.0.execute_batch(include_str!("schema.sql"))?;
        Ok(())
    }

    fn load(&mut self, key: &Key) -> Result<Option<Record>, SessionError> {
        let mut statement = self.0.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM session_classification WHERE scope_kind = ?1 AND scope_id = ?2"
        ))?;
        let row = params![key.scope().as_str(), key.id_text()];
        let row = statement.query_row(row, |row| Ok(record(row))).optional()?;
        row.map(|record| record.ok_or(SessionError::Refused))
            .transpose()
    }

    fn promote(
        &mut self,
        key: &Key,
        evidence: Evidence,
        now: Duration,
    ) -> Result<(Classification, bool), SessionError> {
        let found = Classification::by(evidence);
        let mut statement = self.0.prepare_cached(
            "INSERT INTO session_classification AS kept (scope_kind, scope_id, kind, source, \
             confidence, evidence_code, classification_revision, remote_attempts, remote_lease_id, \
             remote_lease_until, remote_next_eligible_at, updated_at) \
             VALUES (:scope, :id, :kind, :source, :confidence, :code, 1, 0, '', NULL, NULL, :now) \
             ON CONFLICT (scope_kind, scope_id) DO UPDATE SET kind = excluded.kind, \
             source = excluded.source, confidence = excluded.confidence, \
             evidence_code = excluded.evidence_code, classification_revision = 1, \
             remote_lease_id = '', remote_lease_until = NULL, remote_next_eligible_at = NULL, \
             updated_at = excluded.updated_at WHERE kept.kind = '' RETURNING 1",
        )?;
        let changed = statement
            .query_row(
                named_params! {
                    ":scope": key.scope().as_str(),
                    ":id": key.id_text(),
                    ":kind": found.kind(),
                    ":source": evidence.source().as_str(),
                    ":confidence": Classification::CONFIDENCE,
                    ":code": evidence.as_str(),
                    ":now": now_micros(now),
                },
                |_| Ok(()),
            )
            .optional()?;
        drop(statement);
        match changed {
            Some(()) => Ok((found, true)),
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
        let mut statement = self.0.prepare_cached(
            "INSERT INTO session_classification AS kept (scope_kind, scope_id, kind, source, \
             confidence, evidence_code, classification_revision, remote_attempts, remote_lease_id, \
             remote_lease_until, remote_next_eligible_at, updated_at) \
             VALUES (:scope, :id, '', '', '', '', 0, 1, :lease, :until, NULL, :now) \
             ON CONFLICT (scope_kind, scope_id) DO UPDATE SET \
             remote_attempts = kept.remote_attempts + 1, \
             remote_lease_id = excluded.remote_lease_id, \
             remote_lease_until = excluded.remote_lease_until, remote_next_eligible_at = NULL, \
             updated_at = excluded.updated_at \
             WHERE kept.kind = '' AND kept.remote_attempts < :most \
             AND (kept.remote_lease_id = '' OR kept.remote_lease_until <= :now) \
             AND (kept.remote_next_eligible_at IS NULL OR kept.remote_next_eligible_at <= :now) \
             RETURNING remote_attempts",
        )?;
        let attempt = statement
            .query_row(
                named_params! {
                    ":scope": key.scope().as_str(),
                    ":id": key.id_text(),
                    ":lease": lease.as_str(),
                    ":until": deadline_micros(now, terms.lease),
                    ":most": terms.attempts_max,
                    ":now": now_micros(now),
                },
                |row| row.get::<_, u32>(0),
            )
            .optional()?;
        drop(statement);
        if let Some(attempt) = attempt {
            return Ok(Ok(Claim {
                key: *key,
                lease,
                attempt,
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
        let word = |word: &'static str| if evidence.is_some() { word } else { "" };
        let next_at = next_at(claim, now).filter(|_| evidence.is_none());
        let mut statement = self.0.prepare_cached(
            "UPDATE session_classification SET kind = :kind, source = :source, \
             confidence = :confidence, evidence_code = :code, classification_revision = :revision, \
             remote_lease_id = '', remote_lease_until = NULL, remote_next_eligible_at = :next, \
             updated_at = :now \
             WHERE scope_kind = :scope AND scope_id = :id AND kind = '' \
             AND remote_lease_id = :lease AND remote_attempts = :attempt AND remote_lease_until > :now",
        )?;
        let changed = statement.execute(named_params! {
            ":kind": word(found.kind()),
            ":source": word(Source::RemoteClassifier.as_str()),
            ":confidence": word(Classification::CONFIDENCE),
            ":code": evidence.map(Evidence::as_str).unwrap_or_default(),
            ":revision": i64::from(evidence.is_some()),
            ":next": next_at,
            ":now": now_micros(now),
            ":scope": claim.key.scope().as_str(),
            ":id": claim.key.id_text(),
            ":lease": claim.lease.as_str(),
            ":attempt": claim.attempt,
        })?;
        drop(statement);
        let stale = changed == 0;
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
        let mut statement = self.0.prepare_cached(
            "DELETE FROM session_classification WHERE (scope_kind, scope_id) IN \
             (SELECT scope_kind, scope_id FROM session_classification WHERE updated_at < ?1 \
             ORDER BY updated_at LIMIT ?2)",
        )?;
        let deleted = statement.execute(params![now_micros(oldest), PRUNE_ROWS])?;
        Ok(u32::try_from(deleted).is_ok_and(|deleted| deleted >= PRUNE_ROWS))
    }
}
