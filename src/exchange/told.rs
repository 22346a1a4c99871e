//! What the ledger is told of an exchange, and when.
//!
//! Its conversation is read from the head before anything else may fail; the facts of its body are noted once
//! the request was sent, or when the exchange is over; the answer is told before the first byte of it goes to
//! the client, because who has the last byte may report an outcome at once.

use std::sync::Arc;

use crate::exchange::Core;
use crate::http1::head::RequestHead;
use crate::identity::{Inline, Named, read};
use crate::lane::Body;
use crate::ledger::{Answer, Desk, Teller};
use crate::observe::Record;
use crate::peek::{Demand, Peek};

/// A core's way to the ledger.
#[derive(Clone, Debug)]
pub struct Telling {
    /// For answers.
    pub teller: Teller,
    /// For questions.
    pub desk: Desk,
}

/// Notes in `record` what the head says of its conversation, and counts what it says in vain.
pub(super) fn identify(core: &Core, head: &RequestHead, bytes: &[u8], record: &mut Record) {
    let fields = head.fields.iter();
    let fields = fields.map(|field| (field.name.of(bytes), field.value.of(bytes)));
    let reading = read(fields, core.settings.native_identity);
    record.identity = reading.identity.map(Arc::new);
    for (named, invalid) in Named::ALL.into_iter().zip(reading.invalid) {
        if invalid {
            core.metrics.invalid_identity(named);
        }
    }
}

/// What the body of this request is read for beside what decides about it. Wished only: nothing waits for it.
pub(super) fn wishes(core: &Core, record: &Record) -> Demand {
    wished(core.ledger.is_some(), record.names_conversation())
}

/// A conversation that the head names is not looked for in the body.
fn wished(ledger: bool, named: bool) -> Demand {
    match (ledger, named) {
        (false, _) => Demand::NOTHING,
        (true, true) => Demand::MODEL,
        (true, false) => Demand::MODEL | Demand::FINGERPRINT,
    }
}

/// Notes what the body said, once: what is known when the answer begins is what stays.
pub(super) fn note(record: &mut Record, body: &Body) {
    let Some(facts) = body.facts() else {
        return;
    };
    if record.fingerprint.is_none() {
        record.fingerprint = facts.fingerprint();
    }
    note_model(record, facts);
}

/// Notes the model that was asked for, once; also of a request that goes nowhere.
pub(super) fn note_model(record: &mut Record, facts: &Peek) {
    if record.model.is_none() {
        record.model = facts.model().found().map(|model| Inline::cut(model.value));
    }
}

impl Core {
    /// Tells the ledger of an answer that begins, once. Only of one that a client can do something with: a
    /// refusal of the provider must not take the place of the answer before it.
    pub(super) fn tell(&self, record: &mut Record) {
        let (Some(ledger), Some(to)) = (&self.ledger, &record.to) else {
            return;
        };
        let answers = record.dialect.is_some() && (200..300).contains(&record.status);
        if record.told || !answers {
            return;
        }
        record.told = true;
        ledger.teller.tell(Answer {
            id: record.id,
            at: record.began + record.first_byte.unwrap_or_default(),
            principal: record.client.clone(),
            identity: record.identity.clone(),
            fingerprint: record.fingerprint,
            source: Arc::clone(&to.provider),
            local: self.locals.get(to.index).copied().unwrap_or_default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a16_a_body_is_not_read_for_a_conversation_that_has_a_name() {
        assert!(!wished(true, true).has(Demand::FINGERPRINT));
        assert!(wished(true, false).has(Demand::FINGERPRINT));
        assert!(wished(false, false).is_empty());
    }
}
