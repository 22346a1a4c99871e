//! From arguments to a plan: every number inside its bounds, every target on this machine.

use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::bench::arguments::Arguments;
use crate::bench::body::Shape;
use crate::config::{BaseUrl, BaseUrlError, parse_duration, parse_size, show_duration, show_size};
use crate::dialect::Dialect;

/// Bytes of a request body. Below 2 KiB it has no tools; the largest is what providers take.
const BODY_BYTES: Bound = Bound::new("--body-bytes", 512, 20 << 20);
/// Connections of a run; with its other descriptors below the usual limit of 1024.
const CONNECTIONS: Bound = Bound::new("--connections", 1, 1000);
const THREADS: Bound = Bound::new("--threads", 1, 16);
/// Requests of one target in one round.
const REQUESTS: Bound = Bound::new("--requests", 1, 10_000_000);
const ROUNDS: Bound = Bound::new("--rounds", 1, 99);
/// Milliseconds of one target in one round.
const DURATION_MS: Bound = Bound::new("--duration", 1, 600_000);
const TIMEOUT_MS: Bound = Bound::new("--timeout", 1, 600_000);
/// The mock's own bounds, so that a mistake is said before a request is sent.
const EVENTS: Bound = Bound::new("--events", 1, 1_000_000);
const EVENT_BYTES: Bound = Bound::new("--event-bytes", 1, 16 << 20);
const PAUSE_MS: Bound = Bound::new("--pause", 0, 600_000);
/// Targets of one run.
const TARGETS_MAX: usize = 8;
/// Processes of one target.
const PIDS_MAX: usize = 64;
/// Fields that are added to a request, and bytes of each, of the script and of the model.
const HEADERS_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 32;
/// Duration of a round if nothing bounds it.
const DURATION_DEFAULT: Duration = Duration::from_secs(2);
/// Rounds of a paired run: odd, so that the median is a round that happened.
const ROUNDS_PAIRED: u64 = 9;

/// The smallest and the largest value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    option: &'static str,
    min: u64,
    max: u64,
}

impl Bound {
    const fn new(option: &'static str, min: u64, max: u64) -> Self {
        Self { option, min, max }
    }

    fn check(self, got: u64) -> Result<u64, PlanError> {
        self.within(got, &got.to_string(), |bound| bound.to_string())
    }

    fn count(self, got: u64) -> Result<usize, PlanError> {
        self.check(got).map(whole)
    }

    /// The bounds are of milliseconds.
    fn time(self, text: &str) -> Result<Duration, PlanError> {
        let time = parse_duration(text).ok_or(PlanError::Time(self.option))?;
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let show = |millis| show_duration(Duration::from_millis(millis));
        self.within(millis, text, show).map(|_| time)
    }

    /// The bounds are of bytes.
    fn size(self, text: &str) -> Result<usize, PlanError> {
        let bytes = parse_size(text).ok_or(PlanError::Size(self.option))?;
        self.within(bytes, text, show_size).map(whole)
    }

    /// Refuses what is beyond the bounds, which are shown in the unit of `written`.
    fn within(
        self,
        got: u64,
        written: &str,
        show: impl Fn(u64) -> String,
    ) -> Result<u64, PlanError> {
        if (self.min..=self.max).contains(&got) {
            return Ok(got);
        }
        let (min, max) = (show(self.min), show(self.max));
        Err(PlanError::OutOfBounds {
            option: self.option,
            bounds: format!("{min} to {max}").into(),
            written: written.into(),
        })
    }
}

/// A number within bounds, all of which fit.
fn whole(got: u64) -> usize {
    usize::try_from(got).unwrap_or(usize::MAX)
}

