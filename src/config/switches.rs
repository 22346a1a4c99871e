//! Whether the gateway answers switches, and how many sessions it keeps an id for.
//!
//! The environment beats the file, so that an operator can turn switches off where the file is not
//! theirs to change. A value that cannot be read is a warning and changes nothing: a gateway that does
//! not start because of it would be the worse surprise.

use crate::config::Switches;
use crate::config::read::{self, Reader, Section};
use crate::config::resolve::Sources;
use crate::config::schema::SWITCHES;

/// The variables of `switches.enabled`, the first of which that is not blank counts. The second is that
/// of the product in which switches were first seen.
const ENABLED: [&str; 2] = ["LANEGATE_SWITCHES_ENABLED", "IMPOSTER_WHO_MESSAGE_ENABLED"];

/// Sessions at most: 100 MB of entries.
const ENTRIES_MAX: u64 = 1_000_000;

impl Default for Switches {
    fn default() -> Self {
        Self {
            enabled: true,
            max_entries: 100_000,
            responses: false,
        }
    }
}

pub(super) fn read(reader: &mut Reader, root: &Section<'_>, sources: &Sources<'_>) -> Switches {
    let default = Switches::default();
    let section = reader.subsection(root, "switches", &SWITCHES);
    let mut flag = |key| reader.take(&section, key, read::boolean);
    let (enabled, responses) = (flag("enabled"), flag("responses"));
    let entries = reader.take(&section, "max_entries", read::count(0..=ENTRIES_MAX));
    let switches = Switches {
        enabled: enabled.unwrap_or(default.enabled),
        responses: responses.unwrap_or(default.responses),
        max_entries: entries
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(default.max_entries),
    };
    with_environment(switches, reader, sources)
}

/// What the environment makes of them.
pub(super) fn with_environment(
    mut switches: Switches,
    reader: &mut Reader,
    sources: &Sources<'_>,
) -> Switches {
    let set = ENABLED.into_iter().find_map(|name| {
        let text = sources.variable(name)?;
        Some((name, text))
    });
    if let Some((name, text)) = set {
        match boolean(&text) {
            Some(enabled) => switches.enabled = enabled,
            None => reader.warn(name, BOOLEANS, "switches.enabled"),
        }
    }
    switches
}

/// What [`boolean`] reads, as a warning says it.
pub(super) const BOOLEANS: &str = "true nor false";

/// `true` or `false` in any letter case.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}
