//! The admin listener: off unless written, and never open to other machines without a key.

use std::net::SocketAddr;

use crate::auth::Secret;
use crate::config::file::Value;
use crate::config::provider;
use crate::config::read::{Reader, Section};
use crate::config::resolve::Sources;
use crate::config::schema::ADMIN;

/// Where operators ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address. Default `127.0.0.1:9901`.
    pub listen: SocketAddr,
    /// The environment variable of the key, as written.
    pub key_env: Option<String>,
    /// What who asks must show as `Authorization: Bearer`, if anything.
    pub key: Option<Secret>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9901)),
            key_env: None,
            key: None,
        }
    }
}

/// The listener if `admin` was written; `taken` are the addresses of the others.
pub(super) fn read(
    reader: &mut Reader,
    root: &Section<'_>,
    taken: &[SocketAddr],
    sources: &Sources<'_>,
) -> Option<Admin> {
    root.get("admin")?;
    let section = reader.subsection(root, "admin", &ADMIN);
    let listen = reader.take(&section, "listen", address);
    let listen = listen.unwrap_or_else(|| Admin::default().listen);
    let key_env = reader.take(&section, "key_env", provider::variable);
    let key = key_env.as_deref().and_then(|name| {
        reader.take(&section, "key_env", |_| {
            let text = sources.variable(name);
            let text = text.ok_or_else(|| format!("{name} is unset or blank"))?;
            provider::secret(&text).map_err(|error| format!("the value of {name}: {error}"))
        })
    });
    let at = (section.line_of(&["listen"]), section.path_of("listen"));
    if !listen.ip().to_canonical().is_loopback() && section.get("key_env").is_none() {
        let what = format!(
            "{listen} can be reached from other machines: give the listener a key with key_env, or \
             listen on a loopback address"
        );
        reader.fail(at.0, at.1, what);
    } else if listen.port() != 0 && taken.contains(&listen) {
        let what =
            format!("{listen} is one of server.listen: operators need an address of their own");
        reader.fail(at.0, at.1, what);
    }
    Some(Admin {
        listen,
        key_env,
        key,
    })
}

fn address(value: &Value) -> Result<SocketAddr, String> {
    let parsed = match value {
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    parsed.ok_or_else(|| {
        let got = value.shown();
        format!("expected an IP address and port such as 127.0.0.1:9901, got {got}")
    })
}
