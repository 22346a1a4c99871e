//! The store in a file of SQLite.
//!
//! The journal is a write-ahead log and is not synced with every transaction: a process that is killed
//! loses nothing that was committed, a machine that loses power may lose the last commits, and neither
//! damages the file. Statements keep to what other databases understand too; what is SQLite's own is in
//! [`open`] and [`Sqlite::size`].

#![expect(
    clippy::result_large_err,
    reason = "the error of rusqlite is what its closures give"
)]

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, params};

use crate::ledger::conversation::Group;
use crate::ledger::question::Found;
use crate::ledger::row::{Change, Decision, Observation, Outcome, Verdict, column, micros};
use crate::ledger::sessions::{SessionStore, SessionTable};
use crate::ledger::store::{Candidates, Keep, Store, StoreError, Table};
use crate::limits::{CONVERSATION_GROUPS_MAX, CONVERSATION_ROWS_MAX, PRUNE_ROWS, STORE_BUSY_MS};

/// What makes the next version of the schema out of the one before. Columns are only ever added.
const MIGRATIONS: [&str; 2] = [include_str!("schema_1.sql"), include_str!("schema_2.sql")];

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt,
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                Self::Unreachable
            }
            _ => Self::Other,
        }
    }
}

/// A database that is open.
#[derive(Debug)]
pub(super) struct Sqlite {
    connection: Connection,
}

/// Opens the database and brings it up to the present schema.
pub(super) fn open(path: &Path) -> Result<Sqlite, StoreError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_millis(STORE_BUSY_MS))?;
    // Only has an effect on a database without tables.
    connection.pragma_update(None, "auto_vacuum", "incremental")?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    migrate(&mut connection)?;
    Ok(Sqlite { connection })
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = Transaction::new(connection, rusqlite::TransactionBehavior::Immediate)?;
    transaction
        .execute_batch("CREATE TABLE IF NOT EXISTS ledger_schema (version INTEGER NOT NULL)")?;
    let version: Option<i64> = transaction
        .query_row("SELECT MAX(version) FROM ledger_schema", [], |row| {
            row.get(0)
        })
        .optional()?
        .flatten();
    let done = usize::try_from(version.unwrap_or(0)).unwrap_or(usize::MAX);
    let Some(pending) = MIGRATIONS.get(done..) else {
        return Err(StoreError::Newer);
    };
    for (step, migration) in pending.iter().enumerate() {
        transaction.execute_batch(migration)?;
        let version = column((done + step + 1) as u64);
        transaction.execute("INSERT INTO ledger_schema (version) VALUES (?1)", [version])?;
    }
    transaction.commit()?;
    Ok(())
}

fn insert_decision(transaction: &Transaction<'_>, row: &Decision) -> rusqlite::Result<usize> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO route_decisions (observed_at, request_id, principal, session_key, agent, \
         parent_key, dialect, face, route, provider, model, lane, status, request_bytes, \
         response_bytes, first_byte_us, duration_us, end_reason, usage, stop_reason, input_tokens, \
         output_tokens, cached_tokens, cache_write_tokens, session_kind, session_evidence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
         ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)",
    )?;
    let dialect = row.dialect.as_str();
    let [input, output, cached, cache_write] = row.token_columns();
    statement.execute(params![
        row.at_ms,
        row.id.to_string(),
        row.principal.as_deref().unwrap_or_default(),
        row.session.as_str(),
        row.agent(),
        row.parent(),
        dialect,
        // The same until bodies are translated.
        dialect,
        row.route(),
        &*row.provider,
        row.model.as_ref().map(|model| model.as_str()),
        row.lane,
        row.status,
        column(row.request_bytes),
        column(row.response_bytes),
        row.first_byte.map(micros),
        micros(row.duration),
        row.end.as_str(),
        row.usage(),
        row.stop_reason(),
        input,
        output,
        cached,
        cache_write,
        row.session_kind(),
        row.session_evidence(),
    ])
}

