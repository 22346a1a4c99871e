//! The newest answers, to be found without the store: those of the last seconds are not stored yet, and
//! some never will be, where the store is behind and its queue full.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::identity::Key;
use crate::ledger::row::Observation;
use crate::observe::RequestId;

type Conversation = (Option<Arc<str>>, Key);

/// At most so many answers, the oldest of which gives way.
#[derive(Debug)]
pub(super) struct Recent {
    capacity: usize,
    /// Oldest first; the first has the number `first`.
    answers: VecDeque<Observation>,
    first: u64,
    by_request: HashMap<RequestId, u64>,
    /// The newest answer of a provider that is not local, by conversation. Of a local one alone nothing can
    /// be said here: an older answer of a remote one goes first, and may be stored.
    remote: HashMap<Conversation, u64>,
}

impl Recent {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            answers: VecDeque::new(),
            first: 0,
            by_request: HashMap::new(),
            remote: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, answer: Observation) {
        if self.answers.len() == self.capacity {
            self.forget_oldest();
        }
        let number = self.first.wrapping_add(self.answers.len() as u64);
        self.by_request.insert(answer.id, number);
        if !answer.local {
            let conversation = (answer.principal.clone(), answer.session);
            self.remote.insert(conversation, number);
        }
        self.answers.push_back(answer);
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.answers.pop_front() else {
            return;
        };
        let number = self.first;
        self.first = number.wrapping_add(1);
        self.by_request.remove(&oldest.id);
        let conversation = (oldest.principal, oldest.session);
        if self.remote.get(&conversation) == Some(&number) {
            self.remote.remove(&conversation);
        }
    }

    fn numbered(&self, number: u64) -> Option<&Observation> {
        let position = usize::try_from(number.wrapping_sub(self.first)).ok()?;
        self.answers.get(position)
    }

    /// The answer of this exchange, if it is this principal's.
    pub(super) fn by_request(
        &self,
        principal: Option<&Arc<str>>,
        id: RequestId,
    ) -> Option<&Observation> {
        let found = self.numbered(*self.by_request.get(&id)?)?;
        (found.principal.as_ref() == principal).then_some(found)
    }

    /// The newest answer of a remote provider in this conversation.
    pub(super) fn newest_remote(
        &self,
        principal: Option<&Arc<str>>,
        session: Key,
    ) -> Option<&Observation> {
        let conversation = (principal.cloned(), session);
        self.numbered(*self.remote.get(&conversation)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::RequestIds;

    fn answer(id: RequestId, conversation: &str, local: bool) -> Observation {
        Observation {
            at_ms: 0,
            id,
            principal: None,
            session: Key::client(conversation.as_bytes()).unwrap(),
            source: "a".into(),
            local,
        }
    }

    #[test]
    fn the_oldest_gives_way_and_the_newest_is_found() {
        let ids = RequestIds::new(1);
        let mut recent = Recent::new(2);
        let (first, second, third) = (ids.next(), ids.next(), ids.next());
        recent.add(answer(first, "x", false));
        recent.add(answer(second, "x", false));
        assert!(recent.by_request(None, first).is_some());
        recent.add(answer(third, "y", false));
        assert!(recent.by_request(None, first).is_none());
        let x = Key::client(b"x").unwrap();
        assert_eq!(recent.newest_remote(None, x).unwrap().id, second);
        recent.add(answer(ids.next(), "y", false));
        assert!(recent.newest_remote(None, x).is_none());
        assert_eq!(recent.by_request.len(), 2);
        assert_eq!(recent.remote.len(), 1);
    }

    #[test]
    fn a_local_answer_is_found_by_its_request_only() {
        let ids = RequestIds::new(1);
        let mut recent = Recent::new(2);
        let id = ids.next();
        recent.add(answer(id, "x", true));
        assert!(recent.by_request(None, id).is_some());
        assert!(
            recent
                .newest_remote(None, Key::client(b"x").unwrap())
                .is_none()
        );
    }

    #[test]
    fn an_answer_is_only_its_principals() {
        let ids = RequestIds::new(1);
        let mut recent = Recent::new(2);
        let mut theirs = answer(ids.next(), "x", false);
        theirs.principal = Some("one".into());
        let (id, session) = (theirs.id, theirs.session);
        recent.add(theirs);
        let other: Arc<str> = "two".into();
        for principal in [None, Some(&other)] {
            assert!(recent.by_request(principal, id).is_none());
            assert!(recent.newest_remote(principal, session).is_none());
        }
        let one: Arc<str> = "one".into();
        assert!(recent.by_request(Some(&one), id).is_some());
        assert!(recent.newest_remote(Some(&one), session).is_some());
    }
}
