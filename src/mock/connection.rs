//! One connection: requests in order, each read, recorded, perhaps run, and answered.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::mock::Shared;
use crate::mock::answer::{Request, Route};
use crate::mock::brace::Brace;
use crate::mock::facts::{Dialect, Facts};
use crate::mock::journal::{self, Recorded, Ticket};
use crate::mock::script::{Close, Early, Execute, Framing, Script, Silence, WAIT_MAX};
use crate::mock::send::{self, Manner, Sent};
use crate::mock::socket;
use crate::mock::wire::{BodyLength, BodyReader, Broken, Head, Wire};

/// Request body bytes kept to be read or echoed; a longer body is counted, not read.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Body bytes taken at once.
const STEP_BYTES: usize = 64 << 10;
/// Wait for the peer to take an answer that came before its body ended.
const LINGER: Duration = Duration::from_secs(5);

/// What follows an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

/// Serves one connection until either side closes it.
pub(crate) fn serve(stream: Arc<TcpStream>, connection: u64, shared: &Shared) {
    let limit = Some(WAIT_MAX);
    let set = stream.set_nodelay(true).is_ok()
        && stream.set_read_timeout(limit).is_ok()
        && stream.set_write_timeout(limit).is_ok();
    let mut wire = Wire::new(stream);
    let mut index = 1;
    while set && one(&mut wire, shared, connection, index).is_ok_and(|next| next == Next::Request) {
        index += 1;
    }
}

fn one(wire: &mut Wire, shared: &Shared, connection: u64, index: u64) -> io::Result<Next> {
    let begun = Recorded {
        connection,
        index_on_connection: index,
        ..Recorded::default()
    };
    let head = match wire.read_head() {
        Ok(head) => head,
        Err(Broken::Ended) => return Ok(Next::Close),
        Err(Broken::Malformed { reason, head }) => {
            shared.journal.begin(Recorded { head, ..begun });
            return refuse(wire, reason);
        }
    };
    if let Some(body) = control(&head, shared) {
        return answer_control(wire, &head, &body);
    }
    let ticket = shared.journal.begin(Recorded {
        head: head.raw.clone(),
        chunked: head.length == BodyLength::Chunked,
        ..begun
    });
    let script = match head.header("x-mock").map(str::parse) {
        Some(parsed) => parsed.map_err(|error: crate::mock::ScriptError| error.to_string()),
        None => Ok(shared.script.clone()),
    };
    let id = format!("req_mock_{connection}_{index}");
    let exchange = Exchange {
        route: Route::of(&head),
        head: &head,
        shared,
        ticket,
        id: &id,
    };
    exchange.run(wire, script)
}

struct Exchange<'a> {
    head: &'a Head,
    route: Route,
    shared: &'a Shared,
    ticket: Ticket,
    id: &'a str,
}

/// Why reading the body stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The framing ended.
    Whole,
    /// The answer must not wait for the rest.
    Answer,
    /// No answer is possible or wanted.
    Gone,
}