/// Why arguments are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Neither a URL nor `--target`.
    NoTarget,
    /// A URL, or `--pid`, beside `--target`.
    TwoForms,
    /// More targets than a run may have.
    TooManyTargets,
    /// Not `NAME=URL[,pid=N]`, or the same name twice.
    Target,
    /// The URL of a target.
    Url(BaseUrlError),
    /// `https` is not spoken.
    Encrypted,
    /// The host has no address.
    Unresolved,
    /// Not this machine, and `--allow-remote` was not given.
    Remote,
    /// More processes than a target may have.
    TooManyProcesses,
    /// Not a time such as `500ms`; the option.
    Time(&'static str),
    /// Not a size such as `64KiB`; the option.
    Size(&'static str),
    /// A number outside the bounds of its option.
    OutOfBounds {
        /// The option.
        option: &'static str,
        /// The smallest and the largest value.
        bounds: Box<str>,
        /// What was given.
        written: Box<str>,
    },
    /// More connections must be served by a thread than there are.
    IdleThreads,
    /// Not a field `Name: value` of printable ASCII, too long, or too many.
    Header,
    /// A script or model that is too long or not printable ASCII; the option.
    Text(&'static str),
    /// The model's name leaves no room in the body.
    BodyTooSmall,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget => f.write_str("expected a URL or --target NAME=URL"),
            Self::TwoForms => f.write_str("--target: its processes are given as NAME=URL,pid=N, and no URL beside it"),
            Self::TooManyTargets => write!(f, "--target: at most {TARGETS_MAX} targets"),
            Self::Target => write!(f, "--target: expected NAME=URL[,pid=N], each NAME once, of at most {NAME_BYTES_MAX} letters, digits, `-`, `_`, `.`"),
            Self::Url(error) => write!(f, "target: {error}"),
            Self::Encrypted => f.write_str("target: expected http://, TLS is not spoken by the load generator"),
            Self::Unresolved => f.write_str("target: the host has no address"),
            Self::Remote => f.write_str("target: not an address of this machine; load on others needs --allow-remote and their consent"),
            Self::TooManyProcesses => write!(f, "pid: at most {PIDS_MAX} processes of a target"),
            Self::Time(option) => write!(f, "{option}: expected a time such as 500ms or 2s"),
            Self::Size(option) => write!(f, "{option}: expected a size such as 2048, 64KiB or 1MiB"),
            Self::OutOfBounds { option, bounds, written } => {
                write!(f, "{option}: expected {bounds}, got {written}")
            }
            Self::IdleThreads => f.write_str("--threads: expected at most as many as connections"),
            Self::Header => write!(f, "--header: expected at most {HEADERS_MAX} fields `Name: value` of at most {TEXT_BYTES_MAX} bytes of printable ASCII"),
            Self::Text(option) => write!(f, "{option}: expected at most {TEXT_BYTES_MAX} bytes of printable ASCII"),
            Self::BodyTooSmall => f.write_str("--body-bytes: too small for the name of the model"),
        }
    }
}

impl std::error::Error for PlanError {}

/// A run that may start.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) targets: Vec<Target>,
    pub(super) dialect: Dialect,
    pub(super) stream: bool,
    pub(super) body_bytes: usize,
    pub(super) model: String,
    /// Fields of every request, each with its line end; the script of the mock is one of them.
    pub(super) fields: Vec<u8>,
    pub(super) connections: usize,
    pub(super) threads: usize,
    /// Requests of one target in one round.
    pub(super) requests: u64,
    /// Time in which a round starts requests.
    pub(super) duration: Duration,
    pub(super) rounds: usize,
    /// Longest time without any progress of a request.
    pub(super) timeout: Duration,
    pub(super) json: bool,
}

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) url: BaseUrl,
    pub(super) addr: SocketAddr,
    /// Processes whose CPU and memory belong to it.
    pub(super) pids: Vec<u32>,
}

impl Plan {
    /// What the request body looks like.
    pub(super) fn shape(&self) -> Shape<'_> {
        Shape {
            dialect: self.dialect,
            model: &self.model,
            stream: self.stream,
            bytes: self.body_bytes,
        }
    }
}

impl Arguments {
    /// Checks everything that can be known before a byte is sent.
    pub(super) fn plan(&self) -> Result<Plan, PlanError> {
        let targets = self.targets()?;
        let body_bytes = BODY_BYTES.size(&self.body_bytes)?;
        let connections = CONNECTIONS.count(self.connections)?;
        let threads = THREADS.count(self.threads)?;
        if threads > connections {
            return Err(PlanError::IdleThreads);
        }
        let duration = match (&self.duration, self.requests) {
            (Some(text), _) => DURATION_MS.time(text)?,
            (None, Some(_)) => Duration::from_millis(DURATION_MS.max),
            (None, None) => DURATION_DEFAULT,
        };
        let rounds = if targets.len() > 1 { ROUNDS_PAIRED } else { 1 };
        let plan = Plan {
            dialect: self.dialect,
            stream: self.stream,
            body_bytes,
            model: printable(&self.model, "--model")?.to_owned(),
            fields: self.fields()?,
            connections,
            threads,
            requests: REQUESTS.check(self.requests.unwrap_or(REQUESTS.max))?,
            duration,
            rounds: ROUNDS.count(self.rounds.unwrap_or(rounds))?,
            timeout: TIMEOUT_MS.time(&self.timeout)?,
            json: self.json,
            targets,
        };
        if plan.shape().fits() {
            Ok(plan)
        } else {
            Err(PlanError::BodyTooSmall)
        }
    }

