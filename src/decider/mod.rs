//! Who asks the remote service, aside of every request.
//!
//! Cores put questions into a bounded queue and forget them. One thread with a runtime of its own takes them: for
//! each it gets a lease from the thread of the store, sends one document over the gateway's own connections, and
//! gives the lease back with what came of it. While it asks it holds no lock and no connection to the store, so
//! that a service which hangs costs an attempt and nothing else. Redirects are not followed, answers other than
//! 200 are not read, and no byte of an answer is shown to anybody.

mod call;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use crate::buf::Pool;
use crate::classify::{
    Claim, Evidence, Key, Policy, Refused, RemoteInput, RemoteOutcome, RemotePolicy, RemoteTally,
};
use crate::clock;
use crate::decider::call::Caller;
use crate::ledger::{Pending, Sessions, Unavailable};
use crate::limits::{Part, REMOTE_AT_ONCE, REMOTE_LOOK_MS, REMOTE_QUESTIONS_QUEUED};
use crate::runtime::{Driver, Gate, block_on, sleep, spawn};
use crate::upstream::{Endpoint, EndpointId, Quota, Upstreams};

/// Bytes of requests that wait for the service to read them; a document has less than 8 KiB.
const REQUEST_BYTES: usize = 1024 * 1024;

/// A session to be asked about.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which.
    pub key: Key,
    /// What is known of it.
    pub input: RemoteInput,
    /// The policy of the turn that asks.
    pub policy: Arc<Policy>,
    /// Where the service is, in the generation of that turn.
    pub endpoint: Arc<Endpoint>,
}

/// The way to who asks.
#[derive(Clone)]
pub struct Decider {
    questions: Sender<Question>,
    asked: Receiver<Question>,
    tally: Arc<RemoteTally>,
    sessions: Sessions,
    driver: Driver,
    is_started: Arc<OnceLock<bool>>,
}

impl Decider {
    /// Who will ask, once started. Without that there is neither a thread nor a connection.
    #[must_use]
    pub fn new(driver: Driver, sessions: Sessions) -> Self {
        let (questions, asked) = bounded(REMOTE_QUESTIONS_QUEUED);
        Self {
            questions,
            asked,
            tally: Arc::default(),
            sessions,
            driver,
            is_started: Arc::default(),
        }
    }

    /// Starts the thread, unless it runs already. It lasts as long as the process and sleeps while nobody asks.
    /// Where the system gives none, nobody is asked.
    pub fn start(&self) {
        self.is_started.get_or_init(|| {
            let (asked, sessions) = (self.asked.clone(), self.sessions.clone());
            let (tally, driver) = (Arc::clone(&self.tally), self.driver);
            // Without a runtime nobody asks, and sessions stay unknown.
            let work = move || drop(block_on(driver, serve(asked, sessions, tally)));
            let named = thread::Builder::new().name("lanegate-decider".to_owned());
            named.spawn(work).is_ok()
        });
    }

    /// Asks about a session. Whether there was room for the question; never waits.
    #[must_use]
    pub fn ask(&self, question: Question) -> bool {
        self.questions.try_send(question).is_ok()
    }

    /// What is counted.
    #[must_use]
    pub fn tally(&self) -> Arc<RemoteTally> {
        Arc::clone(&self.tally)
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decider").finish_non_exhaustive()
    }
}

