//! The `lanegate` binary from outside: real sockets, scripted origins, both drivers.
//!
//! Every scenario is a function of a driver and runs on each. The reading side is in `support`; it
//! shares no code with the gateway.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests watch a process from outside: they wait, and bound the wait"
)]
#![expect(
    clippy::disallowed_types,
    reason = "scripted origins are plain threads that share one record"
)]

mod admin;
mod alias;
mod bounds;
mod cancel;
mod captures;
mod clients;
mod clocks;
mod coding;
mod credentials;
mod cores;
mod descriptors;
mod drain;
mod early;
mod facts;
mod hold;
mod idle;
mod inject;
mod ledger;
mod ledger_postgres;
mod log;
mod mocked;
mod probe;
mod process;
mod relay;
mod reload;
mod responses;
mod retry;
mod routing;
mod routing_rules;
mod sessions;
mod sessions_shared;
mod support;
mod switches;
mod tls;
mod torture;
mod usage;
mod verdict;