    fn targets(&self) -> Result<Vec<Target>, PlanError> {
        let targets = match (&self.url, self.target.is_empty()) {
            (Some(url), true) => vec![self.target("target", url, self.pid.clone())?],
            (None, false) if self.pid.is_empty() => self
                .target
                .iter()
                .map(|text| self.named(text))
                .collect::<Result<Vec<_>, _>>()?,
            (None, true) => return Err(PlanError::NoTarget),
            (Some(_) | None, false) => return Err(PlanError::TwoForms),
        };
        if targets.len() > TARGETS_MAX {
            return Err(PlanError::TooManyTargets);
        }
        let repeated = |(at, target): (usize, &Target)| {
            targets.iter().take(at).any(|one| one.name == target.name)
        };
        if targets.iter().enumerate().any(repeated) {
            return Err(PlanError::Target);
        }
        Ok(targets)
    }

    /// `NAME=URL[,pid=N]...`
    fn named(&self, text: &str) -> Result<Target, PlanError> {
        let (name, rest) = text.split_once('=').ok_or(PlanError::Target)?;
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(PlanError::Target);
        }
        let mut parts = rest.split(',');
        let url = parts.next().unwrap_or_default();
        let pids = parts
            .map(|part| part.strip_prefix("pid=")?.parse().ok())
            .collect::<Option<Vec<_>>>()
            .ok_or(PlanError::Target)?;
        self.target(name, url, pids)
    }

    fn target(&self, name: &str, url: &str, pids: Vec<u32>) -> Result<Target, PlanError> {
        let url = BaseUrl::parse(url).map_err(PlanError::Url)?;
        if url.tls {
            return Err(PlanError::Encrypted);
        }
        if pids.len() > PIDS_MAX {
            return Err(PlanError::TooManyProcesses);
        }
        let mut addrs = (url.host.as_str(), url.port)
            .to_socket_addrs()
            .map_err(|_| PlanError::Unresolved)?;
        let addr = addrs.next().ok_or(PlanError::Unresolved)?;
        // What is connected to counts, not how it is spelt.
        if !self.allow_remote && !addr.ip().to_canonical().is_loopback() {
            return Err(PlanError::Remote);
        }
        Ok(Target {
            name: name.to_owned(),
            url,
            addr,
            pids,
        })
    }

    /// The fields that the arguments add to each request.
    fn fields(&self) -> Result<Vec<u8>, PlanError> {
        if self.header.len() > HEADERS_MAX {
            return Err(PlanError::Header);
        }
        let mut fields = Vec::new();
        for field in &self.header {
            let is_field = field.split_once(':').is_some_and(|(name, _)| {
                let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
                !name.is_empty() && name.bytes().all(is_token)
            });
            let field = printable(field, "--header").map_err(|_| PlanError::Header)?;
            if !is_field {
                return Err(PlanError::Header);
            }
            line(&mut fields, format_args!("{field}"));
        }
        let script = self.mock_script()?;
        if !script.is_empty() {
            line(&mut fields, format_args!("x-mock: {}", script.join("; ")));
        }
        Ok(fields)
    }

    fn mock_script(&self) -> Result<Vec<String>, PlanError> {
        let mut script = Vec::new();
        if let Some(events) = self.events {
            script.push(format!("events={}", EVENTS.check(events)?));
        }
        if let Some(bytes) = self.event_bytes {
            script.push(format!("event_bytes={}", EVENT_BYTES.check(bytes)?));
        }
        if let Some(pause) = &self.pause {
            script.push(format!("pause={}ms", PAUSE_MS.time(pause)?.as_millis()));
        }
        if let Some(more) = &self.script {
            script.push(printable(more, "--script")?.to_owned());
        }
        Ok(script)
    }
}

fn line(fields: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _never = write!(fields, "{text}\r\n");
}

fn printable<'a>(text: &'a str, option: &'static str) -> Result<&'a str, PlanError> {
    let is_printable = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if is_printable && (1..=TEXT_BYTES_MAX).contains(&text.len()) {
        Ok(text)
    } else {
        Err(PlanError::Text(option))
    }
}

#[cfg(test)]
mod tests;
