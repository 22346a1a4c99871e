//! Where the ledger is kept and for how long, and how conversations are counted.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::provider;
use crate::config::read::{self, Reader, Section};
use crate::config::resolve::Sources;
use crate::config::schema::{IDENTITY, STORE};
use crate::ledger::Database;
use crate::limits::STORE_URL_BYTES;
use crate::tls::Authorities;

/// Where rows of the ledger are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreUrl {
    /// Nowhere: there is no ledger.
    None,
    /// `memory:`, gone with the process. The default: no file is written that nobody asked for.
    #[default]
    Memory,
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `postgres://USER@HOST/DATABASE`
    Postgres(Box<Database>),
}

/// The ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where rows are stored.
    pub url: StoreUrl,
    /// The variable that the URL came from.
    pub url_env: Option<String>,
    /// The file that the URL came from.
    pub url_file: Option<PathBuf>,
    /// Certificates that are believed of a database beside the public roots.
    pub ca_file: Option<PathBuf>,
    /// How long rows stay, 1 m to 3650 d. Default 30 d: a month of work can be looked back on.
    pub retention: Duration,
    /// Bytes beyond which the oldest rows go, 1 MiB to 1 TiB. Default 4 GiB in a file, some ten million
    /// requests; 64 GiB in a database, where each row counts for
    /// [`STORE_ROW_BYTES`](crate::limits::STORE_ROW_BYTES); 32 MiB in memory, some 25,000.
    pub max_bytes: u64,
    /// Longest time that a row is in memory only, 10 ms to 1 m. Default 1 s: what a process that is
    /// killed loses.
    pub flush_interval: Duration,
}

impl StoreUrl {
    const fn max_bytes(&self) -> u64 {
        match self {
            Self::Sqlite(_) => 4 << 30,
            Self::Postgres(_) => 64 << 30,
            Self::None | Self::Memory => 32 << 20,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        let url = StoreUrl::default();
        Self {
            max_bytes: url.max_bytes(),
            url,
            url_env: None,
            url_file: None,
            ca_file: None,
            retention: Duration::from_hours(30 * 24),
            flush_interval: Duration::from_secs(1),
        }
    }
}

/// Conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The time over which conversations are counted, 1 m to 30 d. Default 24 h.
    pub adoption_window: Duration,
    /// Whether ids that agents send of their own accord name a conversation. Default false: what they mean
    /// changes with the versions of the agents.
    pub native: bool,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            adoption_window: Duration::from_hours(24),
            native: false,
        }
    }
}

pub(super) fn store(reader: &mut Reader, root: &Section<'_>, sources: &Sources<'_>) -> Store {
    let section = reader.subsection(root, "store", &STORE);
    let default = Store::default();
    let place = place(reader, &section, sources);
    let minute = Duration::from_mins(1);
    let mut time = |key, range: RangeInclusive<Duration>, default| {
        let value = reader.take(&section, key, read::duration(range));
        value.unwrap_or(default)
    };
    let ten_years = Duration::from_hours(3650 * 24);
    let retention = time("retention", minute..=ten_years, default.retention);
    let shortest = Duration::from_millis(10);
    let flush_interval = time("flush_interval", shortest..=minute, default.flush_interval);
    let bytes = reader.take(&section, "max_bytes", read::size(1 << 20..=1 << 40));
    Store {
        max_bytes: bytes.unwrap_or_else(|| place.url.max_bytes()),
        url: place.url,
        url_env: place.env,
        url_file: place.file,
        ca_file: place.ca_file,
        retention,
        flush_interval,
    }
}

pub(super) fn identity(reader: &mut Reader, root: &Section<'_>) -> Identity {
    let section = reader.subsection(root, "identity", &IDENTITY);
    let default = Identity::default();
    let range = Duration::from_mins(1)..=Duration::from_hours(30 * 24);
    let window = reader.take(&section, "adoption_window", read::duration(range));
    let native = reader.take(&section, "native", read::boolean);
    Identity {
        adoption_window: window.unwrap_or(default.adoption_window),
        native: native.unwrap_or(default.native),
    }
}

