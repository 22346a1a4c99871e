//! Where the gateway of a test keeps its ledger, and the rows in it, read beside the gateway.

use std::path::PathBuf;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::support::postgres::{Server, query};

/// The section `store` of a ledger at this URL, and the admin listener that tells what is in it.
pub(crate) fn lines_of(url: &str) -> String {
    format!(
        "store: {{ url: \"{url}\", flush_interval: 100ms }}\nadmin: {{ listen: \"127.0.0.1:0\" }}"
    )
}

/// A store that outlives its gateway; a file goes when this is dropped.
#[derive(Debug)]
pub(crate) enum Kept {
    /// In a file of this folder.
    File(TempDir),
    /// In the database at this URL.
    Database(String),
}

impl Kept {
    pub(crate) fn in_file() -> Self {
        Self::File(TempDir::new().unwrap())
    }

    /// In a new database of the server that the tests share.
    pub(crate) fn in_database() -> Self {
        Self::Database(Server::shared().database())
    }

    /// One of each kind, empty.
    pub(crate) fn each() -> [Self; 2] {
        [Self::in_file(), Self::in_database()]
    }

    pub(crate) fn lines(&self) -> String {
        match self {
            Self::File(folder) => lines_of(&format!("sqlite:{}", file_in(folder).display())),
            Self::Database(url) => lines_of(url),
        }
    }

    /// The file of a store that is one.
    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Self::File(folder) => file_in(folder),
            Self::Database(_) => unreachable!("a database is no file"),
        }
    }

    /// All rows of a table, an object each, in the order in which they were observed.
    pub(crate) fn rows(&self, table: &str, columns: &str) -> Vec<Value> {
        let order = match table {
            "route_decisions" => "observed_at, id",
            _ => "observed_at, request_id, id",
        };
        let statement = format!("SELECT {columns} FROM {table} ORDER BY {order}");
        match self {
            Self::File(folder) => rows_of(&Connection::open(file_in(folder)).unwrap(), &statement),
            Self::Database(url) => {
                let objects = format!("SELECT row_to_json(found) FROM ({statement}) AS found");
                let lines = query(url, &objects);
                let rows = lines.lines().map(serde_json::from_str);
                rows.collect::<Result<_, _>>().unwrap()
            }
        }
    }
}

fn file_in(folder: &TempDir) -> PathBuf {
    folder.path().join("ledger.db")
}

fn rows_of(database: &Connection, statement: &str) -> Vec<Value> {
    let mut statement = database.prepare(statement).unwrap();
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut found = statement.query([]).unwrap();
    let mut rows = Vec::new();
    while let Some(row) = found.next().unwrap() {
        let values = names.iter().enumerate().map(|(at, name)| {
            let value = match row.get_ref(at).unwrap() {
                ValueRef::Integer(number) => json!(number),
                ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
                _ => Value::Null,
            };
            (name.clone(), value)
        });
        rows.push(Value::Object(values.collect::<Map<_, _>>()));
    }
    rows
}