impl Exchange<'_> {
    fn run(&self, wire: &mut Wire, script: Result<Script, String>) -> io::Result<Next> {
        let (mut script, refused) = match script {
            Ok(script) => (script, None),
            Err(reason) => (Script::default(), Some(reason)),
        };
        if script.close == Close::Head {
            return Ok(Next::Close);
        }
        for status in &script.interim {
            send::interim(wire.stream(), *status)?;
        }
        self.expect(wire, &script)?;
        let mut reader = BodyReader::new(self.head.length);
        let mut body = Vec::new();
        let stop = self.intake(wire, &mut reader, &script, &mut body)?;
        if stop == Stop::Gone {
            return Ok(Next::Close);
        }
        let facts = self.facts(&body);
        self.understood(&facts);
        if self.head.header("x-mock").is_none() {
            script = Script::from_model(&facts.model).unwrap_or(script);
        }
        if !script.first.is_zero() && socket::peer_leaves_within(wire.stream(), script.first)? {
            return self.peer_left();
        }
        if script.silence == Some(Silence::Head) {
            socket::peer_leaves_within(wire.stream(), WAIT_MAX)?;
            return self.peer_left();
        }
        if script.close == Close::Before {
            return Ok(Next::Close);
        }
        let request = Request {
            head: self.head,
            route: self.route,
            facts: &facts,
            body: &body,
            id: self.id,
        };
        let answer = match refused {
            Some(reason) => request.error(400, &reason),
            None => request.answer(&script, &self.shared.files),
        };
        if stop == Stop::Answer && script.early.is_some() && answer.status < 300 {
            self.execute();
        }
        let manner = self.manner(&script, answer.framing, stop);
        match send::send(wire.stream(), &answer, &script, manner) {
            Sent::Whole => {}
            Sent::Cut => return Ok(Next::Close),
            Sent::Left => return self.peer_left(),
        }
        self.shared
            .journal
            .update(self.ticket, |record| record.answered = true);
        self.after(wire, &mut reader, &script, manner, stop)
    }

    fn manner(&self, script: &Script, framing: Framing, stop: Stop) -> Manner {
        let http10 = self.head.minor == 0;
        let by_end = framing == Framing::Close || framing == Framing::Chunked && http10;
        let early_close = stop == Stop::Answer && script.early.is_some_and(|early| early.close);
        let asked = !self.head.keeps_alive() || script.close == Close::After;
        Manner {
            head_only: self.head.method == "HEAD",
            closes: by_end || early_close || asked,
            http10,
        }
    }

    /// What becomes of the connection once the answer is out.
    fn after(
        &self,
        wire: &mut Wire,
        reader: &mut BodyReader,
        script: &Script,
        manner: Manner,
        stop: Stop,
    ) -> io::Result<Next> {
        if stop == Stop::Answer {
            if script.early.is_some_and(|early| early.close) {
                // Unread bytes would turn the close into a reset, which could overtake the answer.
                wire.stream().shutdown(Shutdown::Write)?;
                socket::peer_leaves_within(wire.stream(), LINGER)?;
                return Ok(Next::Close);
            }
            if !self.read_rest(wire, reader) {
                return Ok(Next::Close);
            }
        }
        if manner.closes {
            return Ok(Next::Close);
        }
        if let Close::Idle(wait) = script.close {
            let more = wire.has_ahead() || socket::readable_within(wire.stream(), wait)?;
            return Ok(if more { Next::Request } else { Next::Close });
        }
        Ok(Next::Request)
    }

    /// Sends `100 Continue` if the client waits for it and the script wants any of the body
    /// (RFC 9110 §10.1.1).
    fn expect(&self, wire: &Wire, script: &Script) -> io::Result<()> {
        let expects = self.head.minor == 1 && self.head.has_token("expect", "100-continue");
        let wants = script.early.is_none_or(|early| early.after > 0) && script.stall != Some(0);
        if expects && wants {
            send::interim(wire.stream(), 100)?;
            self.shared
                .journal
                .update(self.ticket, |record| record.continue_sent = true);
        }
        Ok(())
    }

    /// Reads the body as far as the script wants, and runs the request when it says so.
    fn intake(
        &self,
        wire: &mut Wire,
        reader: &mut BodyReader,
        script: &Script,
        body: &mut Vec<u8>,
    ) -> io::Result<Stop> {
        let mut brace = Brace::default();
        let mut seen = 0;
        loop {
            let open = !reader.ended();
            if open && script.early.is_some_and(|early| seen >= early.after) {
                return Ok(Stop::Answer);
            }
            if open && script.stall.is_some_and(|stall| seen >= stall) {
                socket::peer_leaves_within(wire.stream(), WAIT_MAX)?;
                self.peer_left()?;
                return Ok(Stop::Gone);
            }
            let bytes = match reader.next(wire, step(script, seen)) {
                Ok(bytes) => bytes,
                Err(broken) => return self.broken(wire, broken),
            };
            if bytes.is_empty() {
                self.complete(reader);
                self.execute();
                return Ok(Stop::Whole);
            }
            seen += bytes.len() as u64;
            self.arrived(&bytes);
            let root_end = match script.execute {
                Execute::Brace => brace.feed(&bytes),
                Execute::Framing => None,
            };
            if body.len() < BODY_BYTES_MAX {
                body.extend_from_slice(&bytes[..root_end.unwrap_or(bytes.len())]);
            }
            if root_end.is_some() && !reader.ended() {
                self.execute();
                return Ok(Stop::Answer);
            }
        }
    }

    /// Reads what an early answer left, only to count it; false if it broke off.
    fn read_rest(&self, wire: &mut Wire, reader: &mut BodyReader) -> bool {
        loop {
            match reader.next(wire, STEP_BYTES) {
                Ok(bytes) if bytes.is_empty() => {
                    self.complete(reader);
                    return true;
                }
                Ok(bytes) => self.arrived(&bytes),
                Err(_) => return false,
            }
        }
    }

    fn broken(&self, wire: &Wire, broken: Broken) -> io::Result<Stop> {
        match broken {
            Broken::Ended => {
                self.peer_left()?;
            }
            Broken::Malformed { reason, .. } => {
                refuse(wire, reason)?;
            }
        }
        Ok(Stop::Gone)
    }

    fn facts(&self, body: &[u8]) -> Facts {
        let accepts = self.head.header("accept").unwrap_or_default();
        let events = accepts.contains("text/event-stream");
        match self.route {
            Route::Model(dialect) => Facts::read(dialect, body, events),
            Route::CountTokens => Facts::read(Dialect::Messages, body, events),
            Route::Models | Route::Root | Route::Health | Route::Upgrade | Route::Unknown => {
                Facts::default()
            }
        }
    }

    fn understood(&self, facts: &Facts) {
        if matches!(self.route, Route::Model(_)) {
            self.shared.journal.update(self.ticket, |record| {
                record.model = Some(facts.model.clone());
                record.tool_result = facts.tool_result.as_deref().map(journal::result_kept);
            });
        }
    }

    fn arrived(&self, bytes: &[u8]) {
        let kept_max = self.shared.record_body_max;
        self.shared.journal.update(self.ticket, |record| {
            record.body_len += bytes.len() as u64;
            let room = kept_max.saturating_sub(record.body.len()).min(bytes.len());
            record.body.extend_from_slice(&bytes[..room]);
        });
    }

    fn complete(&self, reader: &BodyReader) {
        self.shared.journal.update(self.ticket, |record| {
            record.complete = true;
            record.trailers.clone_from(&reader.trailers);
        });
    }

    /// Only model calls are run; a list of models is not.
    fn execute(&self) {
        if matches!(self.route, Route::Model(_)) {
            self.shared.journal.executed(self.ticket);
        }
    }

    fn peer_left(&self) -> io::Result<Next> {
        self.shared
            .journal
            .update(self.ticket, |record| record.peer_left = true);
        Ok(Next::Close)
    }
}

