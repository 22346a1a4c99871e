//! What is said to the remote service, and what of its answer counts.
//!
//! Only words of closed vocabularies leave: there is no place here for a User-Agent, a name of a tool, a text,
//! a key or a credential. The answer is one number; what is not exactly of the documented form is no answer.

use std::fmt;
use std::io::Write;

use serde::Deserialize;
use serde_json::Value;

use crate::classify::{Evidence, Family, ToolSet};
use crate::dialect::Dialect;

/// Bytes of the longest document that is sent.
pub const DOCUMENT_BYTES_MAX: usize = 8 * 1024;

/// Bytes of the longest answer that is read.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The question, which nothing is filled into.
const INSTRUCTIONS: &str = "Judge only from the given state. Is this the session of an automated coding \
    agent that works on a code base with tools, as opposed to a chat or another kind of program?";

/// What kind of request the turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

impl Operation {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "openai.chat_completions",
            Self::Responses => "openai.responses",
            Self::Messages => "anthropic.messages",
        }
    }
}

impl From<Dialect> for Operation {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Chat => Self::Chat,
            Dialect::Responses => Self::Responses,
            Dialect::Messages => Self::Messages,
        }
    }
}

/// What is known of a turn, in closed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteInput {
    /// What kind of request it is.
    pub operation: Operation,
    /// The family that the client names.
    pub family: Option<Family>,
    /// A client that says who it is, but is of no known family. Never with a family.
    pub ambiguous: bool,
    /// What its tools can do.
    pub tools: ToolSet,
    /// Whether its workspace has a project's marker.
    pub marked: bool,
    /// What the local rules made of it.
    pub local: Option<Evidence>,
}

impl RemoteInput {
    /// The document that is sent. None if it were longer than [`DOCUMENT_BYTES_MAX`].
    #[must_use]
    pub fn document(&self) -> Option<Vec<u8>> {
        let mut tools = String::new();
        for tool in self.tools.iter() {
            let comma = if tools.is_empty() { "" } else { "," };
            tools.push_str(comma);
            tools.push('"');
            tools.push_str(tool.as_str());
            tools.push('"');
        }
        let mut document = Vec::with_capacity(1024);
        let family = self.family.map(Family::as_str).unwrap_or_default();
        let ambiguous = self.ambiguous && self.family.is_none();
        let workspace = if self.marked { "project_marker" } else { "" };
        let local = self.local.map(Evidence::as_str).unwrap_or_default();
        let operation = self.operation.as_str();
        // No word of these needs an escape, which a test looks at.
        let written = write!(
            document,
            r#"{{"state":{{"operation":"{operation}","client_family":"{family}","has_ambiguous_client":{ambiguous},"tool_categories":[{tools}],"workspace_class":"{workspace}","local_evidence_code":"{local}"}},"model":"jev-latest","questions":{{"is_coding_agent_session":{{"type":"noul","instructions":"{INSTRUCTIONS}"}}}}}}"#
        );
        (written.is_ok() && document.len() <= DOCUMENT_BYTES_MAX).then_some(document)
    }
}

/// Why an answer is none. It holds nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// Longer than [`ANSWER_BYTES_MAX`].
    TooLong,
    /// Not the documented form.
    Malformed,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the answer is too long",
            Self::Malformed => "the answer is not of the documented form",
        })
    }
}

impl std::error::Error for AnswerError {}

#[derive(Deserialize)]
struct Document {
    model: String,
    answers: Answers,
    /// Read so that an answer without it is refused.
    #[serde(rename = "usage")]
    _usage: Usage,
}

#[derive(Deserialize)]
struct Answers {
    is_coding_agent_session: Answer,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "type")]
    kind: String,
    noul: f64,
}

#[derive(Deserialize)]
struct Usage {
    /// Read so that what is no count is refused.
    #[serde(default, rename = "input_tokens")]
    _input: u64,
    #[serde(default, rename = "output_tokens")]
    _output: u64,
}

/// The probability that an answer gives, from 0 to 1.
///
/// # Errors
/// See [`AnswerError`].
pub fn read_answer(bytes: &[u8]) -> Result<f64, AnswerError> {
    if bytes.len() > ANSWER_BYTES_MAX {
        return Err(AnswerError::TooLong);
    }
    if !is_shaped(bytes) {
        return Err(AnswerError::Malformed);
    }
    let document: Document = serde_json::from_slice(bytes).map_err(|_| AnswerError::Malformed)?;
    let answer = document.answers.is_coding_agent_session;
    let good = !document.model.trim().is_empty()
        && answer.kind == "noul"
        && (0.0..=1.0).contains(&answer.noul);
    good.then_some(answer.noul).ok_or(AnswerError::Malformed)
}

/// Whether it is JSON in every member, those that are passed over included, with objects where objects belong:
/// a derived reader looks into no text that it passes over, and takes an array for an object.
fn is_shaped(bytes: &[u8]) -> bool {
    let Ok(document) = serde_json::from_slice::<Value>(bytes) else {
        return false;
    };
    let objects = ["", "/answers", "/answers/is_coding_agent_session", "/usage"];
    objects
        .iter()
        .all(|at| document.pointer(at).is_some_and(Value::is_object))
}
