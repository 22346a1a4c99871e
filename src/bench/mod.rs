//! The load generator: a closed loop of agent-shaped requests, each answer checked, each round's CPU
//! taken from the processes under test.
//!
//! It decides nothing about who is faster: it alternates its targets in rounds and prints medians,
//! ranges and ratios, so that a reader sees the noise beside the figure. It refuses what would make a
//! figure worthless or do harm: a target that is not this machine, unless asked for; an answer that
//! differs in one byte from the first one; a run without an end.
//!
//! A closed loop sends the next request of a connection when the last one was answered, so a slow
//! target is asked less often: latencies of a saturated target say how long its queue is, and compare
//! only between targets of one run.
//!
//! It shares no code with the data path of the gateway; its HTTP reader is its own. Once connected it
//! allocates nothing for a request: prepared bytes go out, and what comes in is compared in place. It
//! costs a read, a write and a share of an `epoll_wait` for a small request, and states its own CPU.

mod answer;
mod arguments;
mod body;
mod connection;
mod drive;
mod figures;
mod plan;
mod process;
mod reader;
mod report;
mod request;
mod round;
mod tally;

use std::fmt;
use std::io::{self, IsTerminal, Write};

use crate::bench::answer::Answer;
use crate::bench::plan::Plan;
use crate::bench::report::Results;
use crate::bench::request::Request;

pub use crate::bench::answer::ProbeError;
pub use crate::bench::arguments::Arguments;
pub use crate::bench::plan::PlanError;
pub use crate::bench::process::ProcessError;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every answer was right.
    Right,
    /// Some request was not answered, or wrongly; the report has the counts.
    Wrong,
}

/// Why there is no report.
#[derive(Debug)]
pub enum BenchError {
    /// The arguments ask for something that is refused; nothing was sent.
    Plan(PlanError),
    /// The first request to a target was not answered as all must be.
    Probe {
        /// Name of the target.
        target: String,
        /// What was wrong.
        error: ProbeError,
    },
    /// A process under test could not be read.
    Process(ProcessError),
    /// The system gave no descriptor, no thread, or took no report.
    Io(io::Error),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Probe { target, error } => write!(f, "first request to {target}: {error}"),
            Self::Process(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<io::Error> for BenchError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ProcessError> for BenchError {
    fn from(error: ProcessError) -> Self {
        Self::Process(error)
    }
}

/// Runs all rounds and writes the report to `out`; says on standard error how far it is, if that is a
/// terminal.
///
/// # Errors
/// See [`BenchError`].
pub fn run(arguments: &Arguments, out: &mut impl Write) -> Result<Outcome, BenchError> {
    let plan = arguments.plan().map_err(BenchError::Plan)?;
    let body = body::body(&plan.shape());
    let requests: Vec<_> = plan
        .targets
        .iter()
        .map(|target| Request::new(&plan, target, &body))
        .collect();
    let answer = probe(&plan, &requests)?;
    let mut results = Results::new(&plan, &answer);
    let mut progress = Progress::new();
    for number in 1..=plan.rounds {
        for (index, (target, request)) in plan.targets.iter().zip(&requests).enumerate() {
            progress.show(format_args!(
                "round {number} of {}: {}",
                plan.rounds, target.name
            ));
            let load = round::Load {
                plan: &plan,
                target,
                request,
                answer: &answer,
            };
            results.add(index, load.round()?);
        }
    }
    progress.clear();
    if plan.json {
        results.write_json(out)?;
    } else {
        results.write_table(out)?;
    }
    Ok(if results.errors() == 0 {
        Outcome::Right
    } else {
        Outcome::Wrong
    })
}

/// The answer of the first target, which all the others must give too.
fn probe(plan: &Plan, requests: &[Request<'_>]) -> Result<Answer, BenchError> {
    let mut first: Option<Answer> = None;
    for (target, request) in plan.targets.iter().zip(requests) {
        let failed = |error| BenchError::Probe {
            target: target.name.clone(),
            error,
        };
        let answer = answer::probe(plan, target, request).map_err(failed)?;
        match &first {
            Some(first) => first.assert_same(&answer).map_err(failed)?,
            None => first = Some(answer),
        }
    }
    // A plan has at least one target.
    first.ok_or(BenchError::Plan(PlanError::NoTarget))
}

/// One line on a terminal that is written over.
struct Progress {
    shown: bool,
}

impl Progress {
    fn new() -> Self {
        Self {
            shown: io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, text: fmt::Arguments<'_>) {
        self.write(format_args!("\r\x1b[K{text}"));
    }

    fn clear(&mut self) {
        self.write(format_args!("\r\x1b[K"));
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        if self.shown {
            let mut err = io::stderr().lock();
            // A terminal that went away needs no progress.
            self.shown = err.write_fmt(text).and_then(|()| err.flush()).is_ok();
        }
    }
}
