//! What an exchange shows of its session, and what becomes of it.
//!
//! Nothing waits for it and nothing is held: names of tools are wished for beside what is needed, the rules are
//! pure, and what has to be kept goes to the thread of the store over a queue. Evidence that is there counts for
//! the turn that shows it. A session that is identified is asked for nothing more.
//!
//! Which session it is, is for the gateway to say (decision C2): a token of its own that the client sends back;
//! else the conversation of a client that has a name; else the client's connection, of which nothing is kept.

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

use crate::auth::{Authority, TokenError};
use crate::classify::{
    AgentEvidence, Classification, Evidence, Family, Key, Local, Outcome, Policy, RemoteInput,
    Scope, SessionView, Source, ToolEvidence, ToolSet, Turn, UserAgent, has_project_marker,
};
use crate::clock;
use crate::decider::{Decider, Question};
use crate::dialect::Dialect;
use crate::exchange::{Client, Core};
use crate::http1::head::{RequestHead, field, values};
use crate::identity;
use crate::lane::Body;
use crate::ledger::{Sessions, minute_of};
use crate::observe::Record;
use crate::peek::Demand;
use crate::upstream::Endpoint;

/// The field in which a client sends a token back.
const SESSION_FIELD: &str = "x-lanegate-session";

/// The field in which a client with a name says what its workspace has.
const MARKERS_FIELD: &str = "x-lanegate-workspace-markers";

/// The value of [`SESSION_FIELD`] that asks for a token.
const NEW_SESSION: &[u8] = b"new";

/// Where what is known of sessions is kept, from the start of the process to its end.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The store.
    pub sessions: Sessions,
    /// Who asks the remote service.
    pub decider: Decider,
}

/// The features of one generation, on one core.
#[derive(Debug)]
pub struct Features {
    /// What is made of sessions, where `session-classification` is enabled.
    pub session: Option<Arc<Policy>>,
    /// Whether `agent-family` is enabled.
    pub agent_family: bool,
    /// What sessions are named with.
    pub authority: Authority,
    /// Where they are kept; nowhere without a store.
    pub keeping: Option<Keeping>,
    /// Where the remote service is, in the modes that ask it.
    pub remote: Option<Arc<Endpoint>>,
    /// The clients whose workspace has a project's marker.
    pub marked: HashSet<Arc<str>>,
}

/// What a connection knows of the session it speaks for.
#[derive(Debug, Default)]
pub(super) struct Turning {
    /// The session; none if it is the connection's own.
    key: Option<Key>,
    /// What identified it.
    known: Option<Evidence>,
    /// Whether the store was asked for it.
    asked: bool,
    /// What is still to be said of the present turn.
    open: Option<Open>,
    /// What the client is to be given with the answer.
    token: Option<String>,
}

/// A turn of which not everything is known.
#[derive(Clone, Copy, Debug)]
struct Open {
    dialect: Dialect,
    session: Session,
    marked: bool,
    /// Whether there is something to say of its session.
    unjudged: bool,
}

/// Which session a turn belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// This one.
    Kept(Key),
    /// The one of a conversation that its body names.
    InBody,
    /// The connection's own.
    Connection,
    /// A token leads nowhere.
    Nowhere,
}

impl Turning {
    /// Looks at the head of a request, and says what its body is wished to be read for.
    pub(super) fn begin(
        &mut self,
        core: &Core,
        (head, bytes): (&RequestHead, &[u8]),
        dialect: Option<Dialect>,
        record: &mut Record,
    ) -> Demand {
        self.open = None;
        self.token = None;
        let (Some(features), Some(dialect)) = (&core.features, dialect) else {
            return Demand::NOTHING;
        };
        let agent = user_agent(head, bytes);
        let marked = features.is_marked(record, head, bytes);
        let mut demand = Demand::NOTHING;
        if features.agent_family {
            record.agent =
                agent.and_then(|agent| AgentEvidence::of(Some(agent), ToolSet::EMPTY, false));
            if record.agent.is_none() {
                demand = demand | Demand::TOOL_NAMES;
            }
        }
        let mut open = Open {
            dialect,
            session: Session::Connection,
            marked,
            unjudged: false,
        };
        if let Some(policy) = &features.session {
            (open.session, self.token) = features.session(record, head, bytes);
            let shown = Turn {
                agent,
                marked,
                ..Turn::default()
            };
            let local = policy.evaluate(shown);
            open.unjudged = !self.judge_head(core, policy, (open.session, local), record);
            if open.unjudged {
                demand = demand | wished(policy, (open.session, local));
            }
        }
        self.open = Some(open);
        demand
    }

