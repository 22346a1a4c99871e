//! `fp1`: the fingerprint of the text that a conversation begins with.
//!
//! It is the first eight bytes of the SHA-256 of `01`, then the system text; where there is none of `02`, then
//! the first 4096 bytes of the first user text; where there is neither of `00` alone. System text is, in the
//! order of the body: `system` of a Messages request; `instructions` of a Responses request and the
//! messages at the head of its `input` whose role is `system` or `developer`; those at the head of `messages` of
//! a Chat request. Its pieces, each one string, are joined by `1e`; empty ones are left out, and so are
//! those that begin with `x-anthropic-billing-header:`, which differ with every request. Past 64 KiB `04` ends the
//! text. Text is hashed as it decodes, a lone surrogate in its three bytes. A body that has not been read to its
//! end has `03`, then the fingerprint of what came, so that it equals no whole one.
//!
//! The role of a message, and what a part is, may come after its text: so text is hashed on a copy of the state,
//! 120 bytes, that is kept or thrown away at the end of the message or part. Nothing is ever held or read twice.
//! A message that repeats `role`, `type` or `content` is of no role, a part that repeats `type` or `text` has no
//! text, and a body that repeats one of the root keys has no text at all: they have no single reading.

use sha2::{Digest as _, Sha256};

use crate::dialect::Dialect;
use crate::json::Unescape;
use crate::limits::{FINGERPRINT_BYTES_MAX, FINGERPRINT_USER_BYTES_MAX};

const NOTHING: u8 = 0x00;
const SYSTEM: u8 = 0x01;
const USER: u8 = 0x02;
const PARTIAL: u8 = 0x03;
const MORE: u8 = 0x04;
const JOINT: u8 = 0x1e;

/// What a piece that is left out begins with.
const NONCE: &[u8] = b"x-anthropic-billing-header:";

/// Bytes that are decoded between two looks at the bound.
const STEP_BYTES: usize = 4096;

/// Text as far as it was hashed.
#[derive(Clone)]
struct Text {
    hash: Sha256,
    /// Bytes hashed, joints included.
    len: usize,
    len_max: usize,
    /// More came than is hashed.
    over: bool,
    piece: Piece,
}

/// Where the present piece is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// So many of its bytes are those of [`NONCE`], and none was hashed.
    Nonce(usize),
    Hashed,
    LeftOut,
}

impl Text {
    fn new(domain: u8, len_max: usize) -> Self {
        let mut hash = Sha256::new();
        hash.update([domain]);
        Self {
            hash,
            len: 0,
            len_max,
            over: false,
            piece: Piece::Hashed,
        }
    }

    const fn begin(&mut self) {
        self.piece = Piece::Nonce(0);
    }

    fn feed(&mut self, text: &[u8]) {
        match self.piece {
            Piece::LeftOut => {}
            Piece::Hashed => self.hash(text),
            Piece::Nonce(matched) => {
                let rest = NONCE.get(matched..).unwrap_or_default();
                let same = rest.iter().zip(text).take_while(|(a, b)| a == b).count();
                if same == rest.len() {
                    self.piece = Piece::LeftOut;
                } else if same == text.len() {
                    self.piece = Piece::Nonce(matched + same);
                } else {
                    self.first(matched);
                    self.hash(text);
                }
            }
        }
    }

    fn end(&mut self) {
        if let Piece::Nonce(matched @ 1..) = self.piece {
            self.first(matched);
        }
        self.piece = Piece::LeftOut;
    }

    /// Begins the piece with the bytes that could have been those of a nonce.
    fn first(&mut self, matched: usize) {
        self.piece = Piece::Hashed;
        if self.len > 0 {
            self.hash(&[JOINT]);
        }
        self.hash(NONCE.get(..matched).unwrap_or_default());
    }

    fn hash(&mut self, text: &[u8]) {
        let room = self.len_max.saturating_sub(self.len);
        self.over |= text.len() > room;
        let fits = text.get(..room.min(text.len())).unwrap_or_default();
        self.hash.update(fits);
        self.len = self.len.saturating_add(fits.len());
    }

    fn digest(mut self) -> u64 {
        if self.over {
            self.hash.update([MORE]);
        }
        first_bytes(self.hash)
    }
}

fn first_bytes(hash: Sha256) -> u64 {
    let digest: [u8; 32] = hash.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(digest.get(..8).unwrap_or(&[0; 8]));
    u64::from_be_bytes(first)
}

/// Both kinds of text, of which a message belongs to one.
#[derive(Clone)]
struct Texts {
    system: Text,
    user: Text,
}

/// The role of a message, as far as it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Open,
    System,
    User,
    Other,
}

/// Who is told of the strings that count, from the scanner's sink.
#[derive(Clone)]
pub(super) struct Fingerprint {
    kept: Texts,
    /// The present message, and the same before its present part.
    draft: Texts,
    before_part: Texts,
    unescape: Unescape,
    /// No message of another role has come.
    leading: bool,
    /// The first user message has come.
    user_seen: bool,
    role: Role,
    /// The message has no single reading, or is none.
    foreign: bool,
    part_is_text: bool,
    part_types: u8,
    part_texts: u8,
}

impl Fingerprint {
    pub(super) fn new(dialect: Dialect) -> Self {
        let texts = Texts {
            system: Text::new(SYSTEM, FINGERPRINT_BYTES_MAX),
            user: Text::new(USER, FINGERPRINT_USER_BYTES_MAX),
        };
        Self {
            draft: texts.clone(),
            before_part: texts.clone(),
            kept: texts,
            unescape: Unescape::wtf8(),
            leading: dialect != Dialect::Messages,
            user_seen: false,
            role: Role::Open,
            foreign: false,
            part_is_text: false,
            part_types: 0,
            part_texts: 0,
        }
    }

