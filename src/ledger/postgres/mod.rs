//! The store in a database of PostgreSQL, which several gateways may have in common.
//!
//! One connection, made when it is needed and given up with the first error that may be its own. Every wait
//! has an end on this side too, because a server that is stopped accepts bytes and never answers: opening
//! takes [`STORE_CONNECT_MS`], a call [`STORE_ANSWER_MS`].
//!
//! What gateways do to each other: the schema is made by one at a time (an advisory lock), old rows are deleted
//! by one at a time (one who finds the lock taken leaves it), and rows never meet, since the ids of exchanges are
//! random by core. What is SQLite's page count is rows times [`STORE_ROW_BYTES`] here: the space of deleted rows is
//! used again and not given back, so that the size of a table says nothing of what is in it.

mod address;
mod rows;
mod sessions;

pub use address::{Database, DatabaseUrlError};

use std::fmt;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, NoTls, Row, Transaction};

use crate::ledger::conversation::Group;
use crate::ledger::postgres::rows::storable;
use crate::ledger::question::Found;
use crate::ledger::row::{Change, Outcome, Verdict, column};
use crate::ledger::sessions::{SessionStore, SessionTable};
use crate::ledger::store::{Candidates, Keep, Store, StoreError, Table};
use crate::limits::{
    CONVERSATION_GROUPS_MAX, CONVERSATION_ROWS_MAX, PRUNE_ROWS, STORE_ANSWER_MS, STORE_CONNECT_MS,
    STORE_LOCK_MS, STORE_ROW_BYTES, STORE_STATEMENT_MS,
};
use crate::tls::is_distrust;

/// What makes the next version of the schema out of the one before. Columns are only ever added.
const MIGRATIONS: [&str; 2] = [
    include_str!("schema_1.sql"),
    include_str!("../schema_2.sql"),
];

/// Advisory locks (PostgreSQL 17, §13.3.5): any numbers that no other program is likely to have.
const SCHEMA_LOCK: i64 = 0x6c61_6e65_6761_7401;
pub(super) const PRUNE_LOCK: i64 = 0x6c61_6e65_6761_7402;

const TABLES: [&str; 3] = ["route_decisions", Table::Remote.name(), Table::Local.name()];

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        let Some(code) = error.code() else {
            return if is_distrust(&error) {
                Self::Untrusted
            } else {
                Self::Unreachable
            };
        };
        if *code == SqlState::QUERY_CANCELED {
            return Self::Slow;
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return Self::Refused;
        }
        // Classes of errors: PostgreSQL 17, appendix A.
        match code.code().get(..2) {
            Some("53") => Self::Full,
            Some("55" | "40") => Self::Locked,
            Some("28") => Self::Refused,
            // Also what a standby says that was connected to in place of the primary.
            Some("08" | "25" | "3D" | "57") => Self::Unreachable,
            Some("42" | "XX") => Self::Corrupt,
            _ => Self::Other,
        }
    }
}

/// A connection.
pub(super) struct Postgres {
    client: Client,
    /// None while it is being dropped.
    runtime: Option<Runtime>,
}

/// Connects, and brings the database up to the present schema.
pub(super) fn open(database: &Database) -> Result<Postgres, StoreError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|_| StoreError::Other)?;
    let limit = Duration::from_millis(STORE_CONNECT_MS);
    let connected = runtime.block_on(async { timeout(limit, connect(database)).await });
    let mut postgres = match connected {
        Ok(Ok(client)) => Postgres {
            client,
            runtime: Some(runtime),
        },
        failed => {
            // A name may still be being looked up, on a thread that nothing ends.
            runtime.shutdown_background();
            return Err(failed.map_or(StoreError::Slow, |failed| {
                failed.map_or_else(StoreError::from, |_| StoreError::Other)
            }));
        }
    };
    postgres.migrate()?;
    Ok(postgres)
}

async fn connect(database: &Database) -> Result<Client, Error> {
    let mut config = database.config.clone();
    let bounds = format!(
        "{} -c statement_timeout={STORE_STATEMENT_MS} -c lock_timeout={STORE_LOCK_MS}",
        config.get_options().unwrap_or_default()
    );
    config.options(bounds.trim_start());
    if config.get_application_name().is_none() {
        config.application_name("lanegate");
    }
    // The connection works while somebody waits for it, and ends with its client. Its error is that of who waits.
    match database.tls.clone() {
        Some(tls) => {
            let (client, connection) = config.connect(tls).await?;
            drop(tokio::spawn(connection));
            Ok(client)
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            drop(tokio::spawn(connection));
            Ok(client)
        }
    }
}