/// Bytes to take next, so that reading stops exactly where the script says.
fn step(script: &Script, seen: u64) -> usize {
    let marks = [script.early.map(|Early { after, .. }| after), script.stall];
    let nearest = marks
        .into_iter()
        .flatten()
        .map(|mark| mark.saturating_sub(seen))
        .min();
    nearest
        .and_then(|left| usize::try_from(left).ok())
        .map_or(STEP_BYTES, |left| left.min(STEP_BYTES))
}

/// Answers bytes that are no message; the connection ends.
fn refuse(wire: &Wire, reason: &str) -> io::Result<Next> {
    let mut stream = wire.stream();
    let body = format!(
        r#"{{"error":{{"message":"mock: {reason}","type":"invalid_request_error","param":null,"code":null}}}}"#
    );
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    socket::peer_leaves_within(stream, LINGER)?;
    Ok(Next::Close)
}

/// The answer of a control endpoint, if this is one.
fn control(head: &Head, shared: &Shared) -> Option<String> {
    match (head.method.as_str(), head.path()) {
        ("GET", "/mock/requests") => Some(shared.journal.lines()),
        ("GET", "/mock/executions") => Some(shared.journal.executions().to_string()),
        ("DELETE", "/mock/requests") => {
            shared.journal.clear();
            Some(String::new())
        }
        _ => None,
    }
}

fn answer_control(wire: &mut Wire, head: &Head, body: &str) -> io::Result<Next> {
    let mut reader = BodyReader::new(head.length);
    loop {
        match reader.next(wire, STEP_BYTES) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(_) => {}
            Err(_) => return Ok(Next::Close),
        }
    }
    let mut stream = wire.stream();
    let length = body.len();
    let head_text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head_text.as_bytes())?;
    Ok(if head.keeps_alive() {
        Next::Request
    } else {
        Next::Close
    })
}