fn insert_observation(transaction: &Transaction<'_>, row: &Observation) -> rusqlite::Result<usize> {
    let table = Table::of(row.local).name();
    let mut statement = transaction.prepare_cached(&format!(
        "INSERT INTO {table} (observed_at, request_id, principal, session_key, source) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING"
    ))?;
    statement.execute(params![
        row.at_ms,
        row.id.to_string(),
        row.principal.as_deref().unwrap_or_default(),
        row.session.as_str(),
        &*row.source,
    ])
}

/// The columns that make a [`Found`], in the order of [`found`].
const FOUND: &str = "request_id, session_key, client_outcome";

fn found(row: &Row<'_>, table: Table) -> rusqlite::Result<Found> {
    let outcome: Option<String> = row.get(2)?;
    Ok(Found {
        id: row.get(0)?,
        session: row.get(1)?,
        local: table == Table::Local,
        outcome: outcome.as_deref().and_then(Verdict::from_word),
    })
}

impl Sqlite {
    /// Bytes of pages in use.
    fn size(&self) -> Result<u64, StoreError> {
        let pragma = |name| {
            let number = self
                .connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            number.map(|number| u64::try_from(number).unwrap_or(0))
        };
        let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
        Ok(pages.saturating_mul(pragma("page_size")?))
    }

    /// Gives pages that are not in use back to the file system, a bounded number.
    fn shrink(&self) -> Result<(), StoreError> {
        self.connection
            .execute_batch(&format!("PRAGMA incremental_vacuum({PRUNE_ROWS})"))?;
        Ok(())
    }

    fn delete_oldest(&self, before_ms: i64) -> Result<bool, StoreError> {
        let mut more = false;
        let tables = ["route_decisions", Table::Remote.name(), Table::Local.name()];
        for table in tables {
            let mut statement = self.connection.prepare_cached(&format!(
                "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE observed_at < ?1 \
                 ORDER BY observed_at LIMIT ?2)"
            ))?;
            let deleted = statement.execute(params![before_ms, PRUNE_ROWS])?;
            more |= deleted as u64 == u64::from(PRUNE_ROWS);
        }
        Ok(more)
    }
}

