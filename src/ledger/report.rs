//! The body of `POST /outcome`.
//!
//! Unknown members are ignored, so that a newer client may report to an older gateway. A member that comes
//! twice has no single reading and is refused. A `conversation_id` that is no valid id is an error of its
//! own: taken for absent it would let the report fall through to the wrong conversation, silently.

use serde::Deserialize;
use serde_json::Value;

use crate::identity::{Key, is_label};
use crate::ledger::question::Target;
use crate::ledger::row::{Outcome, Verdict};
use crate::limits::{CONVERSATION_BYTES_MAX, OUTCOME_BODY_BYTES, OUTCOME_TEXT_BYTES_MAX};

/// Why a report is not recorded. Never shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// Not one JSON object, or one with a member twice.
    Json,
    /// `outcome` is missing or none of the four words.
    Outcome,
    /// This member is no text.
    NotText(&'static str),
    /// `conversation_id` is no valid id.
    Conversation,
    /// It is longer than it may be.
    TooLong,
    /// There is no such answer.
    NotFound,
    /// It could be about several conversations.
    Ambiguous,
    /// Another outcome was reported of the same exchange.
    Conflict,
    /// The ledger cannot be reached.
    Unavailable,
}

impl ReportError {
    /// The status of the answer (contract in docs/api.md).
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Json | Self::Outcome | Self::NotText(_) => 400,
            Self::NotFound => 404,
            Self::Ambiguous | Self::Conflict => 409,
            Self::TooLong => 413,
            Self::Conversation => 422,
            Self::Unavailable => 503,
        }
    }

    /// The gateway's own word for it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Json | Self::Outcome | Self::NotText(_) => "malformed_report",
            Self::Conversation => "invalid_conversation_id",
            Self::TooLong => "report_too_large",
            Self::NotFound => "unknown_answer",
            Self::Ambiguous => "ambiguous_report",
            Self::Conflict => "outcome_conflict",
            Self::Unavailable => "ledger_unavailable",
        }
    }

    /// For the client.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::Json => "the body must be one JSON object without repeated members".to_owned(),
            Self::Outcome => "`outcome` must be pass, fail, error or unknown".to_owned(),
            Self::NotText(member) => format!("`{member}` must be a text"),
            Self::Conversation => format!(
                "`conversation_id` must be 1 to {CONVERSATION_BYTES_MAX} characters of A-Z a-z 0-9 . _ : -"
            ),
            Self::TooLong => format!("a report has at most {OUTCOME_BODY_BYTES} bytes"),
            Self::NotFound => "no answer is known by what the report names".to_owned(),
            Self::Ambiguous => {
                "answers of more than one conversation could be meant; name the conversation"
                    .to_owned()
            }
            Self::Conflict => "another outcome was reported of this answer before".to_owned(),
            Self::Unavailable => "the ledger cannot be reached; report again later".to_owned(),
        }
    }
}

#[derive(Deserialize)]
struct Body {
    request_id: Option<Value>,
    conversation_id: Option<Value>,
    source: Option<Value>,
    outcome: Option<Value>,
    kind: Option<Value>,
    exit_code: Option<Value>,
    duration_ms: Option<Value>,
    at: Option<Value>,
}

/// Reads a report.
///
/// # Errors
/// See [`ReportError`].
pub fn parse(body: &[u8]) -> Result<(Target, Outcome), ReportError> {
    // The derived reader would also take an array, its items in the order of the members.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(ReportError::Json);
    }
    // Checked as a whole: the reader does not look into the texts of members that it passes over.
    let body = str::from_utf8(body).map_err(|_| ReportError::Json)?;
    let body: Body = serde_json::from_str(body).map_err(|_| ReportError::Json)?;
    let conversation = match &body.conversation_id {
        None => None,
        Some(Value::String(id)) => {
            Some(Key::client(id.as_bytes()).ok_or(ReportError::Conversation)?)
        }
        Some(_) => return Err(ReportError::Conversation),
    };
    let target = Target {
        request_id: text("request_id", body.request_id.as_ref())?,
        conversation,
        source: text("source", body.source.as_ref())?,
    };
    let verdict = body.outcome.as_ref().and_then(Value::as_str);
    let verdict = verdict.and_then(Verdict::from_word);
    let kind = body.kind.as_ref().and_then(Value::as_str);
    // What is said beside the outcome never makes a report fail, and is never free text.
    let kind = kind.filter(|kind| is_label(kind.as_bytes(), OUTCOME_TEXT_BYTES_MAX));
    let whole = |value: Option<&Value>| value.and_then(Value::as_i64);
    let outcome = Outcome {
        verdict: verdict.ok_or(ReportError::Outcome)?,
        kind: kind.map(Into::into),
        exit_code: whole(body.exit_code.as_ref()),
        duration_ms: whole(body.duration_ms.as_ref()),
        at: whole(body.at.as_ref()),
    };
    Ok((target, outcome))
}

/// A text that is there; one beyond the bound is cut so that it matches nothing.
fn text(member: &'static str, value: Option<&Value>) -> Result<Option<Box<str>>, ReportError> {
    let text = match value {
        None => return Ok(None),
        Some(Value::String(text)) => text,
        Some(_) => return Err(ReportError::NotText(member)),
    };
    let end = text.floor_char_boundary(OUTCOME_TEXT_BYTES_MAX + 4);
    Ok(Some(text.get(..end).unwrap_or_default().into()))
}

