//! What fuzzing asks of this module: that bytes of others lead to an answer and nothing else.

use serde_json::Value;

use crate::classify::{
    AgentFamily, Family, Policy, Tool, ToolEvidence, Turn, UserAgent, is_project_marker,
    read_answer,
};
use crate::peek::ToolName;

/// Reads the same bytes as a User-Agent, names of tools, a marker and an answer of the remote service.
///
/// # Panics
/// When a rule contradicts itself.
pub fn all(bytes: &[u8]) {
    let agent = UserAgent::accept(bytes);
    if let Some(agent) = agent {
        let shouted = agent.as_str().to_ascii_uppercase();
        let shouting = UserAgent::accept(shouted.as_bytes());
        assert_eq!(
            Family::of(agent),
            shouting.and_then(Family::of),
            "letter case decides"
        );
        assert_eq!(AgentFamily::of(agent), shouting.and_then(AgentFamily::of));
    }
    let text = String::from_utf8_lossy(bytes);
    let mut bits = 0;
    for name in text.lines() {
        bits |= ToolEvidence::reduce(ToolName::Named(name));
        if Tool::of(name) != Tool::UnknownSeen && !name.trim().starts_with("mcp__") {
            assert_eq!(
                Tool::of(name),
                Tool::of_family(name),
                "the wider table differs"
            );
        }
    }
    let marked = text.lines().any(is_project_marker);
    let local = Policy::default().evaluate(Turn {
        agent,
        tools: ToolEvidence::of(bits).session(),
        marked,
    });
    assert!(!local.excluded, "nothing is ignored");
    if let Ok(probability) = read_answer(bytes) {
        assert!((0.0..=1.0).contains(&probability));
        let document: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let said = document.pointer("/answers/is_coding_agent_session/noul");
        let said = said.and_then(Value::as_f64);
        assert_eq!(said, Some(probability), "an answer stands elsewhere");
    }
}
