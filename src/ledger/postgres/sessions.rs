//! The table of sessions in a database.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::ledger::postgres::{Postgres, changing_schema};
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
    Stored::read(
        |column| row.try_get(column).ok(),
        |column| row.try_get(column).ok(),
        |column| row.try_get(column).ok(),
    )
}

impl SessionDatabase for &mut Postgres {
    /// One gateway at a time: `IF NOT EXISTS` does not keep two of them apart.
    fn ensure(&mut self) -> Result<(), SessionError> {
        let made = self.run(async |client| {
            let transaction = changing_schema(client).await?;
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