    /// The token that the client is to be given, and the field for it.
    pub(super) fn take_token(&mut self) -> Option<(&'static str, String)> {
        Some((SESSION_FIELD, self.token.take()?))
    }

    /// Whether the head alone says everything of the session.
    fn judge_head(
        &mut self,
        core: &Core,
        policy: &Policy,
        (session, local): (Session, Local),
        record: &mut Record,
    ) -> bool {
        record.view = Some(SessionView::default());
        match session {
            Session::InBody => return false,
            Session::Nowhere => {
                core.metrics.evaluated(policy.mode, Outcome::NoAuthority);
                return true;
            }
            Session::Kept(key) => self.turn_to(Some(key)),
            Session::Connection => self.turn_to(None),
        }
        let found = self.find(core, policy, local);
        self.conclude(core, policy, found, record)
    }

    /// Turns to a session; what was known of another one is forgotten here.
    fn turn_to(&mut self, key: Option<Key>) {
        if self.key != key {
            *self = Self {
                key,
                open: self.open,
                token: self.token.take(),
                ..Self::default()
            };
        }
    }

    /// What is known of the session, or is now by this evidence.
    fn find(&mut self, core: &Core, policy: &Policy, local: Local) -> Option<Outcome> {
        self.recall(core).or_else(|| {
            let evidence = policy.promotes(local)?;
            Some(self.promote(core, evidence))
        })
    }

    /// What is known of the session: what the store accepted, which may differ from what this connection showed
    /// it at the same time as another one. The store is asked once, and again while it takes nothing.
    fn recall(&mut self, core: &Core) -> Option<Outcome> {
        let was_known = self.known.is_some();
        if let (Some(key), Some(sessions)) = (self.key, core.sessions()) {
            let kept = sessions.known(&key, minute_of(clock::unix_time()));
            match (kept, self.known) {
                (Some(_), _) => self.known = kept,
                // On its way, made room for others, or not taken: said again until it stands there.
                (None, Some(own)) => {
                    let _asked = keep(sessions, key, own);
                }
                (None, None) if !self.asked && sessions.may_know() => {
                    self.asked = sessions.load(key) && !sessions.is_refusing();
                }
                (None, None) => {}
            }
        }
        self.known?;
        Some(if was_known {
            Outcome::Preserved
        } else {
            Outcome::Restored
        })
    }

    /// Accepts evidence. What cannot be kept is not accepted; of a connection's own session nothing is kept.
    fn promote(&mut self, core: &Core, evidence: Evidence) -> Outcome {
        let kept = match (self.key, core.sessions()) {
            (None, _) => true,
            (Some(key), Some(sessions)) => keep(sessions, key, evidence),
            (Some(_), None) => false,
        };
        if !kept {
            return Outcome::StateUnavailable;
        }
        self.known = Some(evidence);
        if self.key.is_none() {
            core.metrics.identified(evidence);
        }
        Outcome::Promoted
    }

    /// Whether something was found, which is then counted and noted.
    fn conclude(
        &self,
        core: &Core,
        policy: &Policy,
        found: Option<Outcome>,
        record: &mut Record,
    ) -> bool {
        let Some(outcome) = found else {
            return false;
        };
        core.metrics.evaluated(policy.mode, outcome);
        let known = self.known.map(Classification::by);
        record.view = Some(SessionView::new(known.unwrap_or_default()));
        true
    }

    /// Looks at what the body showed.
    fn end(
        &mut self,
        core: &Core,
        (head, bytes): (&RequestHead, &[u8]),
        body: &Body,
        record: &mut Record,
    ) {
        let (Some(open), Some(features)) = (self.open.take(), &core.features) else {
            return;
        };
        let names = body.facts().map(|facts| facts.tool_names().bits());
        let tools = ToolEvidence::of(names.unwrap_or_default());
        let agent = user_agent(head, bytes);
        if features.agent_family && record.agent.is_none() {
            record.agent = AgentEvidence::of(agent, tools.family(), open.marked);
        }
        if let Some(agent) = record.agent {
            core.metrics.agent(agent);
        }
        let Some(policy) = features.session.as_ref().filter(|_| open.unjudged) else {
            return;
        };
        if open.session == Session::InBody {
            // Without a conversation there is only the connection, which several clients may share.
            let Some(key) = features.conversation(record) else {
                return core.metrics.evaluated(policy.mode, Outcome::NoAuthority);
            };
            self.turn_to(Some(key));
        }
        let turn = Turn {
            agent,
            tools: tools.session(),
            marked: open.marked,
        };
        let local = policy.evaluate(turn);
        let found = self.find(core, policy, local);
        let found = found.unwrap_or_else(|| {
            let input = remote_input(open.dialect, turn, local);
            self.ask(features, policy, (input, local))
        });
        self.conclude(core, policy, Some(found), record);
    }

