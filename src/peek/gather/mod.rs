//! Where in the body the scanner is, and what of it is kept.

mod message;

use crate::dialect::Dialect;
use crate::json::{Container, Sink, Span, Want, Word};
use crate::peek::capture::Value;
use crate::peek::fingerprint::Fingerprint;
use crate::peek::key::Spelling;
use crate::peek::place::{Entry, Key, Part, Place, Rank, Tool};
use crate::peek::user_text::UserTexts;
use crate::peek::{
    Capture, Demand, Fact, KeySet, Kind, LastUserText, MODEL_BYTES_MAX, SESSION_FIELD_BYTES_MAX,
    TOOL_NAME_BYTES_MAX, ToolName, ToolNames, TopKey,
};

/// The scanner's sink.
#[derive(Clone)]
pub(super) struct Gather<T> {
    dialect: Dialect,
    demand: Demand,
    pub(super) tools: T,

    place: Place,
    /// The root member being read.
    top: Option<TopKey>,
    /// The member being read below the root.
    key: Key,
    word: Word,
    /// Offset of the root member's value being read.
    began: u64,
    /// Offset of the string in `metadata` being read.
    user_id_began: u64,
    entry: Entry,
    part: Part,
    tool: Tool,

    pub(super) opened_at: Option<u64>,
    kinds: [Option<Kind>; TopKey::ALL.len()],
    spans: [Span; TopKey::ALL.len()],
    /// Keys whose value is complete.
    ended: KeySet,
    /// Keys that came, under any spelling.
    pub(super) seen: KeySet,
    pub(super) repeated: KeySet,
    pub(super) model: Value,
    pub(super) prompt_cache_key: Value,
    pub(super) user: Value,
    pub(super) session_id: Value,
    pub(super) user_id: Value,
    texts: UserTexts,
    fingerprint: Option<Fingerprint>,
    pub(super) tools_named: u32,
}

impl<T: ToolNames> Gather<T> {
    pub(super) fn new(dialect: Dialect, demand: Demand, capture: Capture, tools: T) -> Self {
        let field = || Value::new(SESSION_FIELD_BYTES_MAX, capture);
        let tool = Tool {
            name: Value::new(TOOL_NAME_BYTES_MAX, capture),
            rank: Rank::Nowhere,
            callee: Rank::Nowhere,
            namespace: false,
        };
        Self {
            dialect,
            demand,
            tools,
            place: Place::Outside,
            top: None,
            key: Key::Other,
            word: Word::default(),
            began: 0,
            user_id_began: 0,
            entry: Entry::default(),
            part: Part::default(),
            tool,
            opened_at: None,
            kinds: [None; TopKey::ALL.len()],
            spans: [Span::default(); TopKey::ALL.len()],
            ended: KeySet::NONE,
            seen: KeySet::NONE,
            repeated: KeySet::NONE,
            model: Value::new(MODEL_BYTES_MAX, capture),
            prompt_cache_key: field(),
            user: field(),
            session_id: field(),
            user_id: field(),
            texts: UserTexts::new(capture),
            fingerprint: demand
                .has(Demand::FINGERPRINT)
                .then(|| Fingerprint::new(dialect)),
            tools_named: 0,
        }
    }

    pub(super) const fn kind(&self, key: TopKey) -> Option<Kind> {
        self.kinds[key as usize]
    }

    pub(super) const fn has_ended(&self, key: TopKey) -> bool {
        self.ended.contains(key)
    }

    pub(super) fn span(&self, key: TopKey) -> Option<Span> {
        self.has_ended(key).then(|| self.spans[key as usize])
    }

