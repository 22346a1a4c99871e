//! The access log: one JSON object a line.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::classify::{AgentEvidence, Evidence, SessionView};
use crate::identity::Inline;
use crate::identity::session::Source;
use crate::observe::Record;
use crate::peek::{Fact, Seen, StreamFlag};
use crate::switch::Switch;
use crate::usage::{Injection, StopReason};

/// A record as it is written. Keys are only ever added; times are milliseconds since the head of the
/// request was complete.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    request_id: String,
    client: Option<&'a str>,
    family: Option<String>,
    dialect: Option<&'static str>,
    route: Option<&'static str>,
    provider: Option<&'a str>,
    auth: Option<&'static str>,
    session: &'static str,
    switch: Option<&'static str>,
    lane: &'static str,
    decline: Option<&'static str>,
    status: Option<u16>,
    error: Option<&'static str>,
    request_bytes: u64,
    response_bytes: u64,
    attempts: u32,
    gathered_ms: Option<f64>,
    connected_ms: Option<f64>,
    first_byte_ms: Option<f64>,
    duration_ms: f64,
    end_reason: &'static str,
    usage: Option<&'static str>,
    stop_reason: Option<&'static str>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    injection: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    classified: Option<Classified>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_family: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_evidence: Option<&'static str>,
    /// These only for who asks: the words of a client are not in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Body>,
}

/// What is known of the session: the name of the rule, never what it matched or which session it is.
#[derive(Debug, Serialize)]
struct Classified {
    session_kind: &'static str,
    session_source: Option<&'static str>,
    session_evidence: Option<&'static str>,
    session_revision: u64,
}

impl Classified {
    fn of(view: SessionView) -> Self {
        let found = view.classification();
        let evidence = found.evidence();
        Self {
            session_kind: found.kind(),
            session_source: evidence.map(|it| it.source().as_str()),
            session_evidence: evidence.map(Evidence::as_str),
            session_revision: found.revision(),
        }
    }
}

/// What was known of the body: no value of it, save whether it asked for a stream.
#[derive(Debug, Serialize)]
struct Body {
    scanned_bytes: u64,
    complete: bool,
    stream: &'static str,
    facts: BTreeMap<&'static str, &'static str>,
    tools: u32,
    repeated: Vec<&'static str>,
}

impl Body {
    fn of(seen: Seen) -> Self {
        Self {
            scanned_bytes: seen.bytes,
            complete: seen.closed,
            stream: match seen.stream {
                Fact::Found(StreamFlag::True) => "true",
                Fact::Found(StreamFlag::False) => "false",
                Fact::Found(StreamFlag::Other) | Fact::BeyondBound => "other",
                Fact::Absent => "absent",
                Fact::NotYet => "not_yet",
            },
            facts: seen.facts().collect(),
            tools: seen.tools,
            repeated: seen.repeated.iter().map(|key| key.as_str()).collect(),
        }
    }
}

/// Appends the line of `record`, which ended at `time` since the Unix epoch.
pub(super) fn write(record: &Record, time: Duration, out: &mut Vec<u8>) {
    append(line(record, time), out);
}

/// Appends the same with the models and with what was known of the body.
pub(super) fn explain(record: &Record, time: Duration, out: &mut Vec<u8>) {
    let to = record.to.as_ref();
    let explained = Line {
        model: record.model.as_ref().map(Inline::as_str),
        target_model: to.and_then(|to| to.model.as_deref()),
        body: record.seen.map(Body::of),
        ..line(record, time)
    };
    append(explained, out);
}

