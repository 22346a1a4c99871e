//! lanegate: a streaming gateway between coding agents and LLM providers.
//!
//! The life of a request, and the modules in the order in which it meets them:
//! a core accepts a connection (`server`), an exchange reads the head and decides (`exchange`, with
//! `http1`, `auth`, `route`), an upstream connection is taken or opened (`upstream`, `tls`), and the wire
//! lane moves the bytes both ways as they come (`lane`). What is answered here is in `local`; how a
//! failure looks to the caller is in `failure`. Every bound has a name in `limits`.

pub mod server;
pub mod admin;
pub mod exchange;
pub mod http1;
pub mod json;
pub mod coding;
pub mod sse;
pub mod peek;
pub mod dialect;
pub mod auth;
pub mod identity;
pub mod classify;
pub mod route;
pub mod switch;
pub mod tls;
pub mod upstream;
pub mod usage;
pub mod lane;
pub mod observe;
pub mod ledger;
pub mod decider;
pub mod failure;
pub mod local;
pub mod config;
pub mod mock;
pub mod bench;
pub mod probe;
pub mod runtime;
pub mod buf;
pub mod clock;
pub mod meter;
pub mod limits;
