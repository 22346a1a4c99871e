//! How a User-Agent is matched against the names of a catalogue.
//!
//! A name counts only where it stands as a word, so that `not-opencode` is not opencode; letter case does not
//! matter. Names of two families in one text are no evidence of either.

use crate::classify::UserAgent;

/// What has to follow a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The end of a word.
    Word,
    /// A slash, and so a version. For names that are words of their own in other texts.
    Slash,
}

/// A name in a catalogue. It is lower-case ASCII.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<F> {
    pub(super) text: &'static str,
    pub(super) after: After,
    pub(super) family: F,
}

/// A name that ends where its word ends.
pub(super) const fn word<F>(text: &'static str, family: F) -> Name<F> {
    Name {
        text,
        after: After::Word,
        family,
    }
}

/// A name that a version follows.
pub(super) const fn versioned<F>(text: &'static str, family: F) -> Name<F> {
    Name {
        text,
        after: After::Slash,
        family,
    }
}

/// The one family that a User-Agent names.
pub(super) fn find<F: Copy + PartialEq>(agent: UserAgent<'_>, names: &[Name<F>]) -> Option<F> {
    let mut found = None;
    let mut before = None;
    for (at, character) in agent.as_str().char_indices() {
        let begins = !before.is_some_and(is_of_word);
        before = Some(character);
        if !begins || !is_of_word(character) && !character.is_ascii() {
            continue;
        }
        let rest = agent.as_str().get(at..).unwrap_or_default();
        for name in names.iter().filter(|name| name.begins(rest)) {
            match found {
                None => found = Some(name.family),
                Some(family) if family == name.family => {}
                Some(_) => return None,
            }
        }
    }
    found
}

impl<F> Name<F> {
    /// Whether `text`, at the beginning of a word, begins with it.
    fn begins(&self, text: &str) -> bool {
        let Some((name, rest)) = text.split_at_checked(self.text.len()) else {
            return false;
        };
        name.eq_ignore_ascii_case(self.text)
            && match self.after {
                After::Word => !rest.chars().next().is_some_and(is_of_word),
                After::Slash => rest.starts_with('/'),
            }
    }
}

/// Whether a character continues a word.
fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-')
}