    /// Has the remote service asked about a session of which nothing else is known. Its answer is for later
    /// turns.
    fn ask(
        &self,
        features: &Features,
        policy: &Arc<Policy>,
        (input, local): (RemoteInput, Local),
    ) -> Outcome {
        if local.excluded {
            return Outcome::Excluded;
        }
        let kept = features.keeping.as_ref().filter(|_| self.key.is_some());
        if kept.is_some_and(|keeping| keeping.sessions.is_refusing()) {
            return Outcome::StateUnavailable;
        }
        if policy.asks(local).is_none() {
            return Outcome::Unknown;
        }
        // What is not kept cannot be leased.
        let Some(key) = self.key else {
            return Outcome::NoAuthority;
        };
        let (Some(keeping), Some(endpoint)) = (&features.keeping, &features.remote) else {
            return Outcome::RemoteSkipped;
        };
        let question = Question {
            key,
            input,
            policy: Arc::clone(policy),
            endpoint: Arc::clone(endpoint),
        };
        if keeping.decider.ask(question) {
            Outcome::Unknown
        } else {
            Outcome::RemoteSkipped
        }
    }
}

/// Says everything of the turn that is still open, once.
pub(super) fn settle(core: &Core, client: &mut Client, body: &Body) {
    if client.turn.open.is_some() {
        let head = (&client.head, &*client.head_text);
        client.turn.end(core, head, body, &mut client.record);
    }
}

/// What the body is wished to be read for.
fn wished(policy: &Policy, (session, local): (Session, Local)) -> Demand {
    let mut demand = Demand::NOTHING;
    if session == Session::InBody {
        demand = demand | Demand::FINGERPRINT;
    }
    if policy.promotes(local).is_none() {
        demand = demand | Demand::TOOL_NAMES;
    }
    demand
}

fn keep(sessions: &Sessions, key: Key, evidence: Evidence) -> bool {
    // A store that refused the last session is tried with each that comes.
    let was_refusing = sessions.is_refusing();
    let asked = match evidence.source() {
        Source::LocalIdentity | Source::LocalTooling => sessions.promote(key, evidence),
        // The store had it first, and has it still.
        Source::RemoteClassifier => sessions.load(key),
    };
    asked && !was_refusing
}

fn remote_input(dialect: Dialect, turn: Turn<'_>, local: Local) -> RemoteInput {
    let family = turn.agent.and_then(Family::of);
    RemoteInput {
        operation: dialect.into(),
        family,
        ambiguous: turn.agent.is_some() && family.is_none(),
        tools: turn.tools,
        marked: turn.marked,
        local: local.evidence,
    }
}

/// The User-Agent, if there is one and no second.
fn user_agent<'a>(head: &'a RequestHead, bytes: &'a [u8]) -> Option<UserAgent<'a>> {
    let mut values = values(&head.fields, bytes, "user-agent");
    let first = values.next()?;
    UserAgent::accept(first).filter(|_| values.next().is_none())
}

impl Core {
    fn sessions(&self) -> Option<&Sessions> {
        let keeping = self.features.as_ref()?.keeping.as_ref()?;
        Some(&keeping.sessions)
    }
}

impl Features {
    /// Which session a request belongs to, and the token of it if it is new and its client wants one.
    fn session(
        &self,
        record: &Record,
        head: &RequestHead,
        bytes: &[u8],
    ) -> (Session, Option<String>) {
        if let Some(said) = field(&head.fields, bytes, SESSION_FIELD) {
            return self.said(said, record.client.as_deref().unwrap_or_default());
        }
        if record.client.is_none() {
            return (Session::Connection, None);
        }
        let kept = self
            .conversation(record)
            .filter(|_| record.names_conversation());
        (kept.map_or(Session::InBody, Session::Kept), None)
    }

