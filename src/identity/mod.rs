//! Whose request it is, as far as its client says: labels that group requests, and nothing that decides.
//!
//! A label never authorises, bills, routes or delays (decision I7), so that whatever a client claims here costs
//! nobody but itself.

pub mod conversation;
pub mod session;

pub use conversation::{Identity, Inline, Key, KeyKind, Named, Reading, is_label, read};
