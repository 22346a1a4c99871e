//! The table of sessions in a file.

#![expect(
    clippy::result_large_err,
    reason = "the library's own error, in calls that it makes"
)]

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params_from_iter};

use crate::ledger::sessions::SessionError;
use crate::ledger::sessions::table::{SCHEMA, SessionDatabase, Stored, Value};

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Number(number) => number.to_sql(),
        }
    }
}

/// None where a value has another type: SQLite stores any type in any column.
fn stored(row: &Row<'_>) -> Option<Stored> {
    Stored::read(
        |column| row.get(column).ok(),
        |column| row.get(column).ok(),
        |column| row.get(column).ok(),
    )
}

impl SessionDatabase for &Connection {
    fn ensure(&mut self) -> Result<(), SessionError> {
        Ok(self.execute_batch(SCHEMA)?)
    }

    fn find(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Stored>, SessionError> {
        let mut statement = self.prepare_cached(statement)?;
        let found = statement.query_row(params_from_iter(values), |row| Ok(stored(row)));
        let found = found.optional()?;
        found
            .map(|stored| stored.ok_or(SessionError::Refused))
            .transpose()
    }

    fn change(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Option<i64>, SessionError> {
        let mut statement = self.prepare_cached(statement)?;
        let changed = statement.query_row(params_from_iter(values), |row| row.get(0));
        Ok(changed.optional()?)
    }

    fn delete(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, SessionError> {
        let mut statement = self.prepare_cached(statement)?;
        Ok(statement.execute(params_from_iter(values))? as u64)
    }
}