/// Takes questions, a bounded number at a time, until nobody can ask any more.
async fn serve(questions: Receiver<Question>, sessions: Sessions, tally: Arc<RemoteTally>) {
    let running = Rc::new(Cell::new(0_usize));
    let quota = Quota {
        part: Part::WHOLE,
        request_bytes: REQUEST_BYTES,
        handshakes: Gate::new(REMOTE_AT_ONCE),
    };
    let blocks = Pool::new(REQUEST_BYTES);
    let mut line: Option<(Arc<Endpoint>, Rc<Upstreams>)> = None;
    loop {
        let next = if running.get() == 0 {
            // Nothing else is to be done on this thread.
            questions.recv().map_err(|_| TryRecvError::Disconnected)
        } else if running.get() < REMOTE_AT_ONCE {
            questions.try_recv()
        } else {
            Err(TryRecvError::Empty)
        };
        let question = match next {
            Ok(question) => question,
            Err(TryRecvError::Empty) => {
                sleep(Duration::from_millis(REMOTE_LOOK_MS)).await;
                continue;
            }
            Err(TryRecvError::Disconnected) => return,
        };
        let kept = line
            .take()
            .filter(|(endpoint, _)| Arc::ptr_eq(endpoint, &question.endpoint));
        let (_, upstreams) = line.insert(kept.unwrap_or_else(|| {
            let endpoint = Arc::clone(&question.endpoint);
            let upstreams = Upstreams::new(&[Arc::clone(&endpoint)], &quota, None);
            (endpoint, Rc::new(upstreams))
        }));
        let asker = Asker {
            sessions: sessions.clone(),
            tally: Arc::clone(&tally),
            upstreams: Rc::clone(upstreams),
            blocks: blocks.clone(),
        };
        let running = Rc::clone(&running);
        running.set(running.get() + 1);
        spawn(async move {
            asker.decide(&question).await;
            running.set(running.get() - 1);
        });
    }
}

/// What one question needs.
struct Asker {
    sessions: Sessions,
    tally: Arc<RemoteTally>,
    upstreams: Rc<Upstreams>,
    blocks: Pool,
}

impl Asker {
    /// Attempts until the session is identified, an attempt shows that more are in vain, or none is left.
    async fn decide(&self, question: &Question) {
        let Some(remote) = &question.policy.remote else {
            return;
        };
        let began = clock::now();
        let Some(document) = question.input.document() else {
            return self.observe(RemoteOutcome::Skipped, began);
        };
        for _ in 0..remote.attempts_max {
            let began = clock::now();
            let claim = match self.claim(question.key, remote).await {
                Ok(claim) => claim,
                Err(outcome) => return self.observe(outcome, began),
            };
            let attempt = claim.attempt;
            let outcome = self.attempt(claim, remote, &document).await;
            self.observe(outcome, began);
            if !outcome.is_transient() || attempt >= remote.attempts_max {
                return;
            }
            sleep(remote.backoff).await;
        }
    }

    async fn claim(&self, key: Key, remote: &RemotePolicy) -> Result<Claim, RemoteOutcome> {
        let claimed = answered(self.sessions.claim(key, remote.terms())).await;
        let claimed = claimed.map_err(|_| RemoteOutcome::Skipped)?;
        claimed.map_err(|refused| match refused {
            Refused::Identified(_) => RemoteOutcome::Positive,
            Refused::LeaseBusy => RemoteOutcome::LeaseBusy,
            Refused::BudgetExhausted => RemoteOutcome::BudgetExhausted,
            Refused::Pausing => RemoteOutcome::Skipped,
        })
    }

    /// One call, and the end of its lease.
    async fn attempt(&self, claim: Claim, remote: &RemotePolicy, document: &[u8]) -> RemoteOutcome {
        let outcome = match self.upstreams.pool(EndpointId::new(0)) {
            None => RemoteOutcome::Skipped,
            Some(pool) => {
                let caller = Caller {
                    upstreams: &self.upstreams,
                    pool,
                    blocks: &self.blocks,
                };
                match caller.call(remote, document).await {
                    Ok(probability) if remote.threshold.is_reached(probability) => {
                        RemoteOutcome::Positive
                    }
                    Ok(_) => RemoteOutcome::BelowThreshold,
                    Err(outcome) => outcome,
                }
            }
        };
        let evidence = (outcome == RemoteOutcome::Positive).then_some(Evidence::AboveThreshold);
        match answered(self.sessions.complete(claim, evidence)).await {
            Ok(_) => outcome,
            Err(Unavailable) => RemoteOutcome::Skipped,
        }
    }

    fn observe(&self, outcome: RemoteOutcome, began: Instant) {
        let took = clock::now().saturating_duration_since(began);
        self.tally.observe(outcome, took);
    }
}

/// Waits for the thread of the store, which always answers.
async fn answered<T>(asked: Result<Pending<T>, Unavailable>) -> Result<T, Unavailable> {
    let pending = asked?;
    loop {
        if let Some(answer) = pending.poll() {
            return answer;
        }
        sleep(Duration::from_millis(REMOTE_LOOK_MS)).await;
    }
}
