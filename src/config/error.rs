//! What is wrong with a configuration: every failure found, each with line and key path.

use std::fmt;

/// Failures listed in full; the rest is counted. Chosen: a terminal's height.
const LISTED_MAX: usize = 50;

/// One thing wrong with a configuration. Holds no secret and no value longer than a short word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Line in the file, counted from 1; `None` where no line can be named.
    pub line: Option<u64>,
    /// Key path such as `providers[1].base_url`; empty for the file as a whole.
    pub path: String,
    /// What was expected and what came.
    pub what: String,
}

impl Failure {
    pub(super) const fn of_file(what: String) -> Self {
        Self {
            line: None,
            path: String::new(),
            what,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("config: ")?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

/// A configuration that was refused; never without a failure. Displayed one failure a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    failures: Vec<Failure>,
}

impl ConfigError {
    /// In the order of the file. `None` when nothing failed.
    pub(super) fn from_failures(mut failures: Vec<Failure>) -> Option<Self> {
        failures.sort_by_key(|failure| failure.line);
        (!failures.is_empty()).then_some(Self { failures })
    }

    /// What was found, by line; those without a line come first.
    #[must_use]
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }
}

impl From<Failure> for ConfigError {
    fn from(failure: Failure) -> Self {
        Self {
            failures: vec![failure],
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, failure) in self.failures.iter().take(LISTED_MAX).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{failure}")?;
        }
        match self.failures.len().saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            more => write!(f, "\nconfig: and {more} more"),
        }
    }
}

impl std::error::Error for ConfigError {}
