//! One thread of load: its connections, each in a closed loop, behind one epoll.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::connection::{Connection, Turn, Wait};
use crate::bench::round::Load;
use crate::bench::tally::{Fault, Tally};
use crate::clock;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Events of one wait.
const EVENTS_MAX: usize = 256;
/// Interval at which requests are looked at for their timeout.
const LOOK: Duration = Duration::from_millis(100);
/// Faults of one thread in one run after which it starts no more requests: the figures are worthless
/// then, and a target in trouble is left alone.
const FAULTS_MAX: u64 = 100;

/// How many requests to start, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    pub(super) requests: u64,
    /// From the start of the run.
    pub(super) time: Duration,
}

#[derive(Debug)]
pub(super) struct Drive<'a> {
    load: Load<'a>,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    /// Connections, by index, that may start a request.
    free: VecDeque<usize>,
    /// Requests under way.
    busy: usize,
    buffer: Vec<u8>,
    tally: Tally,
}

impl<'a> Drive<'a> {
    /// Opens nothing yet.
    pub(super) fn new(load: Load<'a>, connections: usize) -> io::Result<Self> {
        Ok(Self {
            load,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            connections: (0..connections).map(|_| None).collect(),
            free: VecDeque::with_capacity(connections),
            busy: 0,
            buffer: vec![0; READ_BYTES],
            tally: Tally::new().map_err(io::Error::other)?,
        })
    }

    /// Runs the closed loop until the quota is used up and everything under way has its end. Connections
    /// stay open for the next run.
    pub(super) fn run(&mut self, quota: Quota) -> io::Result<&Tally> {
        let cpu = thread_cpu();
        self.tally.clear();
        self.free.clear();
        self.free.extend(0..self.connections.len());
        let begun = clock::now();
        self.tally.begun = Some(begun);
        let mut left = quota.requests;
        let mut looked = begun;
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let tick = Timespec::try_from(LOOK).map_err(io::Error::other)?;
        loop {
            while left > 0 && self.tally.faults.total() < FAULTS_MAX {
                let now = clock::now();
                if now.saturating_duration_since(begun) >= quota.time {
                    left = 0;
                    break;
                }
                let Some(index) = self.free.pop_front() else {
                    break;
                };
                left -= 1;
                self.start(index)?;
            }
            if self.busy == 0 {
                break;
            }
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&tick));
            if waited.is_err_and(|errno| errno != rustix::io::Errno::INTR) {
                return Err(io::Error::other("epoll_wait failed"));
            }
            for event in events.drain(..) {
                self.ready(event)?;
            }
            let now = clock::now();
            if now.saturating_duration_since(looked) >= LOOK {
                looked = now;
                self.end_overdue(now);
            }
        }
        self.tally.own_cpu = thread_cpu().saturating_sub(cpu);
        Ok(&self.tally)
    }

    /// Starts a request. A connection that cannot be opened starts no other in this run.
    fn start(&mut self, index: usize) -> io::Result<()> {
        let Some(slot) = self.connections.get_mut(index) else {
            return Ok(());
        };
        if slot.is_none() {
            let plan = self.load.plan;
            let Ok(opened) = Connection::open(&self.load.target.addr, plan.timeout) else {
                self.tally.faults.add(Fault::Connect);
                return Ok(());
            };
            epoll::add(&self.epoll, &opened.stream, id(index), EventFlags::IN)?;
            *slot = Some(opened);
        }
        if let Some(connection) = slot {
            connection.begin(clock::now());
            self.busy += 1;
            let sent = connection.send(self.load.request);
            self.settle(index, sent.map(Turn::Waits))?;
        }
        Ok(())
    }

    fn ready(&mut self, event: Event) -> io::Result<()> {
        let (data, flags) = (event.data, event.flags);
        let Ok(index) = usize::try_from(data.u64()) else {
            return Ok(());
        };
        let Some(slot) = self.connections.get_mut(index) else {
            return Ok(());
        };
        let Some(connection) = slot else {
            // Ended by an earlier event of the same wait.
            return Ok(());
        };
        if !connection.is_busy {
            // Nobody asked, so the target ends it, or says what no one can use.
            *slot = None;
            self.tally.reconnects += 1;
            return Ok(());
        }
        let may_write = flags.contains(EventFlags::OUT) && connection.armed == Wait::Write;
        let mut turn = if may_write {
            connection.send(self.load.request).map(Turn::Waits)
        } else {
            Ok(Turn::Waits(connection.armed))
        };
        // A failed write says less than what the target said before.
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            let received = connection.receive(
                &mut self.buffer,
                self.load.request,
                self.load.answer,
                &mut self.tally,
            );
            turn = match (turn, received) {
                (Ok(wait), Ok(Turn::Waits(_))) => Ok(wait),
                (Err(fault), Ok(Turn::Waits(_))) => Err(fault),
                (_, received) => received,
            };
        }
        self.settle(index, turn)
    }

    /// Arms the socket for what its request waits for, or ends the request.
    fn settle(&mut self, index: usize, turn: Result<Turn, Fault>) -> io::Result<()> {
        let Some(slot) = self.connections.get_mut(index) else {
            return Ok(());
        };
        match turn {
            Ok(Turn::Waits(wait)) => {
                if let Some(connection) = slot.as_mut().filter(|one| one.armed != wait) {
                    let flags = match wait {
                        Wait::Read => EventFlags::IN,
                        Wait::Write => EventFlags::IN | EventFlags::OUT,
                    };
                    epoll::modify(&self.epoll, &connection.stream, id(index), flags)?;
                    connection.armed = wait;
                }
                return Ok(());
            }
            Ok(Turn::Answered { keeps: true }) => {}
            Ok(Turn::Answered { keeps: false }) => {
                *slot = None;
                self.tally.reconnects += 1;
            }
            Err(fault) => {
                *slot = None;
                self.tally.faults.add(fault);
            }
        }
        self.busy -= 1;
        self.free.push_back(index);
        Ok(())
    }

    /// Ends requests whose target neither took nor sent a byte for too long.
    fn end_overdue(&mut self, now: Instant) {
        for (index, slot) in self.connections.iter_mut().enumerate() {
            let is_overdue = slot.as_ref().is_some_and(|one| {
                let still = now.saturating_duration_since(one.progressed);
                one.is_busy && still > self.load.plan.timeout
            });
            if is_overdue {
                *slot = None;
                self.tally.faults.add(Fault::Timeout);
                self.busy -= 1;
                self.free.push_back(index);
            }
        }
    }
}

fn id(index: usize) -> EventData {
    EventData::new_u64(index as u64)
}

/// CPU that this thread has used.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