    /// Whether a further message could say anything.
    pub(super) const fn wants_messages(&self) -> bool {
        self.leading || !self.user_seen
    }

    pub(super) fn begin_message(&mut self) {
        self.draft = self.kept.clone();
        self.role = Role::Open;
        self.foreign = false;
    }

    pub(super) fn role(&mut self, word: &[u8]) {
        self.role = match word {
            b"system" | b"developer" => Role::System,
            b"user" => Role::User,
            _ => Role::Other,
        };
    }

    /// The message repeats a deciding member, or is an item of another type.
    pub(super) const fn disown(&mut self) {
        self.foreign = true;
    }

    /// Whether the text of the present message may count.
    pub(super) const fn wants_content(&self) -> bool {
        match (self.foreign, self.role) {
            (true, _) | (_, Role::Other) => false,
            (false, Role::System) => self.leading,
            (false, Role::User) => !self.user_seen,
            (false, Role::Open) => self.wants_messages(),
        }
    }

    pub(super) fn begin_part(&mut self) {
        self.before_part = self.draft.clone();
        (self.part_is_text, self.part_types, self.part_texts) = (false, 0, 0);
    }

    pub(super) fn part_type(&mut self) {
        self.part_types = self.part_types.saturating_add(1);
    }

    pub(super) fn part_type_is(&mut self, text: bool) {
        self.part_is_text = text;
    }

    pub(super) fn part_text(&mut self) {
        self.part_texts = self.part_texts.saturating_add(1);
    }

    pub(super) fn end_part(&mut self) {
        if !self.part_is_text || self.part_types != 1 || self.part_texts != 1 {
            self.draft = self.before_part.clone();
        }
    }

    pub(super) fn begin_piece(&mut self) {
        self.draft.system.begin();
        self.draft.user.begin();
    }

    /// A piece of a string of the present message.
    pub(super) fn piece(&mut self, raw: &[u8], last: bool) {
        let system = self.leading && matches!(self.role, Role::Open | Role::System);
        let user = !self.user_seen && matches!(self.role, Role::Open | Role::User);
        let Texts {
            system: of_system,
            user: of_user,
        } = &mut self.draft;
        let mut feed = |text: &[u8]| {
            if system {
                of_system.feed(text);
            }
            if user {
                of_user.feed(text);
            }
            // What is over takes no more, whatever it is given.
            system && !of_system.over || user && !of_user.over
        };
        decode(&mut self.unescape, raw, last, &mut feed);
        if last {
            self.draft.system.end();
            self.draft.user.end();
        }
    }

    pub(super) fn end_message(&mut self) {
        let role = if self.foreign { Role::Other } else { self.role };
        match role {
            Role::System if self.leading => self.kept.system = self.draft.system.clone(),
            Role::User if !self.user_seen => {
                self.kept.user = self.draft.user.clone();
                self.user_seen = true;
            }
            _ => {}
        }
        self.leading &= role == Role::System;
    }

    /// A part of a list at the root ends: that of `system`.
    pub(super) fn end_block(&mut self) {
        self.end_part();
        self.kept.system = self.draft.system.clone();
    }

    /// A part of a list at the root begins.
    pub(super) fn begin_block(&mut self) {
        self.begin_root(Role::System);
        self.begin_part();
    }

    /// A string at the root begins: `system` or `instructions`, or `input` of a user.
    pub(super) fn begin_string(&mut self, user: bool) {
        self.begin_root(if user { Role::User } else { Role::System });
        self.begin_piece();
    }

    fn begin_root(&mut self, role: Role) {
        self.draft = self.kept.clone();
        self.role = role;
    }

    /// A piece of a string at the root, or in a list there.
    pub(super) fn root_piece(&mut self, raw: &[u8], last: bool) {
        let leading = std::mem::replace(&mut self.leading, true);
        self.piece(raw, last);
        self.leading = leading;
    }

    pub(super) fn end_string(&mut self) {
        self.kept = self.draft.clone();
        self.user_seen |= self.role == Role::User;
    }

    /// The fingerprint of what came; `closed`: that is all. `single`: no key came twice.
    pub(super) fn value(&self, closed: bool, single: bool) -> u64 {
        let Texts { system, user } = self.kept.clone();
        let whole = match (single, system.len, user.len) {
            (true, 1.., _) => system.digest(),
            (true, 0, 1..) => Text {
                // Only the beginning counts, so that there being more is nothing.
                over: false,
                ..user
            }
            .digest(),
            (_, _, _) => {
                let mut hash = Sha256::new();
                hash.update([NOTHING]);
                first_bytes(hash)
            }
        };
        if closed {
            return whole;
        }
        let mut hash = Sha256::new();
        hash.update([PARTIAL]);
        hash.update(whole.to_be_bytes());
        first_bytes(hash)
    }
}

/// Decodes in steps, so that nothing is decoded once nobody wants it.
fn decode(unescape: &mut Unescape, raw: &[u8], last: bool, feed: &mut impl FnMut(&[u8]) -> bool) {
    for step in raw.chunks(STEP_BYTES) {
        if !feed(b"") {
            break;
        }
        unescape.feed(step, |text| _ = feed(text));
    }
    if last {
        unescape.finish(|text| _ = feed(text));
    }
}
