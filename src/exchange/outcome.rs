//! `POST /outcome`: a client reports what came of an answer.
//!
//! The report is read whole, which its bound allows, and handed to the ledger's thread; the exchange looks
//! for the answer now and then, so that no core ever waits for a disk.

use std::io;
use std::time::Duration;

use serde_json::json;

use crate::clock;
use crate::dialect::Family;
use crate::exchange::admit::Admission;
use crate::exchange::gather::{GatherEnd, client_end, invite};
use crate::exchange::reject::Rejection;
use crate::exchange::{Client, Core, Next};
use crate::failure::Failure;
use crate::http1::framing::BodyLength;
use crate::lane::{Body, BodyError};
use crate::ledger::{Found, ReportError, Resolution, Unavailable, parse};
use crate::limits::{BLOCK_BYTES, OUTCOME_BODY_BYTES, QUESTION_LOOK_MS, QUESTION_WAIT_MS};
use crate::local::Answer;
use crate::observe::{EndReason, RequestId, Told};
use crate::runtime::sleep;

/// Where outcomes are reported.
pub(super) const PATH: &[u8] = b"/outcome";

/// A report whose body has not been read.
#[derive(Debug)]
pub(super) struct Report {
    id: RequestId,
    length: BodyLength,
    expects_continue: bool,
    keeps_open: bool,
    /// Held until the answer is written.
    _admission: Admission,
}

impl Report {
    pub(super) const fn new(
        id: RequestId,
        length: BodyLength,
        (expects_continue, keeps_open): (bool, bool),
        admission: Admission,
    ) -> Self {
        Self {
            id,
            length,
            expects_continue,
            keeps_open,
            _admission: admission,
        }
    }
}

/// Reads the report, has it recorded and answers.
pub(super) async fn answer(core: &Core, client: &mut Client, report: &Report) -> Next {
    let received = received(client, report).await;
    let (failure, read) = match received {
        Ok(body) => match recorded(core, client, &body).await {
            Ok(resolution) => match rendered(core, report, resolution) {
                Ok(answer) => return answer.send(&client.stream, &mut client.record).await,
                Err(failure) => (failure, true),
            },
            Err(failure) => (failure, true),
        },
        Err(GatherEnd::ClientGone) => {
            client.record.end = EndReason::ClientClosed;
            return Next::Cut;
        }
        Err(GatherEnd::Failed(failure)) => (failure, false),
    };
    core.metrics.told(match failure {
        Failure::Report(ReportError::NotFound) => Told::NotFound,
        Failure::Report(ReportError::Ambiguous) => Told::Ambiguous,
        Failure::Report(ReportError::Conflict) => Told::Conflict,
        Failure::Report(ReportError::Unavailable) => Told::Unavailable,
        _ => Told::Invalid,
    });
    let rejection = Rejection {
        failure,
        family: Family::OpenAi,
        id: report.id,
        close: !read || !report.keeps_open,
        to_head: false,
    };
    rejection
        .send(&client.stream, !read, &mut client.record)
        .await
}

/// The whole body.
async fn received(client: &mut Client, report: &Report) -> Result<Vec<u8>, GatherEnd> {
    let most = OUTCOME_BODY_BYTES as u64;
    let too_long = GatherEnd::Failed(Failure::Report(ReportError::TooLong));
    if matches!(report.length, BodyLength::Known(bytes) if bytes > most) {
        return Err(too_long);
    }
    let mut body = Body::new(report.length, most, false);
    let mut asked = !report.expects_continue;
    loop {
        let absorbed = body.absorb(&mut client.input);
        absorbed.map_err(|error| match error {
            BodyError::TooLong => too_long,
            error => GatherEnd::Failed(error.into()),
        })?;
        client.record.request_bytes = body.received();
        if body.is_complete() {
            break;
        }
        if !asked && client.input.is_empty() {
            invite(client).await?;
        }
        asked = true;
        // Beside the body there may be the framing of its chunks.
        let Some(room) = client.input.room(OUTCOME_BODY_BYTES + BLOCK_BYTES) else {
            return Err(too_long);
        };
        match client.stream.try_read(room) {
            Ok(0) => return Err(GatherEnd::ClientGone),
            Ok(count) => client.input.filled(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let readable = client.stream.readable().await;
                readable.map_err(|error| client_end(error, Failure::BodyTimeout))?;
            }
            Err(_) => return Err(GatherEnd::ClientGone),
        }
    }
    let ready = body.ready();
    let bytes = client
        .input
        .bytes()
        .get(..ready)
        .unwrap_or_default()
        .to_vec();
    body.hand_on(&mut client.input, ready);
    Ok(bytes)
}

/// What the ledger makes of the report.
async fn recorded(core: &Core, client: &Client, body: &[u8]) -> Result<Resolution, Failure> {
    let (target, outcome) = parse(body).map_err(Failure::Report)?;
    let out_of_reach = |Unavailable| Failure::Report(ReportError::Unavailable);
    let ledger = core.ledger.as_ref().ok_or(Failure::NoRoute)?;
    let asked = ledger
        .desk
        .report(client.record.client.clone(), target, outcome);
    let pending = asked.map_err(out_of_reach)?;
    let deadline = clock::now() + Duration::from_millis(QUESTION_WAIT_MS);
    loop {
        if let Some(answer) = pending.poll() {
            return answer.map_err(out_of_reach);
        }
        if clock::now() >= deadline {
            return Err(out_of_reach(Unavailable));
        }
        sleep(Duration::from_millis(QUESTION_LOOK_MS)).await;
    }
}

fn rendered(core: &Core, report: &Report, resolution: Resolution) -> Result<Answer, Failure> {
    match resolution {
        Resolution::Recorded {
            found,
            duplicate,
            conflict,
        } => {
            core.metrics.told(if duplicate {
                Told::Duplicate
            } else {
                Told::Recorded
            });
            if conflict {
                core.metrics.outcome_id_conflicts.add(1);
            }
            Ok(done(report, &found, duplicate))
        }
        Resolution::NotFound => Err(Failure::Report(ReportError::NotFound)),
        Resolution::Ambiguous => Err(Failure::Report(ReportError::Ambiguous)),
        Resolution::Conflict => Err(Failure::Report(ReportError::Conflict)),
    }
}

fn done(report: &Report, found: &Found, duplicate: bool) -> Answer {
    let mut body = json!({
        "status": "recorded",
        "request_id": found.id,
        "session_key": found.session,
    });
    if duplicate && let Some(members) = body.as_object_mut() {
        members.insert("duplicate".to_owned(), true.into());
    }
    let id = report.id.to_string();
    Answer::json(&body.to_string(), &id, !report.keeps_open)
}
