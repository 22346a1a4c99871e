//! What is kept of a session, and what is said to the remote service.

use std::time::Duration;

use super::remote;
use crate::classify::*;

const KEY: Key = Key::new(Scope::ALeg, [7; 32]);

fn lease(name: &str) -> LeaseId {
    LeaseId::new(name).unwrap()
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(1_000_000 + millis)
}

/// The state machine itself; the stores run the same rows in `ledger`.
#[test]
fn rows_40_to_45_leases_attempts_and_pauses_of_one_session() {
    let terms = remote().terms();
    let mut record = Record::default();
    let first = record.claim(KEY, &terms, lease("a"), at(0)).unwrap();
    let busy = record.claim(KEY, &terms, lease("b"), at(1999));
    assert_eq!(busy, Err(Refused::LeaseBusy));
    assert!(
        record.clone().complete(&first, None, at(2000)).stale,
        "row 42"
    );
    let second = record.claim(KEY, &terms, lease("b"), at(2000)).unwrap();
    assert_eq!(second.attempt, 2, "row 41");
    assert!(record.complete(&first, None, at(2001)).stale);
    assert!(!record.complete(&second, None, at(2001)).stale);
    let spent = record.eligible(&terms, at(60_000));
    assert_eq!(spent, Err(Refused::BudgetExhausted), "row 44");
    let more = RemoteTerms {
        attempts_max: 5,
        ..terms
    };
    let early = at(12_001) - Duration::from_nanos(1);
    assert_eq!(
        record.eligible(&more, early),
        Err(Refused::Pausing),
        "row 43"
    );
    let third = record.claim(KEY, &more, lease("c"), at(12_001)).unwrap();
    assert!(
        record.promote(Evidence::CodingCluster, at(12_002)),
        "row 45"
    );
    let late = record.complete(&third, Some(Evidence::AboveThreshold), at(12_003));
    assert!(late.stale);
    assert_eq!(
        late.classification.evidence(),
        Some(Evidence::CodingCluster)
    );
    assert_eq!(
        (record.attempts, &record.lease, record.next_at),
        (3, &None, None)
    );
}

#[test]
fn row_48_deadlines_are_rounded_up_and_the_present_down() {
    let terms = remote().terms();
    let mut record = Record::default();
    let odd = Duration::from_nanos(1_000_000_001);
    record.claim(KEY, &terms, lease("a"), odd).unwrap();
    assert_eq!(record.lease.as_ref().unwrap().1, 3_000_001);
    assert_eq!(record.updated_at, 1_000_000);
    let just_before = Duration::from_nanos(3_000_000_999);
    assert_eq!(
        record.eligible(&terms, just_before),
        Err(Refused::LeaseBusy)
    );
}

#[test]
fn local_evidence_does_not_come_through_an_attempt() {
    let mut record = Record::default();
    let claim = record
        .claim(KEY, &remote().terms(), lease("a"), at(0))
        .unwrap();
    record.complete(&claim, Some(Evidence::Codex), at(1));
    assert_eq!(record.classification, Classification::Unknown);
}

fn input() -> RemoteInput {
    RemoteInput {
        operation: Operation::Chat,
        family: None,
        ambiguous: true,
        tools: ToolSet::EMPTY,
        marked: false,
        local: None,
    }
}

#[test]
fn the_document_has_fixed_members_in_a_fixed_order_and_closed_words() {
    let full = RemoteInput {
        operation: Operation::Messages,
        family: Some(Family::Codex),
        ambiguous: true,
        tools: Tool::ALL
            .into_iter()
            .fold(ToolSet::EMPTY, |set, tool| set | tool),
        marked: true,
        local: Some(Evidence::Codex),
    };
    let text = String::from_utf8(full.document().unwrap()).unwrap();
    let state = concat!(
        r#"{"state":{"operation":"anthropic.messages","client_family":"codex","#,
        r#""has_ambiguous_client":false,"tool_categories":["file_read","file_search","os_command","#,
        r#""file_edit","file_remove","web_access","unknown_seen"],"workspace_class":"project_marker","#,
        r#""local_evidence_code":"client_family.codex"},"model":"jev-latest","questions":"#,
    );
    assert!(text.starts_with(state), "{text}");
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    let empty = String::from_utf8(input().document().unwrap()).unwrap();
    assert!(empty.contains(r#""has_ambiguous_client":true,"tool_categories":[],"#));
}

#[test]
fn rows_55_to_58_which_answers_count() {
    let answer = |noul: &str| {
        format!(
            r#"{{"model":"jev-1","answers":{{"is_coding_agent_session":{{"type":"noul","noul":{noul}}}}},"usage":{{}}}}"#
        )
    };
    assert_eq!(read_answer(answer("0.97").as_bytes()), Ok(0.97));
    assert_eq!(read_answer(answer("0").as_bytes()), Ok(0.0));
    assert_eq!(read_answer(answer("1").as_bytes()), Ok(1.0));
    let counted =
        answer("0.5").replace(r#""usage":{}"#, r#""usage":{"input_tokens":3},"more":[1]"#);
    assert_eq!(read_answer(counted.as_bytes()), Ok(0.5));
    let negative = answer("0.5").replace(r#""usage":{}"#, r#""usage":{"input_tokens":-3}"#);
    let missing = answer("0.5").replace(r#","usage":{}"#, "");
    let typed = answer("0.5").replace(r#""type":"noul""#, r#""type":"bool""#);
    let nameless = answer("0.5").replace("jev-1", " ");
    for bad in [
        &answer("1.5"),
        &answer("-0.1"),
        &answer("NaN"),
        &answer(r#""0.9""#),
        &answer("null"),
        &answer("1e999"),
        &negative,
        &missing,
        &typed,
        &nameless,
        &format!("{}{}", answer("0.9"), answer("0.9")),
        &format!("{}]", answer("0.9")),
        &answer("0.9").replace(r#""jev-1""#, "null"),
        r#"["jev-1",{"is_coding_agent_session":{"type":"noul","noul":0.9}},{}]"#,
        r#"{"model":"jev-1","answers":[{"type":"noul","noul":0.9}],"usage":{}}"#,
        r#"{"model":"jev-1","answers":{"is_coding_agent_session":["noul",0.9]},"usage":{}}"#,
        &answer("0.9").replace(r#""usage":{}"#, r#""usage":[1,2]"#),
        &answer(r#"0.1,"noul":0.9"#),
        "",
        "[]",
    ] {
        assert_eq!(
            read_answer(bad.as_bytes()),
            Err(AnswerError::Malformed),
            "{bad}"
        );
    }
    // Text that is none, in a member that is passed over and in the name of one.
    for more in [
        &b",\"more\":\"\xff\"}"[..],
        b",\"\xff\":1}",
        b",\"more\":[\"\xed\xa0\x80\"]}",
    ] {
        let mut bytes = answer("0.9").into_bytes();
        bytes.pop();
        bytes.extend_from_slice(more);
        assert_eq!(read_answer(&bytes), Err(AnswerError::Malformed), "{more:?}");
    }
    let mut longest = answer("0.9");
    longest.push_str(&" ".repeat(ANSWER_BYTES_MAX - longest.len()));
    assert_eq!(read_answer(longest.as_bytes()), Ok(0.9));
    longest.push(' ');
    assert_eq!(read_answer(longest.as_bytes()), Err(AnswerError::TooLong));
}
