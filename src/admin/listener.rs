//! Connections: at most so many, each for so long; the oldest gives way to the newest.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::admin::Admin;
use crate::admin::answer::{Answer, answer};
use crate::clock;
use crate::http1::framing::{BodyLength, request_body};
use crate::http1::head::{HeadLimits, Progress, RequestHead};
use crate::limits::{
    ACCEPT_PAUSE_MS, ADMIN_BODY_BYTES, ADMIN_CONNECTION_MS, ADMIN_CONNECTIONS, ADMIN_HEAD_BYTES,
    ADMIN_HEAD_FIELDS,
};

/// Bytes of a thread's stack: an exposition is built on the heap, a reload parses a file of bounded depth.
const STACK_BYTES: usize = 1024 * 1024;

pub(super) fn start(admin: Admin) -> io::Result<()> {
    thread::Builder::new()
        .name("lanegate-admin".to_owned())
        .spawn(move || accept(&Arc::new(admin)))?;
    Ok(())
}

fn accept(admin: &Arc<Admin>) {
    let mut open = VecDeque::new();
    loop {
        let Ok((stream, _)) = admin.listener.accept() else {
            // No descriptor or no memory: the connection waits in the queue meanwhile.
            thread::park_timeout(Duration::from_millis(ACCEPT_PAUSE_MS));
            continue;
        };
        let Some(stream) = admitted(stream, &mut open) else {
            continue;
        };
        let admin = Arc::clone(admin);
        let served = thread::Builder::new()
            .name("lanegate-admin".to_owned())
            .stack_size(STACK_BYTES)
            // Whoever left or was too slow is not answered.
            .spawn(move || drop(serve(&admin, &stream)));
        // Without a thread the connection was closed with the closure.
        let _none_left = served;
    }
}

/// A connection whose thread has not ended.
struct Open {
    stream: Weak<TcpStream>,
    cut: bool,
}

/// Makes room for a connection. Whoever hangs must not keep others out, so that the newest is heard
/// and the oldest is cut. A thread that was cut ends at once, save where it waits for a reload; where
/// there are as many of those again, the newest is turned away.
fn admitted(stream: TcpStream, open: &mut VecDeque<Open>) -> Option<Arc<TcpStream>> {
    open.retain(|it| it.stream.strong_count() > 0);
    if open.len() >= 2 * ADMIN_CONNECTIONS {
        return None;
    }
    let heard = open.iter().filter(|it| !it.cut).count();
    if heard >= ADMIN_CONNECTIONS
        && let Some(oldest) = open.iter_mut().find(|it| !it.cut)
    {
        oldest.cut = true;
        if let Some(stream) = oldest.stream.upgrade() {
            // Refused only where the peer has left already.
            let _left = stream.shutdown(Shutdown::Both);
        }
    }
    let stream = Arc::new(stream);
    open.push_back(Open {
        stream: Arc::downgrade(&stream),
        cut: false,
    });
    Some(stream)
}

/// One request and its answer.
fn serve(admin: &Admin, stream: &TcpStream) -> io::Result<()> {
    let deadline = clock::now() + Duration::from_millis(ADMIN_CONNECTION_MS);
    let mut peer = Peer { stream, deadline };
    let mut head = RequestHead::default();
    let mut input = Vec::new();
    let answer = match read_request(&mut peer, &mut head, &mut input)? {
        Ok(()) => answer(admin, &head, &input),
        Err(refusal) => refusal,
    };
    // A reload took its own time; the answer gets the usual one.
    peer.deadline = clock::now() + Duration::from_millis(ADMIN_CONNECTION_MS);
    peer.write_all(&answer.bytes)?;
    stream.shutdown(Shutdown::Write)?;
    // What a refused caller still sends would destroy the answer by a reset; what is left of it is
    // dropped, up to a bound.
    let mut rest = [0; 4096];
    let mut left = ADMIN_HEAD_BYTES + ADMIN_BODY_BYTES;
    while left > 0 {
        match peer.read(&mut rest)? {
            0 => return Ok(()),
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}

/// Reads a head, and drops the body that some clients send with an empty POST.
fn read_request(
    peer: &mut Peer<'_>,
    head: &mut RequestHead,
    input: &mut Vec<u8>,
) -> io::Result<Result<(), Answer>> {
    const LIMITS: HeadLimits = HeadLimits {
        bytes: ADMIN_HEAD_BYTES,
        fields: ADMIN_HEAD_FIELDS,
    };
    let mut piece = [0; 4096];
    loop {
        match head.parse(input, LIMITS) {
            Ok(Progress::Complete) => break,
            Ok(Progress::Partial) => {}
            Err(error) => return Ok(Err(Answer::refused(error.status()))),
        }
        let count = peer.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    let length = match request_body(head, input) {
        Ok(BodyLength::None) => 0,
        Ok(BodyLength::Known(length)) => usize::try_from(length).unwrap_or(usize::MAX),
        Ok(BodyLength::Chunked | BodyLength::UntilClose) => usize::MAX,
        Err(error) => return Ok(Err(Answer::refused(error.status()))),
    };
    if length > ADMIN_BODY_BYTES {
        return Ok(Err(Answer::refused(413)));
    }
    let mut read = input.len().saturating_sub(head.len);
    while read < length {
        match peer.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => read = read.saturating_add(count),
        }
    }
    Ok(Ok(()))
}

/// The other side, up to a moment.
struct Peer<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Peer<'_> {
    /// Time left, never zero, which would mean no limit.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Peer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        (&*self.stream).read(into)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        (&*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
