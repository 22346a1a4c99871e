//! The clients as meant: each on its own, then what holds between them.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use crate::auth::{ClientLimits, Digest, KEY_BYTES_MAX};
use crate::config::file::Value;
use crate::config::provider::variable;
use crate::config::read::{self, Reader, Section};
use crate::config::resolve::Sources;
use crate::config::schema::{CLIENT, CLIENT_LIMITS};
use crate::config::{Authentication, Client, KeyFrom};

/// Clients in a file. Chosen: five fleets of a thousand; a file of that length is near its bound.
const CLIENTS_MAX: usize = 5000;
/// Bytes of a client's name.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of a key file. Chosen: the longest key and whatever line end an editor leaves.
const KEY_FILE_BYTES_MAX: usize = KEY_BYTES_MAX + 2;
/// Workspace markers of a client. Chosen: a name for every build tool there is, about.
const MARKERS_MAX: usize = 64;
/// Bytes of a workspace marker: the longest file name of common file systems.
const MARKER_BYTES_MAX: usize = 255;
/// Above any rate or number that a limit is for.
const LIMIT_MAX: u64 = 1_000_000;

/// Who may call: what `authentication` says, or what follows from whether clients are listed.
pub(super) fn authentication(
    reader: &mut Reader,
    root: &Section<'_>,
    sources: &Sources<'_>,
) -> Authentication {
    let words = [("clients", true), ("none", false)];
    let written = reader.take(root, "authentication", read::word(&words));
    let listed = root.get("clients").is_some();
    let line = root.line_of(&["authentication"]);
    match (written, listed) {
        (Some(true), false) => {
            let what = "`clients` needs the list `clients`; an empty one lets nobody in";
            reader.fail(line, root.path_of("authentication"), what);
        }
        (Some(false), true) => {
            let what = "`none` lets everybody in, but clients are listed: take one of both out";
            reader.fail(line, root.path_of("authentication"), what);
        }
        (Some(false), false) => return Authentication::None,
        (None, false) => return Authentication::Unset,
        (Some(true) | None, true) => {}
    }
    Authentication::Clients(all(reader, root, sources))
}

fn all(reader: &mut Reader, root: &Section<'_>, sources: &Sources<'_>) -> Vec<Client> {
    let items = reader.list(root, "clients").unwrap_or_default();
    if items.len() > CLIENTS_MAX {
        let what = format!(
            "expected at most {CLIENTS_MAX} clients, got {}",
            items.len()
        );
        reader.fail(root.line_of(&["clients"]), root.path_of("clients"), what);
        return Vec::new();
    }
    let mut read = Vec::new();
    for (path, node) in items {
        let section = reader.section(node, path, &CLIENT);
        if matches!(node.value, Value::Map(_) | Value::Null)
            && let Some(client) = one(reader, &section, sources)
        {
            read.push((section, client));
        }
    }
    check_distinct(reader, &read);
    read.into_iter().map(|(_, client)| client).collect()
}

/// `None`: what is required is missing or wrong, which is noted.
fn one(reader: &mut Reader, section: &Section<'_>, sources: &Sources<'_>) -> Option<Client> {
    let name = reader.require(section, "name", name);
    let key = key(reader, section, sources);
    let workspace_markers = markers(reader, section);
    let limits = reader.subsection(section, "limits", &CLIENT_LIMITS);
    let mut limit = |key| {
        let count = reader.take(&limits, key, read::count(1..=LIMIT_MAX))?;
        NonZeroU32::new(u32::try_from(count).ok()?)
    };
    let limits = ClientLimits {
        concurrency: limit("concurrency"),
        requests_per_minute: limit("requests_per_minute"),
    };
    let (name, (key_from, key)) = (name?, key?);
    Some(Client {
        name,
        key,
        key_from,
        workspace_markers,
        limits,
    })
}

/// A name that is safe in logs, metrics and headers: letters, digits and `.`, `_`, `-` inside.
fn name(value: &Value) -> Result<String, String> {
    let text = read::text(value)?;
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric());
    fits.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "expected 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` and `-`, the first a letter \
             or digit, got {}",
            value.shown()
        )
    })
}

