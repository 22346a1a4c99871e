//! Where the ledger is kept and for how long, and how conversations are counted.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::file::Value;
use crate::config::read::{self, Reader, Section};
use crate::config::schema::{IDENTITY, STORE};

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
}

/// The ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where rows are stored.
    pub url: StoreUrl,
    /// How long rows stay, 1 m to 3650 d. Default 30 d: a month of work can be looked back on.
    pub retention: Duration,
    /// Bytes beyond which the oldest rows go, 1 MiB to 1 TiB. Default 4 GiB in a file, some ten million
    /// requests; 32 MiB in memory, some 25,000.
    pub max_bytes: u64,
    /// Longest time that a row is in memory only, 10 ms to 1 m. Default 1 s: what a process that is
    /// killed loses.
    pub flush_interval: Duration,
}

impl StoreUrl {
    const fn max_bytes(&self) -> u64 {
        match self {
            Self::Sqlite(_) => 4 << 30,
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

pub(super) fn store(reader: &mut Reader, root: &Section<'_>) -> Store {
    let section = reader.subsection(root, "store", &STORE);
    let default = Store::default();
    let url = reader.take(&section, "url", url).unwrap_or(default.url);
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
        max_bytes: bytes.unwrap_or_else(|| url.max_bytes()),
        url,
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

fn url(value: &Value) -> Result<StoreUrl, String> {
    let text = read::line(4096)(value)?;
    match text.split_once(':') {
        None if text == "none" => Ok(StoreUrl::None),
        Some(("memory", "")) => Ok(StoreUrl::Memory),
        Some(("sqlite", path)) if !path.is_empty() => Ok(StoreUrl::Sqlite(path.into())),
        _ => Err("expected `memory:`, `sqlite:` and the path of a file, or `none`".to_owned()),
    }
}