    pub(super) fn last_user(&self, closed: bool) -> Fact<LastUserText<'_>> {
        if !self.demand.has(Demand::USER_TEXT) {
            return Fact::NotYet;
        }
        self.texts.fact(self.has_ended(self.entries_key()), closed)
    }

    /// The key whose list holds the messages.
    const fn entries_key(&self) -> TopKey {
        match self.dialect {
            Dialect::Chat | Dialect::Messages => TopKey::Messages,
            Dialect::Responses => TopKey::Input,
        }
    }

    /// A member name at the root.
    fn root_key(&mut self, spelling: Spelling) {
        self.top = None;
        let (Spelling::Exact(key) | Spelling::Folded(key)) = spelling else {
            return;
        };
        if self.seen.contains(key) {
            self.repeated = self.repeated.with(key);
        }
        self.seen = self.seen.with(key);
        if spelling == Spelling::Exact(key) {
            self.top = Some(key);
        }
    }

    /// A value of the root starts; the one that an earlier member of that name had is forgotten.
    fn root_value(&mut self, kind: Kind, at: u64) -> Want {
        self.began = at;
        let Some(key) = self.top else {
            return Want::Skip;
        };
        self.kinds[key as usize] = Some(kind);
        self.ended = self.ended.without(key);
        if key == self.entries_key() {
            self.texts.forget();
        }
        if key == TopKey::Metadata {
            self.user_id.clear();
        }
        if let Some(value) = self.root_string() {
            value.clear();
        }
        let wanted = match (key, kind) {
            (TopKey::Model, Kind::String) => Demand::MODEL,
            (TopKey::PromptCacheKey | TopKey::User | TopKey::SessionId, Kind::String) => {
                Demand::SESSION_FIELDS
            }
            (TopKey::Metadata, Kind::Object) => Demand::USER_ID,
            (TopKey::Tools, Kind::Array) => Demand::TOOL_NAMES,
            (_, Kind::Array) if key == self.entries_key() => return look_if(self.wants_entry()),
            (TopKey::System, Kind::Array) if self.dialect == Dialect::Messages => {
                Demand::FINGERPRINT
            }
            (TopKey::Input, Kind::String) if self.dialect == Dialect::Responses => {
                self.texts.begin();
                return self.root_text(true);
            }
            (TopKey::System, Kind::String) if self.dialect == Dialect::Messages => {
                return self.root_text(false);
            }
            (TopKey::Instructions, Kind::String) if self.dialect == Dialect::Responses => {
                return self.root_text(false);
            }
            _ => return Want::Skip,
        };
        if self.demand.has(wanted) {
            Want::Look
        } else {
            Want::Skip
        }
    }

    /// Where the string value of the present root member is kept.
    const fn root_string(&mut self) -> Option<&mut Value> {
        match self.top {
            Some(TopKey::Model) => Some(&mut self.model),
            Some(TopKey::PromptCacheKey) => Some(&mut self.prompt_cache_key),
            Some(TopKey::User) => Some(&mut self.user),
            Some(TopKey::SessionId) => Some(&mut self.session_id),
            _ => None,
        }
    }

    /// Whether a name at this place counts, and it then replaces the one before.
    fn tool_name(&mut self, rank: Rank) -> Want {
        if self.key != Key::Name || rank < self.tool.rank {
            return Want::Skip;
        }
        self.tool.rank = rank;
        self.tool.name.clear();
        Want::Look
    }

    fn begin_tool(&mut self) {
        self.tool.rank = Rank::Nowhere;
        self.tool.name.clear();
    }

    /// Reports the name at hand, if there is one.
    fn end_tool(&mut self) {
        let name = match self.tool.name.fact(true) {
            Fact::Found(text) => ToolName::Named(text.value),
            Fact::BeyondBound => ToolName::BeyondBound,
            Fact::Absent | Fact::NotYet => return,
        };
        self.tools.name(name);
        self.tools_named = self.tools_named.saturating_add(1);
        self.begin_tool();
    }

    /// The place that a container leads to, if it is looked into.
    fn enter(&mut self, container: Container) -> Option<Place> {
        let place = match (self.place, container) {
            (Place::Entries, Container::Object) => {
                if !self.wants_entry() {
                    return None;
                }
                self.entry = Entry::default();
                if let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.begin_message();
                }
                Place::Entry
            }
            (Place::Entry, _) => match self.entry_value(false, Some(container)) {
                Want::Look => Place::Parts,
                Want::Skip => return None,
            },
            (Place::Parts, Container::Object) if self.entry.text || self.wants_content() => {
                self.begin_part(Place::Part)
            }
            (Place::Blocks, Container::Object) => self.begin_part(Place::Block),
            (Place::Parts, _) => {
                self.entry.text = false;
                return None;
            }
            (Place::Part | Place::Block, _) => {
                self.part_value(false);
                return None;
            }
            (Place::Metadata, _) if self.key == Key::UserId => {
                self.user_id.clear();
                return None;
            }
            (Place::Tools, Container::Object) => {
                self.begin_tool();
                self.tool.namespace = false;
                Place::Tool
            }
            (Place::InnerTools, Container::Object) => {
                self.begin_tool();
                Place::InnerTool
            }
            (Place::Tool | Place::InnerTool, Container::Object) => {
                self.tool.callee = match self.key {
                    Key::Function => Rank::Function,
                    Key::Custom => Rank::Custom,
                    _ => return None,
                };
                if self.place == Place::Tool {
                    Place::Callee
                } else {
                    Place::InnerCallee
                }
            }
            (Place::Tool, Container::Array) if self.key == Key::Tools => {
                self.tool.namespace = true;
                Place::InnerTools
            }
            _ => return None,
        };
        Some(place)
    }
}

