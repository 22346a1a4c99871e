//! The report: a table to read, or JSON with the figure of every round.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::bench::answer::Answer;
use crate::bench::figures::{BUSY_SHARE_MAX, METRICS, Metric, Spread};
use crate::bench::plan::Plan;
use crate::bench::process::CpuSource;
use crate::bench::round::Round;
use crate::bench::tally::Faults;

/// Characters of a column of the table, enough for `9.99 (9.99-9.99)` of figures below a million.
const COLUMN: usize = 32;

/// All rounds so far.
#[derive(Debug)]
pub(super) struct Results<'a> {
    plan: &'a Plan,
    answer: &'a Answer,
    /// Rounds of each target, in the order of the plan.
    rounds: Vec<Vec<Round>>,
}

impl<'a> Results<'a> {
    pub(super) fn new(plan: &'a Plan, answer: &'a Answer) -> Self {
        Self {
            plan,
            answer,
            rounds: plan.targets.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// Adds the next round of the target with this index.
    pub(super) fn add(&mut self, target: usize, round: Round) {
        if let Some(rounds) = self.rounds.get_mut(target) {
            rounds.push(round);
        }
    }

    /// Requests of all targets without a right answer.
    pub(super) fn errors(&self) -> u64 {
        self.rounds
            .iter()
            .map(|rounds| faults(rounds).total())
            .sum()
    }

    /// One JSON object and a line end.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let plan = self.plan;
        let targets = plan.targets.iter().zip(&self.rounds);
        let targets: Vec<_> = targets
            .map(|(target, rounds)| {
                let mut errors: Map<_, _> = faults(rounds)
                    .iter()
                    .map(|(fault, count)| (fault.as_str().to_owned(), json!(count)))
                    .collect();
                errors.insert("total".to_owned(), json!(faults(rounds).total()));
                json!({
                    "name": target.name,
                    "url": target.url.to_string(),
                    "pids": target.pids,
                    "cpu_source": cpu_source(rounds).map(CpuSource::as_str),
                    "requests": requests(rounds),
                    "errors": errors,
                    "metrics": self.metrics(rounds),
                })
            })
            .collect();
        let report = json!({
            "plan": {
                "dialect": plan.dialect.as_str(),
                "stream": plan.stream,
                "body_bytes": plan.body_bytes,
                "connections": plan.connections,
                "threads": plan.threads,
                "rounds": plan.rounds,
                "requests_max": plan.requests,
                "duration_s": plan.duration.as_secs_f64(),
            },
            "answer": {"body_bytes": self.answer.body.len(), "events": self.answer.ends.len()},
            "targets": targets,
        });
        writeln!(out, "{report}")
    }

    fn metrics(&self, rounds: &[Round]) -> Map<String, Value> {
        let mut metrics = Map::new();
        for metric in &METRICS {
            let (values, ratios) = self.compared(metric, rounds);
            let Some(spread) = Spread::of(values.iter().copied().flatten()) else {
                continue;
            };
            let value = json!({
                "median": spread.median,
                "min": spread.min,
                "max": spread.max,
                "ratio": ratios.map(|r| json!({"median": r.median, "min": r.min, "max": r.max})),
                "rounds": values,
            });
            metrics.insert(metric.name.to_owned(), value);
        }
        metrics
    }

    /// The figure of each round, and its ratios to the first target.
    fn compared(&self, metric: &Metric, rounds: &[Round]) -> (Vec<Option<f64>>, Option<Spread>) {
        let values = |rounds: &[Round]| rounds.iter().map(metric.of).collect::<Vec<_>>();
        let first = self.rounds.first().map(|rounds| values(rounds));
        let values = values(rounds);
        let ratios = Spread::of_ratios(&values, &first.unwrap_or_default());
        (values, ratios)
    }

    /// A line for each figure, a column for each target: median and range, then the ratio to the first
    /// target and its range.
    pub(super) fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let plan = self.plan;
        let kind = if plan.stream { "stream" } else { "JSON" };
        writeln!(
            out,
            "{}, {} bytes up, {kind} of {} bytes and {} events down, {} connections, {} threads, {} rounds",
            plan.dialect,
            plan.body_bytes,
            self.answer.body.len(),
            self.answer.ends.len(),
            plan.connections,
            plan.threads,
            plan.rounds
        )?;
        self.row(out, "", |index, _| {
            self.plan
                .targets
                .get(index)
                .map(|target| target.name.clone())
        })?;
        self.row(out, "requests", |_, rounds| {
            Some(requests(rounds).to_string())
        })?;
        self.row(out, "errors", |_, rounds| {
            Some(errors_text(&faults(rounds)))
        })?;
        self.row(out, "cpu_source", |_, rounds| {
            cpu_source(rounds).map(|source| source.as_str().to_owned())
        })?;
        for metric in &METRICS {
            self.row(out, metric.name, |index, rounds| {
                let (values, ratios) = self.compared(metric, rounds);
                let text = spread_text(Spread::of(values.into_iter().flatten())?);
                Some(match ratios.filter(|_| index > 0) {
                    Some(ratio) => format!("{text}  x{}", spread_text(ratio)),
                    None => text,
                })
            })?;
        }
        if self.is_busy() {
            let percent = BUSY_SHARE_MAX * 100.0;
            writeln!(
                out,
                "the load generator was busy for more than {percent} % of a round: it may be the limit"
            )?;
        }
        Ok(())
    }

