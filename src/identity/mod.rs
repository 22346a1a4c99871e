//! Who is talking: labels that group requests, made of what the requests say of themselves.
//!
//! A label never authorises, bills or chooses a provider.

pub mod session;