    /// The session of a token, or a new one for who asks for it or has one that is too old.
    fn said(&self, said: &[u8], principal: &str) -> (Session, Option<String>) {
        let now = clock::unix_time();
        let read = |token: &[u8]| self.authority.session(token, principal, now);
        let kept = |id| Session::Kept(Key::new(Scope::SecureSession, id));
        let found = if said == NEW_SESSION {
            Err(TokenError::Expired)
        } else {
            read(said)
        };
        match found {
            Ok(id) => (kept(id), None),
            Err(TokenError::NotOurs) => (Session::Nowhere, None),
            Err(TokenError::Expired) => {
                let number = Uuid::now_v7().as_u128();
                let token = self.authority.token(principal, number, now);
                let session = read(token.as_bytes()).map_or(Session::Nowhere, kept);
                (session, Some(token))
            }
        }
    }

    /// The session of a client's conversation, by the name that its head gives it or by its beginning.
    fn conversation(&self, record: &Record) -> Option<Key> {
        let principal = record.client.as_deref()?;
        let named = record.identity.as_ref().and_then(|it| it.session);
        let named = named.map(|(_, key)| key);
        let key = named.or_else(|| record.fingerprint.map(identity::Key::fingerprint))?;
        let id = self.authority.leg(principal, key.as_str());
        Some(Key::new(Scope::ALeg, id))
    }

    /// Whether a project's marker is known of the client's workspace. What a client says of it itself counts
    /// only if it has a name.
    fn is_marked(&self, record: &Record, head: &RequestHead, bytes: &[u8]) -> bool {
        let Some(client) = &record.client else {
            return false;
        };
        let said = field(&head.fields, bytes, MARKERS_FIELD);
        let said = said.and_then(|said| std::str::from_utf8(said).ok());
        self.marked.contains(client)
            || said.is_some_and(|said| has_project_marker(said.split(',').map(str::trim)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::buf::Budget;
    use crate::classify::Tool;
    use crate::observe::{AccessLog, LedgerScene, Metrics, Recorder, Scene, SessionScene};

    /// What User-Agents and names of tools are made of below.
    const WORDS: [&str; 9] = [
        "codex_cli_rs/",
        "claude-cli/",
        "read",
        "bash",
        "edit",
        "é",
        "/",
        " ",
        "x",
    ];

    /// Whatever clients send, the series are those of the closed words.
    #[test]
    fn clients_cannot_make_series_of_sessions_or_agents() {
        let metrics = Arc::new(Metrics::new(1));
        let core = metrics.core(0);
        let mut random = 1_u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            WORDS[usize::try_from(random >> 33).unwrap() % WORDS.len()]
        };
        let policy = Policy::default();
        for turn in 0..100_000 {
            let text = format!("{}{}{}{turn}", next(), next(), next());
            let agent = UserAgent::accept(text.as_bytes());
            let (mut tools, mut wider) = (ToolSet::EMPTY, ToolSet::EMPTY);
            for name in [next(), next(), next(), &text] {
                tools.add(Tool::of(name));
                wider.add(Tool::of_family(name));
            }
            let turn = Turn {
                agent,
                tools,
                marked: false,
            };
            let outcome = match policy.promotes(policy.evaluate(turn)) {
                Some(evidence) => {
                    core.identified(evidence);
                    Outcome::Promoted
                }
                None => Outcome::Unknown,
            };
            core.evaluated(policy.mode, outcome);
            if let Some(agent) = AgentEvidence::of(agent, wider, false) {
                core.agent(agent);
            }
        }
        let recorder = Recorder::start(AccessLog::None, None).unwrap();
        let text = metrics.exposition(Scene {
            generation: 1,
            is_ready: true,
            is_draining: false,
            providers: Vec::new(),
            block_limit_bytes: 1,
            budget: Budget::new(1),
            observer: recorder.observer(),
            dictionary: Arc::new(crate::switch::Dictionary::new(1)),
            ledger: LedgerScene::default(),
            sessions: Some(SessionScene {
                is_enabled: true,
                is_ready: true,
                store: Arc::default(),
                remote: Arc::default(),
            }),
        });
        recorder.finish();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("lip_") || line.starts_with("lanegate_agent"));
        let series: BTreeSet<_> = lines.map(|it| it.rsplit_once(' ').unwrap().0).collect();
        assert!(series.len() < 20, "{series:?}");
        assert!(text.contains("evidence=\"client_family.codex\""), "{text}");
    }
}
