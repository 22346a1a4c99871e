//! What operators see: the record of every exchange, and where records go.
//!
//! A core hands each record to a bounded queue and forgets it; formatting and writing happen on
//! threads of their own. A full queue loses records, with a count, and never slows an exchange.

mod end;
mod line;
mod metrics;
mod record;
mod recorder;

pub use end::EndReason;
pub use metrics::{
    AgentCost, CONTENT_TYPE, CoreMetrics, LedgerScene, Metrics, ProviderMeter, ProviderMetrics,
    Refusal, Scene, SessionScene, Told,
};
pub use record::{Destination, Record, RequestId, RequestIds, Way};
pub use recorder::{AccessLog, Follower, Observer, Recorder};
