//! The URL of a database: who is connected to, under which name, and how far the server is believed.
//!
//! `sslmode` has three words here. `disable` is plain text. `require` and `verify-full` are the same: encrypted,
//! with a certificate that is verified and has the name of the host. The words of libpq that encrypt
//! without knowing to whom, or fall back to plain text (`allow`, `prefer`, `verify-ca`), are refused.

use std::fmt;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::{Authorities, DatabaseClient};

/// Port of a host for which none is named.
const PORT: u16 = 5432;

/// A database of PostgreSQL. Neither [`fmt::Debug`] nor [`fmt::Display`] show its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Database {
    pub(super) config: Config,
    /// None where the connection is not encrypted.
    pub(super) tls: Option<DatabaseClient>,
    shown: String,
}

/// Why a URL is refused. Never shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseUrlError {
    /// Not a URL of a database, or with an option that is not known.
    Malformed,
    /// `sslmode` is none of the three words.
    SslMode,
    /// No host is named.
    NoHost,
}

impl fmt::Display for DatabaseUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => {
                "expected postgres://USER@HOST:PORT/DATABASE and options that are known (what came is not shown)"
            }
            Self::SslMode => "`sslmode` must be disable, require or verify-full",
            Self::NoHost => "name the host, as in postgres://USER@HOST/DATABASE",
        })
    }
}

impl std::error::Error for DatabaseUrlError {}

impl Database {
    /// Reads a URL as libpq does (PostgreSQL 17, §32.1.1.2), save `sslmode`.
    ///
    /// # Errors
    /// See [`DatabaseUrlError`].
    pub fn parse(url: &str, authorities: Authorities) -> Result<Self, DatabaseUrlError> {
        // What is read may also be words such as `host=a`.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(DatabaseUrlError::Malformed);
        }
        let (mode, rest) = take_ssl_mode(url);
        let mut config: Config = rest.parse().map_err(|_| DatabaseUrlError::Malformed)?;
        let hosts = config.get_hosts();
        if hosts.is_empty() {
            return Err(DatabaseUrlError::NoHost);
        }
        let sockets = hosts.iter().all(|host| matches!(host, Host::Unix(_)));
        let encrypted = match mode.as_deref() {
            None => !sockets,
            Some("disable") => false,
            Some("require" | "verify-full") => true,
            Some(_) => return Err(DatabaseUrlError::SslMode),
        };
        let tls = encrypted.then(|| DatabaseClient::new(authorities));
        let tls = tls.transpose().map_err(|_| DatabaseUrlError::Malformed)?;
        config.ssl_mode(if encrypted {
            SslMode::Require
        } else {
            SslMode::Disable
        });
        let shown = if config.get_password().is_some() {
            shown(&config, encrypted)
        } else {
            url.to_owned()
        };
        Ok(Self { config, tls, shown })
    }

    /// Whether the URL has a password in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }
}

/// The last `sslmode` of a URL, and the URL without any.
fn take_ssl_mode(url: &str) -> (Option<String>, String) {
    // A password may have a question mark.
    let user = url.find('@').unwrap_or(0);
    let (_, after) = url.split_at(user);
    let Some((_, options)) = after.split_once('?') else {
        return (None, url.to_owned());
    };
    let (place, _) = url.split_at(url.len() - options.len() - 1);
    let mut mode = None;
    let mut rest = String::new();
    for option in options.split('&') {
        match option.strip_prefix("sslmode=") {
            Some(word) => mode = Some(word.to_owned()),
            None => {
                rest.push(if rest.is_empty() { '?' } else { '&' });
                rest.push_str(option);
            }
        }
    }
    (mode, format!("{place}{rest}"))
}

/// A URL for people, of what has no secret in it.
fn shown(config: &Config, encrypted: bool) -> String {
    let ports = config.get_ports();
    let port = |at: usize| {
        ports
            .get(at)
            .or_else(|| ports.first())
            .copied()
            .unwrap_or(PORT)
    };
    let hosts = config.get_hosts().iter().enumerate();
    let hosts: Vec<String> = hosts
        .map(|(at, host)| match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(at)),
            Host::Tcp(name) => format!("{name}:{}", port(at)),
            Host::Unix(path) => path.display().to_string().replace('/', "%2F"),
        })
        .collect();
    let user = config.get_user().unwrap_or_default();
    let name = config.get_dbname().unwrap_or(user);
    let mode = if encrypted { "verify-full" } else { "disable" };
    format!(
        "postgres://{user}@{}/{name}?sslmode={mode}",
        hosts.join(",")
    )
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Database, DatabaseUrlError> {
        Database::parse(url, Authorities::default())
    }

    #[test]
    fn a_password_is_read_and_never_shown() {
        let url = "postgresql://lane:se%2Fcret-word@db.test:6432/ledger?application_name=a";
        let database = parse(url).unwrap();
        assert!(database.has_password());
        assert_eq!(
            database.config.get_password(),
            Some("se/cret-word".as_bytes())
        );
        let shown = "postgres://lane@db.test:6432/ledger?sslmode=verify-full";
        assert_eq!(database.to_string(), shown);
        assert!(!format!("{database:?}").contains("cret-word"));
        for url in [
            "postgres://lane:cret-word@db.test:port/ledger",
            "postgres://lane@db.test/ledger?cret-word=1",
            "postgres://lane:cret-word@db.test/ledger?sslmode=prefer",
            "postgres://lane:cret-word?@db.test/ledger?sslmode=prefer",
        ] {
            let refused = parse(url).unwrap_err().to_string();
            assert!(!refused.contains("cret-word"), "{refused}");
        }
        let questioned = parse("postgres://lane:cret-word?@db.test/ledger?sslmode=disable");
        assert_eq!(
            questioned.unwrap().to_string(),
            "postgres://lane@db.test:5432/ledger?sslmode=disable"
        );
        let option = parse("postgres://lane@db.test/ledger?password=cret-word").unwrap();
        assert!(option.has_password() && !option.to_string().contains("cret-word"));
    }

    #[test]
    fn a_connection_is_encrypted_and_verified_unless_the_url_says_otherwise() {
        for (url, encrypted) in [
            ("postgres://a@db.test/b", true),
            ("postgres://a@127.0.0.1/b", true),
            ("postgres://a@db.test/b?sslmode=require", true),
            (
                "postgres://a@db.test/b?connect_timeout=3&sslmode=verify-full",
                true,
            ),
            (
                "postgres://a@db.test/b?sslmode=disable&connect_timeout=3",
                false,
            ),
            ("postgres://a@%2Frun%2Fpostgresql/b", false),
            ("postgres:///b?host=/run/postgresql", false),
        ] {
            let database = parse(url).unwrap();
            assert_eq!(database.is_encrypted(), encrypted, "{url}");
            assert_eq!(database.to_string(), url);
        }
        for word in ["prefer", "allow", "verify-ca", "", "DISABLE"] {
            let refused = parse(&format!("postgres://a@db.test/b?sslmode={word}"));
            assert_eq!(refused, Err(DatabaseUrlError::SslMode), "{word}");
        }
        assert_eq!(parse("postgres:///b"), Err(DatabaseUrlError::NoHost));
        assert_eq!(parse("host=db.test"), Err(DatabaseUrlError::Malformed));
    }
}