/// The columns that make a [`Found`], in the order of [`found`].
const FOUND: &str = "request_id, session_key, client_outcome";

fn found(row: &Row, table: Table) -> Result<Found, Error> {
    let outcome: Option<&str> = row.try_get(2)?;
    Ok(Found {
        id: row.try_get(0)?,
        session: row.try_get(1)?,
        local: table == Table::Local,
        outcome: outcome.and_then(Verdict::from_word),
    })
}

fn first_column(rows: &[Row]) -> Result<Vec<String>, Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

impl Postgres {
    /// Does something with the database, which has [`STORE_ANSWER_MS`] for it.
    pub(super) fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let runtime = self.runtime.as_ref().ok_or(StoreError::Other)?;
        let limit = Duration::from_millis(STORE_ANSWER_MS);
        let client = &mut self.client;
        let worked = runtime.block_on(async { timeout(limit, work(client)).await });
        worked.unwrap_or(Err(StoreError::Slow))
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        self.run(async |client| {
            let transaction = changing_schema(client).await?;
            let versions = "CREATE TABLE IF NOT EXISTS ledger_schema (version BIGINT NOT NULL)";
            transaction.batch_execute(versions).await?;
            let newest = "SELECT COALESCE(MAX(version), 0) FROM ledger_schema";
            let version: i64 = transaction.query_one(newest, &[]).await?.try_get(0)?;
            let done = usize::try_from(version).unwrap_or(usize::MAX);
            let pending = MIGRATIONS.get(done..).ok_or(StoreError::Newer)?;
            for (step, migration) in pending.iter().enumerate() {
                transaction.batch_execute(migration).await?;
                let version = column((done + step + 1) as u64);
                let add = "INSERT INTO ledger_schema (version) VALUES ($1)";
                transaction.execute(add, &[&version]).await?;
            }
            Ok(transaction.commit().await?)
        })
    }
}

/// A transaction of the one gateway that changes the schema at present.
async fn changing_schema(client: &mut Client) -> Result<Transaction<'_>, Error> {
    let transaction = client.transaction().await?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&SCHEMA_LOCK]).await?;
    Ok(transaction)
}

/// Ends the connection without waiting for what its threads may still do.
impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Deletes the oldest rows from before a moment. Whether there may be more.
async fn delete_old(transaction: &Transaction<'_>, before_ms: i64) -> Result<bool, Error> {
    let mut more = false;
    for table in TABLES {
        let statement = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE observed_at < $1 \
             ORDER BY observed_at LIMIT $2)"
        );
        let most = i64::from(PRUNE_ROWS);
        let deleted = transaction
            .execute(&statement, &[&before_ms, &most])
            .await?;
        more |= deleted == u64::from(PRUNE_ROWS);
    }
    Ok(more)
}

/// Deletes the first rows while there are more bytes than this. Whether there are more still.
///
/// Rows are counted by their numbers, which have small gaps where a batch was stored twice, and deleted by
/// them: by time, one row from the future would stay and have all others counted as if they were there.
async fn delete_beyond(transaction: &Transaction<'_>, bytes_max: u64) -> Result<bool, Error> {
    let mut bounds = Vec::new();
    let mut rows: u64 = 0;
    for table in TABLES {
        let ends = format!("SELECT MIN(id), MAX(id) FROM {table}");
        let ends = transaction.query_one(&ends, &[]).await?;
        let ends: (Option<i64>, Option<i64>) = (ends.try_get(0)?, ends.try_get(1)?);
        let (Some(first), Some(last)) = ends else {
            continue;
        };
        let there = u64::try_from(last.saturating_sub(first)).unwrap_or(0) + 1;
        rows = rows.saturating_add(there);
        bounds.push((table, first, there));
    }
    let rows_max = bytes_max / STORE_ROW_BYTES;
    let Some(beyond) = rows.checked_sub(rows_max).filter(|beyond| *beyond > 0) else {
        return Ok(false);
    };
    let mut deleted = 0;
    for (table, first, there) in bounds {
        // Each table gives its share.
        let share = beyond
            .saturating_mul(there)
            .div_ceil(rows)
            .min(u64::from(PRUNE_ROWS));
        let end = first.saturating_add(column(share));
        let statement = format!("DELETE FROM {table} WHERE id < $1");
        transaction.execute(&statement, &[&end]).await?;
        deleted += share;
    }
    Ok(deleted < beyond)
}

