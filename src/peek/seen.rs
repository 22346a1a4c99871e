//! What was known of a body in the end, without a value of it: for who asks why an exchange went as it did.

use crate::peek::{Demand, Fact, KeySet, Peek, StreamFlag, ToolNames};

/// The facts of one body, each as whether it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    demanded: Demand,
    found: Demand,
    beyond: Demand,
    /// Whether the root closed, so that nothing more could come.
    pub closed: bool,
    /// Decoded bytes that were read; after a fault, its offset.
    pub bytes: u64,
    /// Whether the client asked for a stream.
    pub stream: Fact<StreamFlag>,
    /// Tools with a name, where these were demanded.
    pub tools: u32,
    /// Known keys that came more than once.
    pub repeated: KeySet,
}

impl Seen {
    /// The demanded facts by name, each with `found`, `absent`, `beyond_bound` or `not_yet`. A text is read
    /// no further than a switch could go: one that is none has `no_switch` in place of `beyond_bound`.
    pub fn facts(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let state = move |demand| {
            if self.found.has(demand) {
                "found"
            } else if self.beyond.has(demand) {
                if demand == Demand::USER_TEXT {
                    "no_switch"
                } else {
                    "beyond_bound"
                }
            } else if self.closed {
                "absent"
            } else {
                "not_yet"
            }
        };
        Demand::NAMED
            .into_iter()
            .filter(move |(_, demand)| self.demanded.has(*demand))
            .map(move |(name, demand)| (name, state(demand)))
    }

    fn note<T>(&mut self, demand: Demand, fact: &Fact<T>) {
        match fact {
            Fact::Found(_) => self.found = self.found | demand,
            Fact::BeyondBound => self.beyond = self.beyond | demand,
            Fact::NotYet | Fact::Absent => {}
        }
    }
}

impl<T: ToolNames> Peek<T> {
    /// What is known now.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let mut seen = Seen {
            demanded: self.demand,
            found: Demand::NOTHING,
            beyond: Demand::NOTHING,
            closed: self.closed(),
            bytes: self.offset(),
            stream: self.stream(),
            tools: self.tools(),
            repeated: self.repeated(),
        };
        seen.note(Demand::MODEL, &self.model());
        seen.note(Demand::USER_TEXT, &self.last_user());
        for field in [self.prompt_cache_key(), self.user(), self.session_id()] {
            seen.note(Demand::SESSION_FIELDS, &field);
        }
        seen.note(Demand::USER_ID, &self.metadata_user_id());
        // That of a part is of no use to anybody.
        if self.closed() && self.demand.has(Demand::FINGERPRINT) {
            seen.found = seen.found | Demand::FINGERPRINT;
        }
        if self.tools() > 0 {
            seen.found = seen.found | Demand::TOOL_NAMES;
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::peek::TopKey;

    fn seen(body: &str, demand: Demand) -> Seen {
        let mut peek = Peek::new(Dialect::Chat, demand);
        // What is broken was seen up to there.
        let _broken = peek.push(body.as_bytes());
        peek.seen()
    }

    fn facts(body: &str, demand: Demand) -> Vec<(&'static str, &'static str)> {
        seen(body, demand).facts().collect()
    }

    #[test]
    fn each_demanded_fact_has_its_state_and_others_have_none() {
        let both = Demand::MODEL | Demand::USER_ID;
        let table = [
            ("{", "not_yet", "not_yet"),
            (r#"{"model":"m","#, "found", "not_yet"),
            (r#"{"model":"m"}"#, "found", "absent"),
            (r#"{"metadata":{"user_id":"u"}}"#, "absent", "found"),
        ];
        for (body, model, user_id) in table {
            let expected = [("model", model), ("metadata.user_id", user_id)];
            assert_eq!(facts(body, both), expected, "{body}");
        }
        let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(300));
        assert_eq!(facts(&long, Demand::MODEL), [("model", "beyond_bound")]);
        assert_eq!(facts(r#"{"model":"m"}"#, Demand::NOTHING), []);
        for (said, state) in [("--who?", "found"), ("hi", "no_switch")] {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"{said}"}}]}}"#);
            let expected = [("last_user_text", state)];
            assert_eq!(facts(&body, Demand::USER_TEXT), expected, "{said}");
        }
    }

    #[test]
    fn what_costs_nothing_is_always_seen() {
        let seen = seen(r#"{"model":"a","stream":true,"model":"b"}"#, Demand::MODEL);
        assert!(seen.closed && seen.repeated.contains(TopKey::Model));
        assert_eq!(seen.stream, Fact::Found(StreamFlag::True));
        assert_eq!(seen.bytes, 39);
    }
}