/// The digest of the key, from exactly one of three sources. The key itself does not outlive this.
fn key(
    reader: &mut Reader,
    section: &Section<'_>,
    sources: &Sources<'_>,
) -> Option<(KeyFrom, Digest)> {
    const SOURCES: [&str; 3] = ["key_sha256", "key_env", "key_file"];
    let mut written = SOURCES.iter().filter(|key| section.get(key).is_some());
    match (written.next(), written.next()) {
        (Some(_), None) => {}
        (None, _) => {
            let what = "a client needs one of key_sha256, key_env and key_file";
            reader.fail(section.line, section.path(), what);
            return None;
        }
        (Some(first), Some(second)) => {
            let what = format!("a second key of this client, beside {first}");
            reader.fail(section.line_of(&[second]), section.path_of(second), what);
            return None;
        }
    }
    let digest = reader.take(section, "key_sha256", |value| {
        Digest::from_hex(read::text(value)?).map_err(|error| error.to_string())
    });
    let from_env = reader.take(section, "key_env", |value| {
        let name = variable(value)?;
        let text = sources.variable(&name);
        let text = text.ok_or_else(|| {
            format!("a client needs a key, but the environment variable {name} is unset or blank")
        })?;
        match Digest::of_key(&text) {
            Ok(digest) => Ok((KeyFrom::Env(name), digest)),
            Err(error) => Err(format!("the value of {name}: {error}")),
        }
    });
    let from_file = reader.take(section, "key_file", |value| {
        let path = PathBuf::from(read::text(value)?);
        let digest = key_in_file(&path, sources)?;
        Ok((KeyFrom::File(path), digest))
    });
    let digest = digest.map(|digest| (KeyFrom::Sha256, digest));
    digest.or(from_env).or(from_file)
}

fn key_in_file(path: &Path, sources: &Sources<'_>) -> Result<Digest, String> {
    let bytes = (sources.file)(path, KEY_FILE_BYTES_MAX)
        .map_err(|error| format!("cannot read the file: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the file is no text at offset {at}")
    })?;
    Digest::of_key(text.trim_end_matches(['\r', '\n']))
        .map_err(|error| format!("the file: {error}"))
}

fn markers(reader: &mut Reader, section: &Section<'_>) -> Vec<String> {
    let items = reader
        .list(section, "workspace_markers")
        .unwrap_or_default();
    if items.len() > MARKERS_MAX {
        let what = format!(
            "expected at most {MARKERS_MAX} markers, got {}",
            items.len()
        );
        let line = section.line_of(&["workspace_markers"]);
        reader.fail(line, section.path_of("workspace_markers"), what);
        return Vec::new();
    }
    let mut markers = Vec::new();
    for (path, node) in items {
        match read::line(MARKER_BYTES_MAX)(&node.value) {
            Ok(text) => markers.push(text),
            Err(what) => reader.fail(Some(node.line), path, what),
        }
    }
    markers
}

/// No two clients have the same name, without regard to letter case, or the same key.
fn check_distinct(reader: &mut Reader, read: &[(Section<'_>, Client)]) {
    let mut names = BTreeMap::new();
    let mut keys = HashMap::new();
    for (section, client) in read {
        let path = section.path_of("name");
        if let Some(first) = names.get(&client.name.to_ascii_lowercase()) {
            let what = format!(
                "{:?} is the name of another client, at {first} (letter case does not count)",
                client.name
            );
            reader.fail(section.line_of(&["name"]), path, what);
        } else {
            names.insert(client.name.to_ascii_lowercase(), path);
        }
        let at = match client.key_from {
            KeyFrom::Sha256 => "key_sha256",
            KeyFrom::Env(_) => "key_env",
            KeyFrom::File(_) => "key_file",
        };
        let path = section.path_of(at);
        if let Some(first) = keys.get(&client.key) {
            let what = format!("the key of another client, at {first}; each needs one of its own");
            reader.fail(section.line_of(&[at]), path, what);
        } else {
            keys.insert(client.key, path);
        }
    }
}