/// Reads any bytes, for the fuzzer: what is accepted says what it says.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    let Ok((target, outcome)) = parse(input) else {
        return;
    };
    // Half a surrogate pair, or a number beyond all range, in a member that is passed over: the second reader
    // keeps every member, and cannot keep these.
    let Ok(value) = serde_json::from_slice::<Value>(input) else {
        return;
    };
    let id = value.get("conversation_id").and_then(Value::as_str);
    let named = target.conversation.map(|key| key.as_str().to_owned());
    assert_eq!(named, id.map(|id| format!("c:{id}")));
    assert_eq!(
        value.get("outcome"),
        Some(&Value::from(outcome.verdict.as_str()))
    );
    let request = value.get("request_id").and_then(Value::as_str);
    assert_eq!(target.request_id.is_some(), request.is_some());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(members: &str) -> Result<(Target, Outcome), ReportError> {
        parse(format!("{{\"outcome\":\"pass\"{members}}}").as_bytes())
    }

    #[test]
    fn a33_a_conversation_id_that_is_none_is_an_error_of_its_own() {
        let beyond = "a".repeat(129);
        for value in [
            "\"a b\"",
            "\"\"",
            &format!("\"{beyond}\""),
            "\"a\\n\"",
            "5",
            "[]",
            "true",
        ] {
            let refused = report(&format!(",\"conversation_id\":{value}"));
            assert_eq!(refused, Err(ReportError::Conversation), "{value}");
        }
        assert_eq!(ReportError::Conversation.status(), 422);
        let longest = report(&format!(",\"conversation_id\":\"{}\"", "a".repeat(128)));
        assert!(longest.unwrap().0.conversation.is_some());
    }

    #[test]
    fn a34_null_is_absent() {
        let members = ",\"conversation_id\":null,\"request_id\":null,\"source\":null,\"kind\":null";
        let (target, outcome) = report(members).unwrap();
        assert_eq!(target, Target::default());
        assert_eq!(outcome.kind, None);
    }

    #[test]
    fn a35_unknown_members_are_ignored() {
        let members = ",\"x\":{\"y\":[1,2]},\"conversation_id\":\"a\",\"note\":\"text\"";
        let (target, _) = report(members).unwrap();
        assert_eq!(target.conversation.unwrap().as_str(), "c:a");
    }

    #[test]
    fn a_report_is_utf_8_in_the_members_that_are_passed_over_too() {
        for body in [
            &b"{\"x\":\"\xff\",\"outcome\":\"fail\"}"[..],
            b"{\"\xff\":1,\"outcome\":\"fail\"}",
            b"{\"x\":{\"y\":[\"\xed\xa0\x80\"]},\"outcome\":\"fail\"}",
        ] {
            assert_eq!(parse(body), Err(ReportError::Json), "{body:?}");
            fuzz(body);
        }
        for member in ["\"\\ud800\"", "1e999"] {
            let (_, outcome) = report(&format!(",\"x\":{member}")).unwrap();
            assert_eq!(outcome.verdict, Verdict::Pass);
            fuzz(format!("{{\"x\":{member},\"outcome\":\"pass\"}}").as_bytes());
        }
    }

    #[test]
    fn what_is_said_beside_an_outcome_is_kept_where_it_is_a_scalar() {
        let members =
            ",\"kind\":\"cargo-test\",\"exit_code\":101,\"duration_ms\":5300,\"at\":1796000000";
        let (_, outcome) = report(members).unwrap();
        assert_eq!(outcome.kind.as_deref(), Some("cargo-test"));
        assert_eq!(outcome.exit_code, Some(101));
        assert_eq!(
            (outcome.duration_ms, outcome.at),
            (Some(5300), Some(1_796_000_000))
        );
        let members =
            ",\"kind\":\"a sentence of text\",\"exit_code\":\"1\",\"at\":{},\"duration_ms\":1.5";
        let (_, outcome) = report(members).unwrap();
        assert_eq!((outcome.kind, outcome.exit_code), (None, None));
        assert_eq!((outcome.at, outcome.duration_ms), (None, None));
    }

    #[test]
    fn what_has_no_single_reading_is_refused() {
        for (body, error) in [
            ("", ReportError::Json),
            ("[\"r\"]", ReportError::Json),
            ("{\"outcome\":\"pass\"} x", ReportError::Json),
            (
                "{\"outcome\":\"pass\",\"outcome\":\"fail\"}",
                ReportError::Json,
            ),
            (
                "{\"outcome\":\"pass\",\"conversation_id\":\"a\",\"conversation_id\":\"b\"}",
                ReportError::Json,
            ),
            ("{}", ReportError::Outcome),
            ("{\"outcome\":\"passed\"}", ReportError::Outcome),
            ("{\"outcome\":true}", ReportError::Outcome),
            (
                "{\"outcome\":\"pass\",\"request_id\":5}",
                ReportError::NotText("request_id"),
            ),
            (
                "{\"outcome\":\"pass\",\"source\":[]}",
                ReportError::NotText("source"),
            ),
        ] {
            assert_eq!(parse(body.as_bytes()), Err(error), "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body in ".{0,200}", id in "[a-zA-Z0-9._:\\- ]{0,130}") {
            fuzz(body.as_bytes());
            fuzz(format!("{{\"outcome\":\"fail\",\"conversation_id\":\"{id}\"}}").as_bytes());
        }
    }
}
