//! The table of sessions in a database.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::ledger::postgres::{Postgres, SCHEMA_LOCK};
use crate::ledger::sessions::{SCHEMA, SessionDatabase, SessionError, Stored, Value};

fn parameters<'a>(values: &'a [Value<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    let parameter = |value: &'a Value<'a>| -> &'a (dyn ToSql + Sync) {
        match value {
            Value::Text(text) => text,
            Value::Number(number) => number,
        }
    };
    values.iter().map(parameter).collect()
}

/// None where a value has another type, which takes somebody who changed the table.
fn stored(row: &Row) -> Option<Stored> {
    let text = |column: usize| row.try_get::<_, String>(column).ok();
    let number = |column: usize| row.try_get::<_, i64>(column).ok();
    let time = |column: usize| row.try_get::<_, Option<i64>>(column).ok();
    Some(Stored {
        words: [text(0)?, text(1)?, text(2)?, text(3)?],
        revision: number(4)?,
        attempts: number(5)?,
        lease: text(6)?,
        lease_until: time(7)?,
        next_at: time(8)?,
        updated_at: number(9)?,
    })
}

impl SessionDatabase for &mut Postgres {
    /// One gateway at a time: `IF NOT EXISTS` does not keep two of them apart.
    fn ensure(&mut self) -> Result<(), SessionError> {
        let made = self.run(async |client| {
            let transaction = client.transaction().await?;
            let lock = "SELECT pg_advisory_xact_lock($1)";
            transaction.execute(lock, &[&SCHEMA_LOCK]).await?;
            transaction.batch_execute(SCHEMA).await?;
            Ok(transaction.commit().await?)
        });
        Ok(made?)
    }

    fn find(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Stored>, SessionError> {
        let found = self.run(async |client| {
            let found = client.query_opt(statement, &parameters(values)).await?;
            Ok(found.map(|row| stored(&row)))
        })?;
        found
            .map(|stored| stored.ok_or(SessionError::Refused))
            .transpose()
    }

    fn change(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Option<i64>, SessionError> {
        let changed = self.run(async |client| {
            let changed = client.query_opt(statement, &parameters(values)).await?;
            Ok(changed.map(|row| row.try_get(0)).transpose()?)
        });
        Ok(changed?)
    }

    fn delete(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, SessionError> {
        let deleted =
            self.run(async |client| Ok(client.execute(statement, &parameters(values)).await?));
        Ok(deleted?)
    }
}
