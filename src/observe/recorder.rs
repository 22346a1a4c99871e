//! The way of a record off its core: a bounded queue, a thread that keeps the last ones and writes
//! lines, and a second thread that does nothing but write, so that a reader of the log who stops
//! reading stops nothing else.

#![expect(
    clippy::disallowed_types,
    reason = "the lock is between the log thread and who asks for a record; no core takes it"
)]

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::clock;
use crate::limits::{
    EXPLAINED_RECORDS, LOG_BATCH_RECORDS, LOG_BATCHES, LOG_FLUSH_MS, LOG_LOOK_MS, RECORDS_QUEUED,
};
use crate::observe::{Record, line};

/// Where access lines go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// Nowhere.
    None,
}

/// A core's end of the queue.
#[derive(Clone, Debug)]
pub struct Observer {
    records: Sender<Record>,
    kept: Arc<Kept>,
}

/// What the threads and their readers share.
#[derive(Debug, Default)]
struct Kept {
    /// Records that found the queue full.
    lost: AtomicU64,
    /// Records whose line found the writer busy.
    unwritten: AtomicU64,
    /// The last records with the time at which each was taken off the queue, oldest first.
    last: Mutex<VecDeque<(Duration, Record)>>,
}

impl Observer {
    /// Hands a record over, or drops it if the queue is full.
    pub fn observe(&self, record: Record) {
        if self.records.try_send(record).is_err() {
            self.kept.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that were dropped because the queue was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.kept.lost.load(Ordering::Relaxed)
    }

    /// Records that have no access line because the writer was busy.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        self.kept.unwritten.load(Ordering::Relaxed)
    }

    /// The record with this id, if it is among the last [`EXPLAINED_RECORDS`], as its access line
    /// with what was known of the body.
    #[must_use]
    pub fn explained(&self, id: &str) -> Option<Vec<u8>> {
        let last = self
            .kept
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (time, record) = last.iter().rev().find(|(_, r)| r.id.to_string() == id)?;
        let mut out = Vec::new();
        line::explain(record, *time, &mut out);
        Some(out)
    }
}

/// Who sees every record that is taken off the queue, on the thread that does.
pub trait Follower: Send {
    /// One record, taken at `time` since the Unix epoch. Must not wait.
    fn follow(&mut self, record: &Record, time: Duration);
}

/// The threads behind all observers.
pub struct Recorder {
    observer: Observer,
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Recorder {
    /// Starts the threads; `follower` sees what they see.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(access: AccessLog, follower: Option<Box<dyn Follower>>) -> io::Result<Self> {
        let (records, queue) = bounded(RECORDS_QUEUED);
        let (stop, stopped) = bounded::<()>(0);
        let (end, ended) = bounded::<()>(1);
        let kept = Arc::<Kept>::default();
        let observer = Observer {
            records,
            kept: Arc::clone(&kept),
        };
        let (batches, writer) = match access {
            AccessLog::Stdout => started_writer(io::stdout)?,
            AccessLog::Stderr => started_writer(io::stderr)?,
            AccessLog::None => (None, None),
        };
        let run = move || {
            keep(&queue, &stopped, &kept, (batches, follower));
            if let Some(writer) = writer {
                let _panicked_writer = writer.join();
            }
            let _nobody_waits = end.try_send(());
        };
        thread::Builder::new()
            .name("lanegate-log".to_owned())
            .spawn(run)?;
        Ok(Self {
            observer,
            stop: Some(stop),
            ended,
        })
    }

    /// An end of the queue for a core.
    #[must_use]
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Writes what is queued and ends; gives up on a reader that takes nothing for
    /// [`LOG_FLUSH_MS`].
    pub fn finish(mut self) {
        drop(self.stop.take());
        let _gave_up = self.ended.recv_timeout(Duration::from_millis(LOG_FLUSH_MS));
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

type Batches = Option<Sender<Vec<u8>>>;

fn started_writer<W: Write + 'static>(
    open: fn() -> W,
) -> io::Result<(Batches, Option<JoinHandle<()>>)> {
    let (batches, queue) = bounded::<Vec<u8>>(LOG_BATCHES);
    let write = move || {
        let mut out = open();
        for batch in queue {
            // Who closed the log does not want it.
            let _nobody_reads = out.write_all(&batch).and_then(|()| out.flush());
        }
    };
    let thread = thread::Builder::new()
        .name("lanegate-write".to_owned())
        .spawn(write)?;
    Ok((Some(batches), Some(thread)))
}

/// Takes records off the queue until told to stop and the queue is empty. It looks at the queue
/// every [`LOG_LOOK_MS`] and is never woken: a wake-up would cost the core a system call a request.
fn keep(
    queue: &Receiver<Record>,
    stopped: &Receiver<()>,
    kept: &Kept,
    (batches, mut follower): (Batches, Option<Box<dyn Follower>>),
) {
    let mut stopping = false;
    loop {
        let mut taken = 0_u64;
        let mut lines = Vec::new();
        let time = clock::unix_time();
        let mut last = kept.last.lock().unwrap_or_else(PoisonError::into_inner);
        for record in queue.try_iter().take(LOG_BATCH_RECORDS) {
            taken += 1;
            if batches.is_some() {
                line::write(&record, time, &mut lines);
            }
            if let Some(follower) = &mut follower {
                follower.follow(&record, time);
            }
            if last.len() == EXPLAINED_RECORDS {
                last.pop_front();
            }
            last.push_back((time, record));
        }
        drop(last);
        if let Some(batches) = batches.as_ref().filter(|_| !lines.is_empty())
            && batches.try_send(lines).is_err()
        {
            kept.unwritten.fetch_add(taken, Ordering::Relaxed);
        }
        match (taken, stopping) {
            (0, true) => return,
            (0, false) => {
                let look = Duration::from_millis(LOG_LOOK_MS);
                stopping = stopped.recv_timeout(look) == Err(RecvTimeoutError::Disconnected);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::RequestIds;

    /// What is known of a record after `more` came behind it.
    fn explained_after(more: usize) -> Option<String> {
        let recorder = Recorder::start(AccessLog::None, None).unwrap();
        let observer = recorder.observer();
        let ids = RequestIds::new(1);
        let first = Record::begin(ids.next());
        let id = first.id.to_string();
        observer.observe(first);
        for _ in 0..more {
            observer.observe(Record::begin(ids.next()));
        }
        recorder.finish();
        assert_eq!(observer.lost(), 0);
        assert!(observer.explained("req_unknown").is_none());
        let line = observer.explained(&id)?;
        let line = String::from_utf8(line).unwrap();
        assert!(line.contains(&id));
        Some(line)
    }

    #[test]
    fn a_record_is_explained_while_it_is_among_the_last() {
        assert!(explained_after(EXPLAINED_RECORDS / 2).is_some());
        assert!(explained_after(EXPLAINED_RECORDS).is_none());
    }

    #[test]
    fn a_full_queue_loses_records_and_counts_them() {
        let (records, queue) = bounded(2);
        let observer = Observer {
            records,
            kept: Arc::default(),
        };
        let ids = RequestIds::new(1);
        for _ in 0..5 {
            observer.observe(Record::begin(ids.next()));
        }
        assert_eq!(observer.lost(), 3);
        assert_eq!(queue.len(), 2);
    }
}