const fn look_if(condition: bool) -> Want {
    if condition { Want::Look } else { Want::Skip }
}

impl<T: ToolNames> Sink for Gather<T> {
    #[inline]
    fn open(&mut self, container: Container, at: u64) -> Want {
        let next = match self.place {
            Place::Outside => {
                self.opened_at = Some(at);
                Some(Place::Root)
            }
            Place::Root => {
                let kind = match container {
                    Container::Object => Kind::Object,
                    Container::Array => Kind::Array,
                };
                match (self.root_value(kind, at), self.top) {
                    (Want::Skip, _) => None,
                    (Want::Look, Some(TopKey::Metadata)) => Some(Place::Metadata),
                    (Want::Look, Some(TopKey::Tools)) => Some(Place::Tools),
                    (Want::Look, Some(TopKey::System)) => Some(Place::Blocks),
                    (Want::Look, _) => Some(Place::Entries),
                }
            }
            _ => self.enter(container),
        };
        self.key = Key::Other;
        next.map_or(Want::Skip, |place| {
            self.place = place;
            Want::Look
        })
    }

    #[inline]
    fn close(&mut self) {
        match self.place {
            Place::Entry => self.end_entry(),
            Place::Part => {
                self.entry.text &= self.part.text;
                if let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.end_part();
                }
            }
            Place::Block => {
                if let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.end_block();
                }
            }
            Place::Tool if !self.tool.namespace => self.end_tool(),
            Place::InnerTool => self.end_tool(),
            _ => {}
        }
        self.place = self.place.parent();
    }

    #[inline]
    fn key(&mut self, raw: &[u8], last: bool) {
        let Some(name) = self.word.take(raw, last) else {
            return;
        };
        if self.place == Place::Root {
            let spelling = Spelling::of(name);
            self.root_key(spelling);
        } else {
            self.key = Key::of(name);
        }
    }

    #[inline]
    fn text(&mut self, at: u64) -> Want {
        match self.place {
            Place::Root => self.root_value(Kind::String, at),
            Place::Metadata => {
                self.user_id_began = at;
                if self.key != Key::UserId {
                    return Want::Skip;
                }
                self.user_id.clear();
                Want::Look
            }
            Place::Entry => self.entry_value(true, None),
            Place::Parts => {
                self.entry.text = false;
                Want::Skip
            }
            Place::Part | Place::Block => self.part_value(true),
            Place::Tool if self.key == Key::Type => Want::Look,
            Place::Tool if self.tool.namespace => Want::Skip,
            Place::Tool | Place::InnerTool => self.tool_name(Rank::Own),
            Place::Callee if self.tool.namespace => Want::Skip,
            Place::Callee | Place::InnerCallee => self.tool_name(self.tool.callee),
            Place::Outside | Place::Blocks | Place::Entries | Place::Tools | Place::InnerTools => {
                Want::Skip
            }
        }
    }

    #[inline]
    fn piece(&mut self, raw: &[u8], last: bool) {
        match (self.place, self.key) {
            (Place::Root, _) => match self.root_string() {
                Some(value) => value.piece(raw, last),
                None => {
                    if let Some(fingerprint) = &mut self.fingerprint {
                        fingerprint.root_piece(raw, last);
                    }
                    self.user_piece(raw, last);
                }
            },
            (Place::Block, Key::Text) => {
                if let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.root_piece(raw, last);
                }
            }
            (Place::Metadata, _) => self.user_id.piece(raw, last),
            (Place::Entry, Key::Content) | (Place::Part, Key::Text) => {
                if let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.piece(raw, last);
                }
                self.user_piece(raw, last);
            }
            (Place::Entry | Place::Part | Place::Block | Place::Tool, Key::Role | Key::Type) => {
                let text_type = self.text_type();
                let Some(word) = self.word.take(raw, last) else {
                    return;
                };
                match (self.place, self.key) {
                    (Place::Entry, Key::Role) => {
                        self.entry.user |= word == b"user";
                        if let Some(fingerprint) = &mut self.fingerprint {
                            fingerprint.role(word);
                        }
                    }
                    (Place::Entry, _) => {
                        let other = word != b"message";
                        self.entry.other_type |= other;
                        if let Some(fingerprint) = self.fingerprint.as_mut().filter(|_| other) {
                            fingerprint.disown();
                        }
                    }
                    (Place::Part | Place::Block, _) => {
                        self.part.text = word == text_type;
                        if let Some(fingerprint) = &mut self.fingerprint {
                            fingerprint.part_type_is(word == text_type);
                        }
                    }
                    (_, _) => self.tool.namespace |= word == b"namespace",
                }
            }
            (_, _) => self.tool.name.piece(raw, last),
        }
    }

    #[inline]
    fn scalar(&mut self, first: u8, at: u64) {
        match self.place {
            Place::Root => {
                let kind = match first {
                    b'n' => Kind::Null,
                    b't' => Kind::True,
                    b'f' => Kind::False,
                    _ => Kind::Number,
                };
                self.root_value(kind, at);
            }
            Place::Entry => {
                self.entry_value(false, None);
            }
            Place::Parts => self.entry.text = false,
            Place::Part | Place::Block => {
                self.part_value(false);
            }
            Place::Metadata if self.key == Key::UserId => self.user_id.clear(),
            _ => {}
        }
    }

    #[inline]
    fn end(&mut self, end: u64) {
        match self.place {
            Place::Root => {
                let span = Span {
                    start: self.began,
                    end,
                };
                let Some(key) = self.top else {
                    return;
                };
                self.spans[key as usize] = span;
                self.ended = self.ended.with(key);
                if let Some(value) = self.root_string() {
                    value.span = span;
                }
                if self.kind(key) == Some(Kind::String)
                    && self.is_root_text(key)
                    && let Some(fingerprint) = &mut self.fingerprint
                {
                    fingerprint.end_string();
                }
                let text = key == self.entries_key() && self.kind(key) == Some(Kind::String);
                let items = self.dialect == Dialect::Responses;
                if text && items && self.demand.has(Demand::USER_TEXT) {
                    self.texts.keep();
                }
            }
            Place::Metadata if self.key == Key::UserId => {
                self.user_id.span = Span {
                    start: self.user_id_began,
                    end,
                };
            }
            _ => {}
        }
    }
}
