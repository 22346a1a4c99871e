//! The command line of `lanegate bench`.

use clap::Args;

use crate::dialect::Dialect;

/// What a run is to do; [`crate::bench::run`] checks it.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The one target, http://HOST:PORT[/PREFIX]; or name several with --target
    pub(super) url: Option<String>,
    /// A target NAME=URL[,pid=N...]; given several times, they take turns in every round
    #[arg(long, value_name = "NAME=URL[,pid=N]")]
    pub(super) target: Vec<String>,
    /// A process of the target URL whose CPU and memory are measured; may be repeated
    #[arg(long, value_name = "N")]
    pub(super) pid: Vec<u32>,
    /// The API that is spoken
    #[arg(long, default_value = "chat", value_parser = dialect, value_name = "chat|messages|responses")]
    pub(super) dialect: Dialect,
    /// Bytes of the request body, 512 to 20MiB
    #[arg(long, default_value = "2KiB", value_name = "SIZE")]
    pub(super) body_bytes: String,
    /// Ask for an event stream
    #[arg(long)]
    pub(super) stream: bool,
    /// Model of the requests
    #[arg(long, default_value = "bench-model")]
    pub(super) model: String,
    /// Text events of an answer of the mock
    #[arg(long, value_name = "N")]
    pub(super) events: Option<u64>,
    /// Text bytes of each event
    #[arg(long, value_name = "N")]
    pub(super) event_bytes: Option<u64>,
    /// Wait of the mock between two events
    #[arg(long, value_name = "TIME")]
    pub(super) pause: Option<String>,
    /// More of the script for the mock, such as `framing=length`
    #[arg(long, value_name = "SCRIPT")]
    pub(super) script: Option<String>,
    /// One more field of each request, `Name: value`; may be repeated
    #[arg(long, value_name = "FIELD")]
    pub(super) header: Vec<String>,
    /// Connections, each with one request at a time
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub(super) connections: u64,
    /// Threads that serve the connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) threads: u64,
    /// Requests of one target in one round
    #[arg(long, value_name = "N")]
    pub(super) requests: Option<u64>,
    /// Time in which a round starts requests; 2s if --requests is not given either
    #[arg(long, value_name = "TIME")]
    pub(super) duration: Option<String>,
    /// Rounds; 1 for one target, 9 for several
    #[arg(long, value_name = "N")]
    pub(super) rounds: Option<u64>,
    /// Longest wait for a target to take or send anything
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub(super) timeout: String,
    /// Allow targets that are not on this machine
    #[arg(long)]
    pub(super) allow_remote: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn dialect(name: &str) -> Result<Dialect, &'static str> {
    Dialect::from_name(name).ok_or("expected chat, messages or responses")
}
