//! A batch of rows as one statement: an array for each column.

use std::borrow::Cow;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Transaction};

use crate::ledger::row::{Change, Decision, Observation, column, micros};
use crate::ledger::store::Table;

/// The values of one column.
enum Values<'a> {
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<Cow<'a, str>>>),
}

impl Values<'_> {
    const fn sql_type(&self) -> &'static str {
        match self {
            Self::Numbers(_) => "BIGINT[]",
            Self::Texts(_) => "TEXT[]",
        }
    }

    fn parameter(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Numbers(values) => values,
            Self::Texts(values) => values,
        }
    }
}

/// A text as the database takes it. It knows no NUL, which a client can have in a name; one such row would hold
/// its whole batch up for ever.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Columns of these rows, by name.
struct Columns<'a, R> {
    rows: &'a [&'a R],
    columns: Vec<(&'static str, Values<'a>)>,
}

impl<'a, R> Columns<'a, R> {
    const fn of(rows: &'a [&'a R]) -> Self {
        Self {
            rows,
            columns: Vec::new(),
        }
    }

    fn number(mut self, name: &'static str, value: impl Fn(&R) -> Option<i64>) -> Self {
        let values = self.rows.iter().map(|row| value(row)).collect();
        self.columns.push((name, Values::Numbers(values)));
        self
    }

    fn text(mut self, name: &'static str, value: impl Fn(&'a R) -> Option<&'a str>) -> Self {
        let values = self.rows.iter().map(|row| value(row).map(storable));
        self.columns.push((name, Values::Texts(values.collect())));
        self
    }

    fn words(mut self, name: &'static str, value: impl Fn(&R) -> String) -> Self {
        let values = self.rows.iter().map(|row| Some(Cow::Owned(value(row))));
        self.columns.push((name, Values::Texts(values.collect())));
        self
    }

    /// Stores those that are not stored yet.
    async fn insert(self, transaction: &Transaction<'_>, table: &str) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let arrays = self.columns.iter().enumerate();
        let arrays: Vec<String> = arrays
            .map(|(at, (_, values))| format!("${}::{}", at + 1, values.sql_type()))
            .collect();
        let statement = format!(
            "INSERT INTO {table} ({}) SELECT * FROM UNNEST({}) ON CONFLICT DO NOTHING",
            names.join(", "),
            arrays.join(", ")
        );
        let values: Vec<_> = self.columns.iter().map(|it| it.1.parameter()).collect();
        transaction.execute(&statement, &values).await?;
        Ok(())
    }
}

/// Stores decisions and answers.
pub(super) async fn insert(transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), Error> {
    let (mut decided, mut remote, mut local) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::Decided(row) => decided.push(row.as_ref()),
            Change::Observed(row) if row.local => local.push(row.as_ref()),
            Change::Observed(row) => remote.push(row.as_ref()),
        }
    }
    insert_decisions(transaction, &decided).await?;
    insert_observations(transaction, &remote, Table::Remote).await?;
    insert_observations(transaction, &local, Table::Local).await
}

async fn insert_decisions(transaction: &Transaction<'_>, rows: &[&Decision]) -> Result<(), Error> {
    Columns::of(rows)
        .number("observed_at", |row| Some(row.at_ms))
        .words("request_id", |row| row.id.to_string())
        .text("principal", |row| {
            Some(row.principal.as_deref().unwrap_or_default())
        })
        .text("session_key", |row| Some(row.session.as_str()))
        .text("agent", Decision::agent)
        .text("parent_key", Decision::parent)
        .text("dialect", |row| Some(row.dialect.as_str()))
        // The same until bodies are translated.
        .text("face", |row| Some(row.dialect.as_str()))
        .text("route", |row| Some(row.route()))
        .text("provider", |row| Some(&row.provider))
        .text("model", |row| {
            row.model.as_ref().map(|model| model.as_str())
        })
        .text("lane", |row| Some(row.lane))
        .number("status", |row| Some(i64::from(row.status)))
        .number("request_bytes", |row| Some(column(row.request_bytes)))
        .number("response_bytes", |row| Some(column(row.response_bytes)))
        .number("first_byte_us", |row| row.first_byte.map(micros))
        .number("duration_us", |row| Some(micros(row.duration)))
        .text("end_reason", |row| Some(row.end.as_str()))
        .text("usage", |row| row.usage())
        .text("stop_reason", |row| row.stop_reason())
        .number("input_tokens", |row| row.token_columns()[0])
        .number("output_tokens", |row| row.token_columns()[1])
        .number("cached_tokens", |row| row.token_columns()[2])
        .number("cache_write_tokens", |row| row.token_columns()[3])
        .text("session_kind", |row| row.session_kind())
        .text("session_evidence", |row| row.session_evidence())
        .insert(transaction, "route_decisions")
        .await
}

async fn insert_observations(
    transaction: &Transaction<'_>,
    rows: &[&Observation],
    table: Table,
) -> Result<(), Error> {
    Columns::of(rows)
        .number("observed_at", |row| Some(row.at_ms))
        .words("request_id", |row| row.id.to_string())
        .text("principal", |row| {
            Some(row.principal.as_deref().unwrap_or_default())
        })
        .text("session_key", |row| Some(row.session.as_str()))
        .text("source", |row| Some(&row.source))
        .insert(transaction, table.name())
        .await
}