/// Where rows are stored, and where that was written.
#[derive(Default)]
struct Place {
    url: StoreUrl,
    env: Option<String>,
    file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

/// A URL with a password in it has to come from a variable or a file of its own, as every credential.
fn place(reader: &mut Reader, section: &Section<'_>, sources: &Sources<'_>) -> Place {
    const SOURCES: [&str; 3] = ["url", "url_env", "url_file"];
    let written = SOURCES.iter().filter(|key| section.get(key).is_some());
    if written.count() > 1 {
        let what = "only one of url, url_env and url_file can be given";
        reader.fail(section.line_of(&SOURCES), section.path_of("url"), what);
    }
    let authorities = reader.take(section, "ca_file", |value| {
        let (path, text) = sources.pem(value)?;
        let authorities = Authorities::from_pem(&text).map_err(|error| error.to_string())?;
        Ok((path, authorities))
    });
    let (ca_file, authorities) = authorities.unzip();
    let authorities = authorities.unwrap_or_default();
    let here = reader.take(section, "url", |value| {
        let url = parse_url(read::text(value)?, &authorities)?;
        match &url {
            StoreUrl::Postgres(database) if database.has_password() => {
                Err("a URL with a password is refused here; use url_env or url_file".to_owned())
            }
            _ => Ok(url),
        }
    });
    let env = reader.take(section, "url_env", provider::variable);
    let from_env = env.as_deref().and_then(|name| {
        reader.take(section, "url_env", |_| {
            let text = sources.variable(name);
            let text = text.ok_or_else(|| format!("{name} is unset or blank"))?;
            parse_url(text.trim(), &authorities)
                .map_err(|what| format!("the value of {name}: {what}"))
        })
    });
    let file = reader.take(section, "url_file", |value| {
        let path = PathBuf::from(read::text(value)?);
        let content = (sources.file)(&path, STORE_URL_BYTES);
        let content = content.map_err(|error| format!("cannot read the file: {error}"))?;
        let text = String::from_utf8(content).map_err(|_| "the file is no text".to_owned())?;
        let url = parse_url(text.trim_end_matches(['\r', '\n']), &authorities);
        Ok((path, url.map_err(|what| format!("the file: {what}"))?))
    });
    let (file, from_file) = file.unzip();
    let url = here.or(from_env).or(from_file).unwrap_or_default();
    let encrypted = matches!(&url, StoreUrl::Postgres(database) if database.is_encrypted());
    if ca_file.is_some() && !encrypted {
        let what = "only for a database of PostgreSQL to which the connection is encrypted";
        reader.fail(
            section.line_of(&["ca_file"]),
            section.path_of("ca_file"),
            what,
        );
    }
    Place {
        url,
        env,
        file,
        ca_file,
    }
}

/// Never shows what it refuses.
fn parse_url(text: &str, authorities: &Authorities) -> Result<StoreUrl, String> {
    let fits = (1..=STORE_URL_BYTES).contains(&text.len())
        && text.trim() == text
        && !text.chars().any(char::is_control);
    if !fits {
        return Err(format!(
            "expected 1 to {STORE_URL_BYTES} bytes without control characters or white space at the ends"
        ));
    }
    match text.split_once(':') {
        None if text == "none" => Ok(StoreUrl::None),
        Some(("memory", "")) => Ok(StoreUrl::Memory),
        Some(("sqlite", path)) if !path.is_empty() => Ok(StoreUrl::Sqlite(path.into())),
        Some(("postgres" | "postgresql", _)) => Database::parse(text, authorities.clone())
            .map(|database| StoreUrl::Postgres(Box::new(database)))
            .map_err(|error| error.to_string()),
        _ => Err("expected `memory:`, `sqlite:` and the path of a file, `postgres://` and a database, or `none`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigError, parse};

    const SECRET: &str = "postgres://lane:cret-word@db.test/ledger";

    fn config(store: &str) -> Result<Config, ConfigError> {
        let text = format!(
            "store: {{ {store} }}\nproviders: [{{ name: a, dialect: openai, base_url: \"http://127.0.0.1:1\", auth: none }}]"
        );
        parse(&text, &|name| match name {
            "LEDGER_URL" => Some(format!("{SECRET}\n")),
            "MEMORY_URL" => Some("memory:".to_owned()),
            "BROKEN_URL" => Some("postgres://lane:cret-word@db.test:port/".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn a_url_with_a_password_comes_from_elsewhere_and_reads_back_without_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("url");
        std::fs::write(&file, format!("{SECRET}\n")).unwrap();
        let from_file = format!("url_file: \"{}\"", file.display());
        for store in ["url_env: LEDGER_URL", from_file.as_str()] {
            let config = config(store).unwrap();
            let StoreUrl::Postgres(database) = &config.store.url else {
                panic!("{:?}", config.store)
            };
            assert!(database.has_password());
            assert_eq!(config.store.max_bytes, 64 << 30);
            let effective = config.effective_yaml();
            let comment = "# url: \"postgres://lane@db.test:5432/ledger?sslmode=verify-full\"";
            assert!(effective.contains(comment), "{effective}");
            let shown = format!("{effective}{config:?}");
            assert!(!shown.contains("cret-word"), "{shown}");
            let again = parse(&effective, &|_| Some(SECRET.to_owned())).unwrap();
            assert_eq!(again.store, config.store);
        }
        let config = config("url_env: MEMORY_URL").unwrap();
        assert_eq!(config.store.url, StoreUrl::Memory);
    }

    #[test]
    fn what_is_refused_is_not_shown() {
        for (store, expected) in [
            (format!("url: \"{SECRET}\""), "use url_env or url_file"),
            (
                "url_env: BROKEN_URL".to_owned(),
                "the value of BROKEN_URL: expected postgres://",
            ),
            (
                "url_env: NO_SUCH_URL".to_owned(),
                "NO_SUCH_URL is unset or blank",
            ),
            (
                "url_env: LEDGER_URL, url: \"memory:\"".to_owned(),
                "only one of",
            ),
            (
                "url: \"mysql://lane:cret-word@db.test/\"".to_owned(),
                "expected `memory:`",
            ),
            (
                "url: \"postgres://a@db.test/b?sslmode=prefer\"".to_owned(),
                "`sslmode` must be",
            ),
        ] {
            let refused = config(&store).unwrap_err().to_string();
            assert!(refused.contains(expected), "{store}: {refused}");
            assert!(!refused.contains("cret-word"), "{refused}");
        }
    }
}