impl Store for Sqlite {
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        for change in changes {
            match change {
                Change::Decided(row) => insert_decision(&transaction, row)?,
                Change::Observed(row) => insert_observation(&transaction, row)?,
            };
        }
        transaction.commit()?;
        Ok(())
    }

    fn by_request(&mut self, principal: &str, id: &str) -> Result<Option<Found>, StoreError> {
        for table in Table::ALL {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT {FOUND} FROM {} WHERE request_id = ?1 AND principal = ?2",
                table.name()
            ))?;
            let row = statement.query_row([id, principal], |row| found(row, table));
            let row = row.optional()?;
            if row.is_some() {
                return Ok(row);
            }
        }
        Ok(None)
    }

    fn newest(
        &mut self,
        table: Table,
        principal: &str,
        session: &str,
    ) -> Result<Option<Found>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {FOUND} FROM {} WHERE session_key = ?1 AND principal = ?2 \
             ORDER BY observed_at DESC, id DESC LIMIT 1",
            table.name()
        ))?;
        let row = statement.query_row([session, principal], |row| found(row, table));
        Ok(row.optional()?)
    }

    fn candidates(
        &mut self,
        principal: &str,
        source: Option<&str>,
        since_ms: i64,
    ) -> Result<Candidates, StoreError> {
        let mut candidates = Candidates::default();
        let mut newest_at = i64::MIN;
        let mut session: Option<String> = None;
        for table in Table::ALL {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT {FOUND}, observed_at FROM {} WHERE observed_at >= ?1 AND principal = ?2 \
                 AND (?3 IS NULL OR source = ?3) ORDER BY observed_at DESC, id DESC LIMIT 1",
                table.name()
            ))?;
            let newest = statement.query_row(params![since_ms, principal, source], |row| {
                Ok((found(row, table)?, row.get::<_, i64>(3)?))
            });
            let Some((row, at)) = newest.optional()? else {
                continue;
            };
            // Another conversation than the newest row's ends the search at the first of its rows.
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT 1 FROM {} WHERE observed_at >= ?1 AND principal = ?2 \
                 AND (?3 IS NULL OR source = ?3) AND session_key <> ?4 LIMIT 1",
                table.name()
            ))?;
            let other = params![since_ms, principal, source, row.session];
            candidates.several |= statement.exists(other)?;
            candidates.several |= session.as_ref().is_some_and(|it| *it != row.session);
            session = Some(row.session.clone());
            if at > newest_at {
                newest_at = at;
                candidates.newest = Some(row);
            }
        }
        Ok(candidates)
    }

    fn set_outcome(
        &mut self,
        found: &Found,
        outcome: &Outcome,
        at_ms: i64,
    ) -> Result<bool, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "UPDATE {} SET client_outcome = ?1, outcome_kind = ?2, outcome_exit_code = ?3, \
             outcome_duration_ms = ?4, outcome_at = ?5, outcome_recorded_at = ?6 \
             WHERE request_id = ?7",
            Table::of(found.local).name()
        ))?;
        let changed = statement.execute(params![
            outcome.verdict.as_str(),
            outcome.kind.as_deref(),
            outcome.exit_code,
            outcome.duration_ms,
            outcome.at,
            at_ms,
            found.id,
        ])?;
        if changed == 1 {
            Ok(true)
        } else {
            Err(StoreError::Other)
        }
    }

    fn sessions(&mut self) -> Box<dyn SessionStore + '_> {
        Box::new(SessionTable(&self.connection))
    }

    fn prune(&mut self, keep: Keep) -> Result<bool, StoreError> {
        let mut more = self.delete_oldest(keep.since_ms)?;
        if self.size()? > keep.bytes_max {
            self.delete_oldest(i64::MAX)?;
            more |= self.size()? > keep.bytes_max;
        }
        self.shrink()?;
        Ok(more)
    }

    fn groups(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<(Vec<Group>, usize), StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT agent, status, COUNT(*), SUM(request_bytes), SUM(response_bytes), \
             COUNT(first_byte_us), COALESCE(SUM(first_byte_us), 0), \
             COALESCE(MAX(first_byte_us), 0), MIN(observed_at), MAX(observed_at), \
             SUM(COUNT(*)) OVER (), COUNT(NULLIF(usage, 'absent')), \
             COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0), \
             COALESCE(SUM(cached_tokens), 0), COALESCE(SUM(cache_write_tokens), 0) \
             FROM (SELECT agent, status, request_bytes, response_bytes, first_byte_us, observed_at, \
             usage, input_tokens, output_tokens, cached_tokens, cache_write_tokens \
             FROM route_decisions WHERE session_key = ?1 AND principal = ?2 \
             ORDER BY observed_at DESC LIMIT ?3) AS newest \
             GROUP BY agent, status ORDER BY agent, status LIMIT ?4",
        )?;
        let groups_most = column(CONVERSATION_GROUPS_MAX as u64 + 1);
        let most = column(most as u64);
        let mut found: i64 = 0;
        let groups =
            statement.query_map(params![session, principal, most, groups_most], |row| {
                found = row.get(10)?;
                Group::read(row.get(0)?, |column| row.get(column))
            })?;
        let groups = groups.collect::<Result<_, _>>()?;
        Ok((groups, usize::try_from(found).unwrap_or(0)))
    }

    fn children(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        // From each key to the next in the index, past all its rows.
        let mut statement = self.connection.prepare_cached(
            "WITH RECURSIVE child (session_key) AS ( \
             SELECT MIN(session_key) FROM route_decisions WHERE parent_key = ?1 AND principal = ?2 \
             UNION ALL SELECT (SELECT MIN(session_key) FROM route_decisions \
             WHERE parent_key = ?1 AND principal = ?2 AND session_key > child.session_key) \
             FROM child WHERE child.session_key IS NOT NULL) \
             SELECT session_key FROM child WHERE session_key IS NOT NULL LIMIT ?3",
        )?;
        let most = column(most as u64);
        let keys = statement.query_map(params![session, principal, most], |row| row.get(0))?;
        Ok(keys.collect::<Result<_, _>>()?)
    }

    fn newest_conversations(
        &mut self,
        principal: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT session_key FROM (SELECT id, principal, session_key, observed_at \
             FROM route_decisions ORDER BY observed_at DESC, id DESC LIMIT ?2) AS newest \
             WHERE principal = ?1 \
             GROUP BY session_key ORDER BY MAX(observed_at) DESC, MAX(id) DESC LIMIT ?3",
        )?;
        let most = column(most as u64);
        let rows = column(CONVERSATION_ROWS_MAX as u64);
        let keys = statement.query_map(params![principal, rows, most], |row| row.get(0))?;
        Ok(keys.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Key;
    use crate::observe::RequestIds;
    use tempfile::TempDir;

    fn rows(count: usize, ids: &RequestIds) -> Vec<Change> {
        let row = || Observation {
            at_ms: 0,
            id: ids.next(),
            principal: None,
            session: Key::client(b"a").unwrap(),
            source: "p".into(),
            local: false,
        };
        (0..count)
            .map(|_| Change::Observed(Box::new(row())))
            .collect()
    }

    #[test]
    fn a_full_disk_stores_all_of_a_batch_or_nothing_and_goes_on_when_there_is_space() {
        let folder = TempDir::new().unwrap();
        let mut store = open(&folder.path().join("a.db")).unwrap();
        let ids = RequestIds::new(1);
        let pages: i64 = store
            .connection
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap();
        store
            .connection
            .pragma_update(None, "max_page_count", pages + 2)
            .unwrap();
        let batch = rows(1000, &ids);
        assert_eq!(store.apply(&batch), Err(StoreError::Full));
        assert!(store.newest(Table::Remote, "", "c:a").unwrap().is_none());
        store
            .connection
            .pragma_update(None, "max_page_count", 100_000)
            .unwrap();
        store.apply(&batch).unwrap();
        // Storing them twice, after a commit that was reported as failed, changes nothing.
        store.apply(&batch).unwrap();
        let count: i64 = store
            .connection
            .query_row("SELECT COUNT(*) FROM energy_observations", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(count, 1000);
    }

    #[test]
    fn a_database_is_brought_up_once_and_a_newer_one_is_refused() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.db");
        drop(open(&path).unwrap());
        let store = open(&path).unwrap();
        let versions: i64 = store
            .connection
            .query_row("SELECT COUNT(*) FROM ledger_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(versions, column(MIGRATIONS.len() as u64));
        let newer = "INSERT INTO ledger_schema (version) VALUES (99)";
        store.connection.execute(newer, []).unwrap();
        assert!(matches!(open(&path), Err(StoreError::Newer)));
    }

    #[test]
    fn deleted_rows_give_their_space_back() {
        let folder = TempDir::new().unwrap();
        let mut store = open(&folder.path().join("a.db")).unwrap();
        let ids = RequestIds::new(1);
        store.apply(&rows(5000, &ids)).unwrap();
        let large = store.size().unwrap();
        let keep = Keep {
            since_ms: 1,
            bytes_max: u64::MAX,
        };
        while store.prune(keep).unwrap() {}
        assert!(store.size().unwrap() * 4 < large, "{large}");
        store.apply(&rows(5000, &ids)).unwrap();
        let keep = Keep {
            since_ms: i64::MIN,
            bytes_max: large / 2,
        };
        while store.prune(keep).unwrap() {}
        let size = store.size().unwrap();
        assert!(size <= large / 2 && size * 8 > large, "{size} of {large}");
    }
}
