//! Moving bodies: what is read off one connection, as it comes, is written to the other.
//!
//! A body is decoded to plain bytes (in place, RFC 9112 §7.1) and
//! framed again, so a length or a chunk size that a peer wrote never reaches the other side
//! unchecked. One read is answered by one write; nothing waits to fill a buffer; nothing is
//! allocated per chunk.

mod body;
mod choose;
mod coded;
mod flight;
pub mod fuzzing;
mod inspect;
mod pace;
mod patience;
mod request;
mod response;

pub use body::{Body, BodyError};
pub use choose::{Asks, Decline, Lane, choose};
pub use flight::write_all;
pub use inspect::{Inspection, Rigour};
pub use pace::Pace;
pub use patience::{Progress, Watched};
pub use request::{Judge, SendError, Sender, Sending, Source};
pub use response::{Framing, Outgoing, ReceiveError, Receiver, RelayError, TrailerFields};