    /// A line of the table; none if no target has the figure.
    fn row(
        &self,
        out: &mut impl Write,
        name: &str,
        cell: impl Fn(usize, &[Round]) -> Option<String>,
    ) -> io::Result<()> {
        let rounds = self.rounds.iter().enumerate();
        let cells: Vec<_> = rounds.map(|(index, rounds)| cell(index, rounds)).collect();
        if cells.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut line = format!("{name:<24}");
        for cell in cells {
            let cell = cell.unwrap_or_else(|| "-".to_owned());
            line.push_str(&format!("  {cell:<COLUMN$}"));
        }
        writeln!(out, "{}", line.trim_end())
    }

    fn is_busy(&self) -> bool {
        let busy = METRICS
            .iter()
            .find(|metric| metric.name == "own_busy_share");
        let mut rounds = self.rounds.iter().flatten();
        rounds.any(|round| {
            let share = busy.and_then(|metric| (metric.of)(round));
            share.is_some_and(|share| share > BUSY_SHARE_MAX)
        })
    }
}

fn requests(rounds: &[Round]) -> u64 {
    rounds.iter().map(|round| round.tally.requests).sum()
}

fn faults(rounds: &[Round]) -> Faults {
    let mut all = Faults::default();
    for round in rounds {
        all.merge(&round.tally.faults);
    }
    all
}

/// The coarser of the sources that the rounds had.
fn cpu_source(rounds: &[Round]) -> Option<CpuSource> {
    let mut sources = rounds.iter().filter_map(|round| round.cpu.map(|cpu| cpu.1));
    let first = sources.next()?;
    Some(
        sources
            .find(|source| *source == CpuSource::Ticks)
            .unwrap_or(first),
    )
}

fn errors_text(faults: &Faults) -> String {
    let kinds: Vec<_> = faults
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(fault, count)| format!("{} {count}", fault.as_str()))
        .collect();
    if kinds.is_empty() {
        "0".to_owned()
    } else {
        kinds.join(", ")
    }
}

fn spread_text(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    // Four digits that mean something, whatever the unit.
    let decimals = match median {
        1000.0.. => 0,
        100.0..1000.0 => 1,
        10.0..100.0 => 2,
        _ => 3,
    };
    format!("{median:.decimals$} ({min:.decimals$}-{max:.decimals$})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tally::Fault;

    #[test]
    fn spreads_are_shown_with_four_digits() {
        for (median, min, max, text) in [
            (1.0, 0.5, 3.0, "1.000 (0.500-3.000)"),
            (33.456, 30.0, 40.0, "33.46 (30.00-40.00)"),
            (123_456.7, 99.0, 200_000.0, "123457 (99-200000)"),
        ] {
            assert_eq!(spread_text(Spread { median, min, max }), text);
        }
    }

    #[test]
    fn errors_are_shown_by_kind() {
        let mut faults = Faults::default();
        assert_eq!(errors_text(&faults), "0");
        for fault in [Fault::Status, Fault::Closed, Fault::Status] {
            faults.add(fault);
        }
        assert_eq!(errors_text(&faults), "closed 1, status 2");
    }
}
