//! Which real client is recognised by which rule, as the page says.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lanegate::classify::{AgentEvidence, Evidence, Policy, ToolEvidence, Turn, UserAgent};
use lanegate::dialect::Dialect;
use lanegate::peek::{Capture, Demand, Peek, ToolBits};

const PAGE: &str = include_str!("../docs/classification.md");

/// A captured request: its User-Agent, and what its tools can do if its body names any.
struct Request {
    agent: String,
    tools: ToolEvidence,
}

fn request(path: &Path) -> Option<Request> {
    let bytes = fs::read(path).unwrap();
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let field = |name: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        let mut named = fields.filter(|(it, _)| it.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim().to_owned())
    };
    let target = head.split(' ').nth(1).unwrap();
    let target = target.split('?').next().unwrap();
    let dialect = [
        ("/chat/completions", Dialect::Chat),
        ("/messages", Dialect::Messages),
        ("/responses", Dialect::Responses),
    ];
    let (_, dialect) = dialect.into_iter().find(|(it, _)| target.ends_with(it))?;
    if !head.starts_with("POST ") {
        return None;
    }
    let body = if field("content-encoding").is_some() {
        fs::read(path.with_extension("plain.json")).unwrap()
    } else if field("transfer-encoding").is_some() {
        unchunked(&bytes[end + 4..])
    } else {
        bytes[end + 4..].to_vec()
    };
    let tools = ToolBits::by(ToolEvidence::reduce);
    let mut peek = Peek::with(dialect, Demand::TOOL_NAMES, Capture::Bounded, tools);
    peek.push(&body).unwrap();
    Some(Request {
        agent: field("user-agent").unwrap_or_default(),
        tools: ToolEvidence::of(peek.tool_names().bits()),
    })
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|it| it == b"\r\n").unwrap();
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size.split(';').next().unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 2 + size + 2..];
    }
}

fn table() -> String {
    let mut rows: BTreeMap<String, (usize, BTreeSet<&str>, BTreeSet<String>)> = BTreeMap::new();
    let runs = fs::read_dir("tests/data/captures").unwrap();
    let runs = runs.map(|run| run.unwrap().path());
    for run in runs.filter(|run| run.is_dir()) {
        let files = fs::read_dir(run).unwrap().map(|file| file.unwrap().path());
        for path in files.filter(|path| path.extension().is_some_and(|it| it == "http")) {
            let Some(request) = request(&path) else {
                continue;
            };
            let agent = UserAgent::accept(request.agent.as_bytes());
            let turn = Turn {
                agent,
                tools: request.tools.session(),
                marked: false,
            };
            let session = Policy::default().evaluate(turn).evidence;
            let family = AgentEvidence::of(agent, request.tools.family(), false);
            let word = request.agent.split(['/', ' ']).next().unwrap();
            let row = rows.entry(word.to_owned()).or_default();
            row.0 += 1;
            row.1.insert(session.map_or("none", Evidence::as_str));
            row.2.insert(family.map_or_else(
                || "none".to_owned(),
                |it| format!("{} ({})", it.as_str(), it.family()),
            ));
        }
    }
    let mut text = "| User-Agent | requests | `session-classification` | `agent-family` |\n|---|---|---|---|\n".to_owned();
    for (word, (count, session, family)) in rows {
        let session: Vec<_> = session.into_iter().collect();
        let family: Vec<_> = family.into_iter().collect();
        let (session, family) = (session.join(", "), family.join(", "));
        text.push_str(&format!("| {word} | {count} | {session} | {family} |\n"));
    }
    text
}

#[test]
fn the_page_says_which_client_is_recognised_by_what() {
    let (_, after) = PAGE.split_once("<!-- table -->\n").unwrap();
    let (written, _) = after.split_once("<!-- end -->").unwrap();
    let table = table();
    assert!(written == table, "the table is:\n{table}");
}
