//! Messages and their parts: what is kept of their text, and for whom.

use crate::dialect::Dialect;
use crate::json::{Container, Want};
use crate::peek::fingerprint::Fingerprint;
use crate::peek::gather::{Gather, look_if};
use crate::peek::place::{Key, Part, Place};
use crate::peek::{Demand, KeySet, ToolNames, TopKey};

impl<T: ToolNames> Gather<T> {
    pub(in crate::peek) fn fingerprint(&self, closed: bool) -> Option<u64> {
        let read = KeySet::NONE
            .with(self.entries_key())
            .with(TopKey::System)
            .with(TopKey::Instructions);
        let single = self.repeated.and(read).is_empty();
        Some(self.fingerprint.as_ref()?.value(closed, single))
    }

    /// Whether the text of a message that begins now could be wanted.
    pub(super) fn wants_entry(&self) -> bool {
        let wanted = self.fingerprint.as_ref();
        self.demand.has(Demand::USER_TEXT) || wanted.is_some_and(Fingerprint::wants_messages)
    }

    /// Whether that of the present message is.
    pub(super) fn wants_content(&self) -> bool {
        let wanted = self.fingerprint.as_ref();
        wanted.is_some_and(Fingerprint::wants_content)
    }

    /// A string at the root that is text of the conversation starts.
    pub(super) fn root_text(&mut self, user: bool) -> Want {
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.begin_string(user);
            return Want::Look;
        }
        look_if(user && self.demand.has(Demand::USER_TEXT))
    }

    /// Whether a string under this key is text of the conversation.
    pub(super) fn is_root_text(&self, key: TopKey) -> bool {
        match self.dialect {
            Dialect::Chat => false,
            Dialect::Messages => key == TopKey::System,
            Dialect::Responses => matches!(key, TopKey::Instructions | TopKey::Input),
        }
    }

    pub(super) fn user_piece(&mut self, raw: &[u8], last: bool) {
        if self.demand.has(Demand::USER_TEXT) {
            self.texts.piece(raw, last);
        }
    }

    /// A member of a message starts. `container`: none for a string, number or literal.
    pub(super) fn entry_value(&mut self, string: bool, container: Option<Container>) -> Want {
        let entry = &mut self.entry;
        match self.key {
            Key::Role => {
                entry.repeated |= entry.role_seen;
                entry.role_seen = true;
                self.disown_if(!string);
                look_if(string)
            }
            Key::Type if self.dialect == Dialect::Responses => {
                entry.repeated |= entry.type_seen;
                entry.type_seen = true;
                entry.other_type |= !string;
                self.disown_if(!string);
                look_if(string)
            }
            Key::Content => {
                entry.repeated |= entry.content_seen;
                entry.content_seen = true;
                entry.text = string || container == Some(Container::Array);
                self.texts.begin();
                let other = entry.role_seen && !entry.user;
                let user = entry.text && !other && !entry.repeated;
                let text = entry.text;
                self.disown_if(false);
                if string && let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.begin_piece();
                }
                let user = user && self.demand.has(Demand::USER_TEXT);
                look_if(user || text && self.wants_content())
            }
            _ => Want::Skip,
        }
    }

    /// The present message has no single role, because a deciding member came twice or says nothing.
    pub(super) fn disown_if(&mut self, silent: bool) {
        if (silent || self.entry.repeated)
            && let Some(fingerprint) = &mut self.fingerprint
        {
            fingerprint.disown();
        }
    }

    /// A message ends.
    pub(super) fn end_entry(&mut self) {
        let entry = self.entry;
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.end_message();
        }
        // A repeat leaves open what the item is, so one reading in which it is a user's suffices.
        if !entry.user || entry.other_type && !entry.repeated {
            return;
        }
        if entry.text && !entry.repeated {
            self.texts.keep();
        } else {
            self.texts.forget();
        }
    }

    /// A part starts, of a message or of the list in `system`.
    pub(super) fn begin_part(&mut self, place: Place) -> Place {
        self.part = Part::default();
        if let Some(fingerprint) = &mut self.fingerprint {
            if place == Place::Block {
                fingerprint.begin_block();
            } else {
                fingerprint.begin_part();
            }
        }
        place
    }

    /// A member of a part starts.
    pub(super) fn part_value(&mut self, string: bool) -> Want {
        let fingerprinted = self.place == Place::Block || self.wants_content();
        match self.key {
            Key::Type => {
                if let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.part_type();
                }
                self.entry.text &= !self.part.type_seen;
                self.part.type_seen = true;
                look_if(string)
            }
            Key::Text => {
                self.entry.text &= !self.part.text_seen;
                self.part.text_seen = true;
                if let Some(fingerprint) = &mut self.fingerprint {
                    fingerprint.part_text();
                    fingerprint.begin_piece();
                }
                look_if(string && (self.entry.text || fingerprinted))
            }
            _ => Want::Skip,
        }
    }

    /// What a text part calls itself.
    pub(super) const fn text_type(&self) -> &'static [u8] {
        match self.dialect {
            Dialect::Chat | Dialect::Messages => b"text",
            Dialect::Responses => b"input_text",
        }
    }
}