fn line(record: &Record, time: Duration) -> Line<'_> {
    let to = record.to.as_ref();
    let tokens = record.usage.unwrap_or_default().tokens;
    Line {
        time: timestamp(time),
        request_id: record.id.to_string(),
        client: record.client.as_deref(),
        family: record.family.map(|family| family.to_string()),
        dialect: record.dialect.map(|dialect| dialect.as_str()),
        route: to.map(|to| {
            if to.imposter {
                "imposter"
            } else {
                "passthrough"
            }
        }),
        provider: to.map(|to| &*to.provider),
        auth: to.map(|to| to.auth),
        session: record.session.map_or("none", Source::as_str),
        switch: record.switch.map(Switch::as_str),
        lane: record.way.as_str(),
        decline: record.way.decline().map(|decline| decline.as_str()),
        status: (record.status != 0).then_some(record.status),
        error: record.error,
        request_bytes: record.request_bytes,
        response_bytes: record.response_bytes,
        attempts: record.attempts,
        gathered_ms: record.gathered.map(milliseconds),
        connected_ms: record.connected.map(milliseconds),
        first_byte_ms: record.first_byte.map(milliseconds),
        duration_ms: milliseconds(record.duration),
        end_reason: record.end.as_str(),
        usage: record.usage.map(|usage| usage.state.as_str()),
        stop_reason: record
            .usage
            .and_then(|usage| usage.stop)
            .map(StopReason::as_str),
        input_tokens: tokens.input,
        output_tokens: tokens.output,
        cached_tokens: tokens.cached,
        cache_write_tokens: tokens.cache_write,
        injection: record.injection.map(Injection::as_str),
        classified: record.view.map(Classified::of),
        agent_family: record.agent.map(AgentEvidence::family),
        agent_evidence: record.agent.map(AgentEvidence::as_str),
        model: None,
        target_model: None,
        body: None,
    }
}

fn append(line: Line<'_>, out: &mut Vec<u8>) {
    let whole = out.len();
    // Only a map with keys that are no strings could fail, and there is none.
    if serde_json::to_writer(&mut *out, &line).is_err() {
        out.truncate(whole);
        return;
    }
    out.push(b'\n');
}

/// RFC 3339, UTC, milliseconds.
fn timestamp(time: Duration) -> String {
    let milliseconds = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(milliseconds)
        .map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

/// Milliseconds with three decimals.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Dialect, Family};
    use crate::observe::{Destination, EndReason, RequestIds, Way};
    use crate::usage::{State, Tokens, Usage};

    #[test]
    fn a_line_is_one_json_object_with_every_key() {
        let mut record = Record::begin(RequestIds::new(0xa).next());
        record.family = Some(Family::OpenAi);
        record.dialect = Some(Dialect::Chat);
        record.way = Way::Wire;
        record.to = Some(Destination {
            provider: "main \"one\"".into(),
            index: 0,
            imposter: true,
            auth: "Bearer",
            model: None,
        });
        record.status = 200;
        record.first_byte = Some(Duration::from_micros(1500));
        record.duration = Duration::from_micros(2_000_250);
        record.end = EndReason::Complete;
        record.usage = Some(Usage {
            state: State::Complete,
            tokens: Tokens {
                input: Some(12),
                output: Some(7),
                cached: Some(0),
                cache_write: None,
            },
            stop: Some(StopReason::ToolCalls),
        });
        let mut out = Vec::new();
        write(&record, Duration::from_millis(1_796_000_000_123), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "{\"time\":\"2026-11-30T00:53:20.123Z\",\"request_id\":\"req_000000000000000a00000000\",\
             \"client\":null,\"family\":\"openai\",\"dialect\":\"chat\",\"route\":\"imposter\",\
             \"provider\":\"main \\\"one\\\"\",\"auth\":\"Bearer\",\"session\":\"none\",\"switch\":null,\"lane\":\"wire\",\"decline\":null,\
             \"status\":200,\"error\":null,\"request_bytes\":0,\"response_bytes\":0,\"attempts\":0,\
             \"gathered_ms\":null,\"connected_ms\":null,\"first_byte_ms\":1.5,\
             \"duration_ms\":2000.25,\"end_reason\":\"complete\",\"usage\":\"complete\",\
             \"stop_reason\":\"tool_calls\",\"input_tokens\":12,\"output_tokens\":7,\"cached_tokens\":0,\
             \"cache_write_tokens\":null}\n"
        );
    }
}
