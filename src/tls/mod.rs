//! Encryption of both legs: certificates in, and a stream with the interface of a plain one.
//!
//! Decides which certificates are believed (the public roots, and those of `ca_file`, always, with no
//! way to switch it off) and what an end of the stream means: only `close_notify` is an end that the
//! peer meant, everything else is a cut (RFC 8446 §6.1). Speaks HTTP/1.1 and says so (ALPN); takes
//! and sends no early data, which could be replayed.
//!
//! What it costs: each byte is copied twice on its way and can never be spliced. A connection holds up
//! to one record of either kind that arrived, and [`TLS_SEND_BYTES`](crate::limits::TLS_SEND_BYTES)
//! that the socket did not take; an idle one holds about 4 KiB.

mod client;
mod pem;
mod server;
mod session;
mod stream;

pub use client::{Authorities, Client, NotAServerName};
pub use pem::PemError;
pub use server::Acceptor;
pub use session::{HandshakeError, TlsStream};
pub use stream::Stream;

/// The one protocol that is spoken inside (RFC 7301 §6).
const ALPN: &[u8] = b"http/1.1";
