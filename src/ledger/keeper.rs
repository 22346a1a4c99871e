//! The thread between the cores and the store: it takes answers and decisions off their queues, knows the
//! newest answers, counts conversations, and never waits for a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use crate::clock;
use crate::ledger::question::{Ask, Question, Target};
use crate::ledger::recent::Recent;
use crate::ledger::row::{Answer, Change, Decision, Observation, milliseconds, session};
use crate::ledger::shared::Shared;
use crate::limits::LEDGER_LOOK_MS;
use crate::observe::RequestId;

pub(super) struct Keeper {
    /// One queue of each core.
    pub(super) answers: Vec<Receiver<Answer>>,
    pub(super) decisions: Receiver<Box<Decision>>,
    pub(super) questions: Receiver<Question>,
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) changes: Sender<Change>,
    pub(super) asks: Sender<Ask>,
    pub(super) shared: Arc<Shared>,
    pub(super) recent: Recent,
}

impl Keeper {
    /// Works until told to stop and everything is handed on. It looks at the queues of rows every
    /// [`LEDGER_LOOK_MS`] and is woken by questions only: a wake-up would cost a core a system call a request.
    pub(super) fn run(mut self) {
        let look = Duration::from_millis(LEDGER_LOOK_MS);
        loop {
            let stopping = self.stopped.load(Ordering::Acquire);
            let asked = self.questions.recv_timeout(look);
            // An answer was queued before anybody could report of it.
            self.take();
            match asked {
                Ok(question) => self.ask(question),
                Err(RecvTimeoutError::Timeout) if stopping => return,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes what is queued.
    fn take(&mut self) {
        let (now, time) = (clock::now(), clock::unix_time());
        let mut answers: Vec<Answer> = Vec::new();
        for queue in &self.answers {
            answers.extend(queue.try_iter().take(queue.len()));
        }
        // Cores are emptied one after the other; which answer is newer their clocks say.
        answers.sort_by_key(|answer| answer.at);
        for answer in answers {
            let age = now.saturating_duration_since(answer.at);
            let (_, session) = session(answer.identity.as_deref(), answer.fingerprint);
            let row = Observation {
                at_ms: milliseconds(time.saturating_sub(age)),
                id: answer.id,
                principal: answer.principal,
                session,
                source: answer.source,
                local: answer.local,
            };
            self.recent.add(row.clone());
            self.hand_on(Change::Observed(Box::new(row)));
        }
        let waiting = self.decisions.len();
        let decisions: Vec<Box<Decision>> = self.decisions.try_iter().take(waiting).collect();
        self.shared.count(&decisions);
        for row in decisions {
            self.hand_on(Change::Decided(row));
        }
    }

    fn hand_on(&self, change: Change) {
        if self.changes.try_send(change).is_err() {
            self.shared.lose(1);
        }
    }

    fn ask(&self, question: Question) {
        let hint = match &question {
            Question::Record(it) => self.hint(it.principal.as_ref(), &it.target),
            Question::Sum(..) => None,
        };
        let refused = self.asks.try_send(Ask { question, hint });
        if let Err(refused) = refused {
            refused.into_inner().question.refuse();
        }
    }

    /// The row of a report, where the newest answers decide it. An exchange that is named is looked for in
    /// the store if it is not here, before anything else that the report says.
    fn hint(&self, principal: Option<&Arc<str>>, target: &Target) -> Option<Observation> {
        let found = match (&target.request_id, target.conversation) {
            (Some(id), _) => self.recent.by_request(principal, RequestId::parse(id)?),
            (None, Some(conversation)) => self.recent.newest_remote(principal, conversation),
            (None, None) => None,
        };
        found.cloned()
    }
}