impl Store for Postgres {
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.run(async |client| {
            let transaction = client.transaction().await?;
            rows::insert(&transaction, changes).await?;
            Ok(transaction.commit().await?)
        })
    }

    fn by_request(&mut self, principal: &str, id: &str) -> Result<Option<Found>, StoreError> {
        let (principal, id) = (storable(principal), storable(id));
        self.run(async |client| {
            for table in Table::ALL {
                let statement = format!(
                    "SELECT {FOUND} FROM {} WHERE request_id = $1 AND principal = $2",
                    table.name()
                );
                if let Some(row) = client.query_opt(&statement, &[&id, &principal]).await? {
                    return Ok(Some(found(&row, table)?));
                }
            }
            Ok(None)
        })
    }

    fn newest(
        &mut self,
        table: Table,
        principal: &str,
        session: &str,
    ) -> Result<Option<Found>, StoreError> {
        let principal = storable(principal);
        self.run(async |client| {
            let statement = format!(
                "SELECT {FOUND} FROM {} WHERE session_key = $1 AND principal = $2 \
                 ORDER BY observed_at DESC, id DESC LIMIT 1",
                table.name()
            );
            let row = client
                .query_opt(&statement, &[&session, &principal])
                .await?;
            Ok(row.map(|row| found(&row, table)).transpose()?)
        })
    }

    fn candidates(
        &mut self,
        principal: &str,
        source: Option<&str>,
        since_ms: i64,
    ) -> Result<Candidates, StoreError> {
        let (principal, source) = (storable(principal), source.map(storable));
        self.run(async |client| {
            let mut candidates = Candidates::default();
            let mut newest_at = i64::MIN;
            let mut session: Option<String> = None;
            for table in Table::ALL {
                let among =
                    "observed_at >= $1 AND principal = $2 AND ($3::TEXT IS NULL OR source = $3)";
                let newest = format!(
                    "SELECT {FOUND}, observed_at FROM {} WHERE {among} \
                     ORDER BY observed_at DESC, id DESC LIMIT 1",
                    table.name()
                );
                let newest = client
                    .query_opt(&newest, &[&since_ms, &principal, &source])
                    .await?;
                let Some(newest) = newest else {
                    continue;
                };
                let (row, at): (_, i64) = (found(&newest, table)?, newest.try_get(3)?);
                // Another conversation than the newest row's ends the search at the first of its rows.
                let other = format!(
                    "SELECT 1 FROM {} WHERE {among} AND session_key <> $4 LIMIT 1",
                    table.name()
                );
                let other = client
                    .query_opt(&other, &[&since_ms, &principal, &source, &row.session])
                    .await?;
                candidates.several |= other.is_some();
                candidates.several |= session.as_ref().is_some_and(|it| *it != row.session);
                session = Some(row.session.clone());
                if at > newest_at {
                    newest_at = at;
                    candidates.newest = Some(row);
                }
            }
            Ok(candidates)
        })
    }

    fn set_outcome(
        &mut self,
        found: &Found,
        outcome: &Outcome,
        at_ms: i64,
    ) -> Result<bool, StoreError> {
        self.run(async |client| {
            let statement = format!(
                "UPDATE {} SET client_outcome = $1, outcome_kind = $2, outcome_exit_code = $3, \
                 outcome_duration_ms = $4, outcome_at = $5, outcome_recorded_at = $6 \
                 WHERE request_id = $7 AND client_outcome IS NOT DISTINCT FROM $8",
                Table::of(found.local).name()
            );
            let kind = outcome.kind.as_deref();
            let values: [&(dyn ToSql + Sync); 8] = [
                &outcome.verdict.as_str(),
                &kind,
                &outcome.exit_code,
                &outcome.duration_ms,
                &outcome.at,
                &at_ms,
                &found.id,
                &found.outcome.map(Verdict::as_str),
            ];
            Ok(client.execute(&statement, &values).await? == 1)
        })
    }

    fn sessions(&mut self) -> Box<dyn SessionStore + '_> {
        Box::new(SessionTable(self))
    }

    fn prune(&mut self, keep: Keep) -> Result<bool, StoreError> {
        self.run(async |client| {
            let transaction = client.transaction().await?;
            let lock = "SELECT pg_try_advisory_xact_lock($1)";
            let mine: bool = transaction
                .query_one(lock, &[&PRUNE_LOCK])
                .await?
                .try_get(0)?;
            if !mine {
                // Another gateway is at it.
                return Ok(false);
            }
            let mut more = delete_old(&transaction, keep.since_ms).await?;
            more |= delete_beyond(&transaction, keep.bytes_max).await?;
            transaction.commit().await?;
            Ok(more)
        })
    }

    fn groups(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<(Vec<Group>, usize), StoreError> {
        let (principal, session) = (storable(principal), storable(session));
        self.run(async |client| {
            let statement = "SELECT agent, status, COUNT(*), SUM(request_bytes)::BIGINT, \
                 SUM(response_bytes)::BIGINT, COUNT(first_byte_us), \
                 COALESCE(SUM(first_byte_us), 0)::BIGINT, COALESCE(MAX(first_byte_us), 0), \
                 MIN(observed_at), MAX(observed_at), (SUM(COUNT(*)) OVER ())::BIGINT, \
                 COUNT(NULLIF(usage, 'absent')), COALESCE(SUM(input_tokens), 0)::BIGINT, \
                 COALESCE(SUM(output_tokens), 0)::BIGINT, COALESCE(SUM(cached_tokens), 0)::BIGINT, \
                 COALESCE(SUM(cache_write_tokens), 0)::BIGINT \
                 FROM (SELECT agent, status, request_bytes, response_bytes, first_byte_us, observed_at, \
                 usage, input_tokens, output_tokens, cached_tokens, cache_write_tokens \
                 FROM route_decisions WHERE session_key = $1 AND principal = $2 \
                 ORDER BY observed_at DESC LIMIT $3) AS newest \
                 GROUP BY agent, status ORDER BY agent NULLS FIRST, status LIMIT $4";
            let groups_most = column(CONVERSATION_GROUPS_MAX as u64 + 1);
            let most = column(most as u64);
            let rows = client
                .query(statement, &[&session, &principal, &most, &groups_most])
                .await?;
            let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get(10))?;
            let group = |row: &Row| Group::read(row.try_get(0)?, |column| row.try_get(column));
            let groups: Result<Vec<_>, Error> = rows.iter().map(group).collect();
            Ok((groups?, usize::try_from(found).unwrap_or(0)))
        })
    }

    fn children(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let (principal, session) = (storable(principal), storable(session));
        self.run(async |client| {
            // From each key to the next in the index, past all its rows.
            let statement = "WITH RECURSIVE child (session_key) AS ( \
                 SELECT MIN(session_key) FROM route_decisions WHERE parent_key = $1 AND principal = $2 \
                 UNION ALL SELECT (SELECT MIN(session_key) FROM route_decisions \
                 WHERE parent_key = $1 AND principal = $2 AND session_key > child.session_key) \
                 FROM child WHERE child.session_key IS NOT NULL) \
                 SELECT session_key FROM child WHERE session_key IS NOT NULL LIMIT $3";
            let most = column(most as u64);
            let rows = client.query(statement, &[&session, &principal, &most]).await?;
            Ok(first_column(&rows)?)
        })
    }

    fn newest_conversations(
        &mut self,
        principal: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let principal = storable(principal);
        self.run(async |client| {
            let statement = "SELECT session_key FROM (SELECT id, principal, session_key, observed_at \
                 FROM route_decisions ORDER BY observed_at DESC, id DESC LIMIT $2) AS newest \
                 WHERE principal = $1 \
                 GROUP BY session_key ORDER BY MAX(observed_at) DESC, MAX(id) DESC LIMIT $3";
            let most = column(most as u64);
            let among = column(CONVERSATION_ROWS_MAX as u64);
            let rows = client.query(statement, &[&principal, &among, &most]).await?;
            Ok(first_column(&rows)?)
        })
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
