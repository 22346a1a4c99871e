//! What a running process cannot take over from a new configuration.
//!
//! Sockets, threads, the shares of the memory and the log are made once, at the start. Some keys are only right
//! together with one of these, and wait with it.

use crate::config::{Authentication, Config};

impl Config {
    /// Puts back what takes a restart from `running`, the configuration in force. The key paths of what
    /// differed, in the order of the documentation.
    #[must_use]
    pub fn keep_until_restart(&mut self, running: &Self) -> Vec<&'static str> {
        let mut waiting = Vec::new();
        let mut keep = |path, differs: bool| {
            if differs {
                waiting.push(path);
            }
            differs
        };
        if keep("server.listen", self.server.listen != running.server.listen) {
            self.server.listen.clone_from(&running.server.listen);
            // That everybody may call was written down for the listeners of the same file; a list of
            // clients is right for any, and must not wait where it revokes a key.
            let open = !matches!(self.authentication, Authentication::Clients(_));
            let differs = self.authentication != running.authentication;
            if keep("authentication", open && differs) {
                self.authentication.clone_from(&running.authentication);
            }
        }
        if keep(
            "server.workers",
            self.server.workers != running.server.workers,
        ) {
            self.server.workers = running.server.workers;
        }
        if keep("server.driver", self.server.driver != running.server.driver) {
            self.server.driver = running.server.driver;
        }
        if keep("admin", self.admin != running.admin) {
            self.admin.clone_from(&running.admin);
        }
        let (limits, old) = (&mut self.limits, running.limits);
        let memory = keep(
            "limits.memory_bytes",
            limits.memory_bytes != old.memory_bytes,
        );
        let connections = keep("limits.connections", limits.connections != old.connections);
        if memory || connections {
            limits.memory_bytes = old.memory_bytes;
            limits.connections = old.connections;
            // These fit into the memory that the same file asks for, which is not to be had yet.
            if keep("limits.body_bytes", limits.body_bytes != old.body_bytes) {
                limits.body_bytes = old.body_bytes;
            }
            if keep(
                "limits.window_bytes",
                limits.window_bytes != old.window_bytes,
            ) {
                limits.window_bytes = old.window_bytes;
            }
        }
        let handshakes = &mut self.limits.handshakes;
        let old = running.limits.handshakes;
        if keep("limits.handshakes", *handshakes != old) {
            *handshakes = old;
        }
        let max_entries = &mut self.switches.max_entries;
        let old = running.switches.max_entries;
        if keep("switches.max_entries", *max_entries != old) {
            *max_entries = old;
        }
        if keep("log.access", self.log.access != running.log.access) {
            self.log.access = running.log.access;
        }
        let window = running.identity.adoption_window;
        if keep(
            "identity.adoption_window",
            self.identity.adoption_window != window,
        ) {
            self.identity.adoption_window = window;
        }
        if keep("store", self.store != running.store) {
            self.store.clone_from(&running.store);
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn config(text: &str) -> Config {
        let provider = "providers: [{ name: a, dialect: openai, base_url: \"http://127.0.0.1:1\", auth: none }]";
        parse(&format!("{text}\n{provider}"), &|_| None).unwrap()
    }

    #[test]
    fn what_takes_a_restart_is_named_and_keeps_its_value() {
        let running = config("");
        let text = "server: { listen: [\"127.0.0.1:1\"], workers: 3, driver: epoll, half_close: tolerate }\n\
                    limits: { memory_bytes: 1GiB, connections: 7, body_bytes: 1MiB, window_bytes: 64KiB, head_fields: 9, handshakes: 7 }\n\
                    timeouts: { drain: 1m }\nlog: { access: none }\nadmin: {}\n\
                    switches: { enabled: false, max_entries: 7 }\nidentity: { adoption_window: 1h, native: true }\nstore: { url: none }";
        let mut new = config(text);
        assert_eq!(
            new.keep_until_restart(&running),
            [
                "server.listen",
                "server.workers",
                "server.driver",
                "admin",
                "limits.memory_bytes",
                "limits.connections",
                "limits.body_bytes",
                "limits.window_bytes",
                "limits.handshakes",
                "switches.max_entries",
                "log.access",
                "identity.adoption_window",
                "store"
            ]
        );
        let taken = "server: { half_close: tolerate }\nlimits: { head_fields: 9 }\ntimeouts: { drain: 1m }\n\
                     switches: { enabled: false }\nidentity: { native: true }";
        assert_eq!(new, config(taken));
        assert!(new.keep_until_restart(&config(taken)).is_empty());
    }

    #[test]
    fn nothing_opens_listeners_that_were_not_written_for_it() {
        let listed = |letter: &str| {
            let digest = letter.repeat(64);
            format!("clients: [{{ name: c, key_sha256: \"{digest}\" }}]")
        };
        let outside = "server: { listen: [\"192.0.2.1:1\"] }\n";
        let running = || config(&format!("{outside}{}", listed("a")));
        for (new, differs) in [
            // Everybody, on loopback, which is not what is listened on.
            ("", &["server.listen", "authentication"][..]),
            ("authentication: none", &["server.listen", "authentication"]),
            ("clients: []", &["server.listen"]),
            (&listed("b"), &["server.listen"]),
            (&listed("a"), &["server.listen"]),
            (&format!("{outside}{}", listed("b")), &[]),
            (&format!("{outside}authentication: none"), &[]),
        ] {
            let mut taken = config(new);
            let written = taken.authentication.clone();
            assert_eq!(taken.keep_until_restart(&running()), differs, "{new}");
            let waits = differs.contains(&"authentication");
            let expected = if waits {
                running().authentication
            } else {
                written
            };
            assert_eq!(taken.authentication, expected, "{new}");
        }
    }

    #[test]
    fn a_body_limit_alone_is_taken() {
        let taken = "limits: { body_bytes: 1MiB, window_bytes: 64KiB }";
        let mut new = config(taken);
        assert!(new.keep_until_restart(&config("")).is_empty());
        assert_eq!(new, config(taken));
    }
}
