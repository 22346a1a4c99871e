//! Every bound of the gateway: unit, scope, reason. Bounds that an operator may set are defaults in
//! `config`; what stands here is fixed, because a wrong value would break a promise and not a load.

/// Bytes of the ordinary block: one read of a socket, one response buffer of an exchange. 16 KiB is
/// the size at which a copy stops being dominated by the system call (measured, docs/decisions/0001).
pub const BLOCK_BYTES: usize = 16 * 1024;

/// Bytes of a widened request window. 256 KiB costs 0.73 to 0.85 of the CPU of 64 KiB per upload
/// and is the most that one upload holds in user memory while it streams.
pub const WIDE_BLOCK_BYTES: usize = 256 * 1024;

/// Bytes of a write in several pieces up to which they are copied into one: a vectored call costs more
/// than the copy (docs/benchmarks.md).
pub const JOINED_WRITE_BYTES: usize = 2 * 1024;

/// Agents whose tokens have series of their own; what the others cost is one (decisions I6).
pub const AGENT_SERIES_MAX: usize = 64;

/// Timers that a core keeps for what waits next (100 KiB).
pub const SPARE_TIMERS: usize = 256;

/// Body bytes still expected above which an upload gets a wide block.
pub const WIDEN_ABOVE_BYTES: u64 = 64 * 1024;

/// Body bytes from which a body whose route is still open reserves memory for all of it.
pub const RESERVE_ABOVE_BYTES: usize = 64 * 1024;

/// Ordinary blocks that a core keeps for reuse (4 MiB); more are given back to the allocator.
pub const IDLE_BLOCKS: usize = 256;

/// Wide blocks that a core keeps for reuse (4 MiB). A fresh one costs 64 page faults.
pub const IDLE_WIDE_BLOCKS: usize = 16;

/// Body bytes that are read and dropped after an early answer, so that the client can read it
/// (per exchange). A plain close instead lost the answer in 20 of 20 tries.
pub const LINGER_BYTES: u64 = 1024 * 1024;

/// Informational responses passed on per exchange; one more is an upstream fault.
pub const INTERIM_RESPONSES: u32 = 8;

/// Bytes of an upstream's response head (per head); the torture corpus calls 80 KiB hostile.
pub const RESPONSE_HEAD_BYTES: usize = 64 * 1024;

/// Fields of an upstream's response head (per head).
pub const RESPONSE_HEAD_FIELDS: usize = 200;

/// Idle upstream connections kept per core and provider.
pub const IDLE_UPSTREAM_CONNECTIONS: usize = 64;

/// Attempts of one exchange at its upstream: the first, and one more under the retry rule.
pub const ATTEMPTS: u32 = 2;

/// Pause between two accepts that failed for want of descriptors or memory, milliseconds.
pub const ACCEPT_PAUSE_MS: u64 = 10;

/// Connections that one core accepts before everything else on it has a turn.
pub const ACCEPT_BURST: u32 = 64;

/// Connections on their way from other cores to one; beyond it they stay where they were accepted.
pub const HANDED_MAX: usize = 256;

/// Connections that a core may have more than the one with the fewest before it hands over, where a
/// quarter of those is less. Moving them costs more than so small a difference.
pub const UNEVEN_MIN: usize = 4;

/// Interval at which a core says that it runs, looks at its flags and prunes its pools, milliseconds.
pub const BEAT_MS: u64 = 100;

/// Interval at which the process says how many exchanges still run after it was told to stop, seconds.
pub const DRAIN_REPORT_SECONDS: u64 = 5;

/// Longest wait for the first request of a connection that was accepted when the process stops,
/// milliseconds: a round trip across the world, three times over.
pub const FIRST_REQUEST_MS: u64 = 1_000;

/// How long a listener that answers no new handshake still takes those that had begun, milliseconds.
/// Their last packet is one round trip away.
pub const LAST_HANDSHAKES_MS: u64 = 100;

/// Age of a core's last beat above which the process is not ready for new work, milliseconds. Twenty
/// missed beats: no stage may take a hundredth of it, so that a core which does is stuck and not slow.
pub const READY_MS: u64 = 2_000;

/// Age of a core's last beat above which the process is not believed alive, milliseconds. Late enough
/// that a paused machine comes back before its supervisor ends it.
pub const ALIVE_MS: u64 = 10_000;

/// Pending connections asked of the kernel per listener; the kernel caps it at `somaxconn`.
pub const BACKLOG: i32 = 4096;

/// Longest that a freshly written request waits between two looks at the acknowledgement counter
/// of a reused connection, milliseconds.
pub const ACKNOWLEDGED_LOOK_MS: u64 = 1;

/// Addresses of one provider that a connect tries, in order.
pub const ADDRESSES: usize = 8;

/// Containers open at once inside the root object of a body that is scanned (per body). Far above
/// what tool schemas need; it bounds the scanner's stack to one word.
pub const NESTING_MAX: u32 = 128;

/// Bytes of a model name, decoded, that routes can match (per body).
pub const MODEL_BYTES_MAX: usize = 256;

/// Bytes of `prompt_cache_key`, `metadata.user_id`, `user` or `session_id`, decoded (per body and
/// field). Claude Code's `user_id` is a JSON text of about 200 bytes.
pub const SESSION_FIELD_BYTES_MAX: usize = 1024;

/// Longest wait of `lanegate probe` for a connection, and again for each read, milliseconds: a switch
/// is answered at once, and a model that was asked instead within this or never mind.
pub const PROBE_WAIT_MS: u64 = 60_000;

/// Bytes of an answer that `lanegate probe` reads.
pub const PROBE_ANSWER_BYTES: u64 = 1024 * 1024;

/// Locks among which the entries of the switch dictionary are spread (per process).
pub const SWITCH_SHARDS: usize = 16;

/// Bytes of a tool's name, decoded (per tool); providers allow 64 to 128.
pub const TOOL_NAME_BYTES_MAX: usize = 128;

/// Bytes of the last user text, decoded and without white space around it, beyond which it is not
/// kept (per body). The longest switch literal has 12.
pub const USER_TEXT_BYTES_MAX: usize = 64;

/// The first byte of every switch literal; a user text that begins otherwise is not kept either.
pub const USER_TEXT_FIRST: u8 = b'-';

/// Bytes of the window that a compressed body may ask for (per body). Encoders take 2 to 8 MiB unless
/// told otherwise; RFC 9659 names 8 MiB as what every decoder of zstd has.
pub const CODING_WINDOW_BYTES: u64 = 8 * 1024 * 1024;

/// How many times its length a compressed body may decode to. Prompts reach 3 to 20.
pub const CODING_RATIO_MAX: u64 = 200;

/// Bytes of a compressed body that are decoded at a time. The ratio counts a begun piece as a whole,
/// so that any body may decode to 200 KiB.
pub const CODING_PIECE_BYTES: usize = 1024;

/// Bytes of a compressed body, taken and made, after which everything else on the core has a turn:
/// about 0.5 ms of decoding and scanning.
pub const CODING_TURN_BYTES: usize = 128 * 1024;

/// Memory that the decoder of a compressed response may take for the usage tap (per response): gzip and
/// deflate fit. Nothing is reserved for it, so it has to be small beside the block of an exchange.
pub const TAP_DECODER_BYTES: u64 = 64 * 1024;

/// Bytes of one event's data that the usage tap reads. It keeps none of them: the last event of a
/// response carries all of its output, images included, and the bound is for what never ends.
pub const TAP_EVENT_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of one event's data up to which an answer is held back while the event can still be the extra
/// chunk that `usage: inject` takes out (per response, in the block that they were read into). Providers
/// write 300 to 1,500.
pub const EXTRA_CHUNK_BYTES: u64 = 4 * 1024;

/// Bytes that may wait in an encrypted connection for its socket to take them (per connection): four
/// records of the largest size.
pub const TLS_SEND_BYTES: usize = 64 * 1024;

/// Reads of a socket in one read of an encrypted connection, which may all find what is not for the
/// reader. A record of the largest size takes five.
pub const TLS_READS: u32 = 16;

/// Sessions of one provider that may be resumed (per provider); servers send two a handshake.
pub const TLS_TICKETS: usize = 8;

/// Records of exchanges that wait for the log thread, all cores together (about 2 MiB): 0.2 s of 40,000
/// requests a second; the thread looks every [`LOG_LOOK_MS`].
pub const RECORDS_QUEUED: usize = 8 * 1024;

/// Interval at which the log thread looks at an empty queue, milliseconds.
pub const LOG_LOOK_MS: u64 = 20;

/// Records whose lines are written in one piece.
pub const LOG_BATCH_RECORDS: usize = 1024;

/// Pieces of log that wait for the writer, up to about 400 KiB each.
pub const LOG_BATCHES: usize = 32;

/// Longest wait at the end for a reader of the log, milliseconds.
pub const LOG_FLUSH_MS: u64 = 1000;

/// Records that can be asked for by request id.
pub const EXPLAINED_RECORDS: usize = 4096;

/// Connections to the admin listener at a time; one more cuts the oldest. Scrapers and supervisors are
/// a handful.
pub const ADMIN_CONNECTIONS: usize = 16;

/// Longest wait for a request on an admin connection, and again for its answer to be taken,
/// milliseconds.
pub const ADMIN_CONNECTION_MS: u64 = 5_000;

/// Bytes of the head of an admin request.
pub const ADMIN_HEAD_BYTES: usize = 16 * 1024;

/// Fields of the head of an admin request.
pub const ADMIN_HEAD_FIELDS: usize = 64;

/// Bytes of the body of an admin request, which is read and dropped.
pub const ADMIN_BODY_BYTES: usize = 4096;

/// Bytes of the id of a conversation, in a field or in a report (contract in docs/api.md).
pub const CONVERSATION_BYTES_MAX: usize = 128;

/// Bytes of the name of an agent (contract in docs/api.md).
pub const AGENT_BYTES_MAX: usize = 64;

/// Decoded bytes of system text that a fingerprint covers (per body). Past it only that there is more
/// counts.
pub const FINGERPRINT_BYTES_MAX: usize = 64 * 1024;

/// Decoded bytes of the first user text that a fingerprint covers where there is no system text.
pub const FINGERPRINT_USER_BYTES_MAX: usize = 4096;

/// Answers of one core that wait for the ledger (about 0.7 MiB): 0.2 s of 20,000 a second; the ledger
/// looks every [`LEDGER_LOOK_MS`].
pub const ANSWERS_QUEUED: usize = 4 * 1024;

/// Decisions that wait for the ledger, all cores together (about 3 MiB when full).
pub const DECISIONS_QUEUED: usize = 8 * 1024;

/// Interval at which the ledger looks at its queues, milliseconds.
pub const LEDGER_LOOK_MS: u64 = 20;

/// Answers that an outcome can be reported for without asking the store (per core).
pub const RECENT_ANSWERS: usize = 8 * 1024;

/// Changes that wait for the store (about 20 MiB when full); one more is lost, with a count.
pub const CHANGES_QUEUED: usize = 64 * 1024;

/// Changes in one transaction.
pub const LEDGER_BATCH_ROWS: usize = 1024;

/// Rows that one step of the retention deletes from each table: a few milliseconds of the store.
pub const PRUNE_ROWS: u32 = 1024;

/// Pause between two steps of the retention where there is more to delete, milliseconds: 20,000 rows of each
/// table a second, faster than rows come.
pub const PRUNE_PAUSE_MS: u64 = 50;

/// Interval at which the store is looked at for rows to delete, milliseconds.
pub const PRUNE_LOOK_MS: u64 = 5_000;

/// Questions that wait for the ledger at a time, those of operators included.
pub const QUESTIONS_QUEUED: usize = 256;

/// Longest wait of a question for its answer, milliseconds; then the ledger is out of reach.
pub const QUESTION_WAIT_MS: u64 = 2_000;

/// Interval at which a core looks for the answer to a question, milliseconds.
pub const QUESTION_LOOK_MS: u64 = 2;

/// Longest wait of a statement for another process that has the database locked, milliseconds.
pub const STORE_BUSY_MS: u64 = 250;

/// Longest wait for a connection to a database, from the look-up of its name to the end of the login, milliseconds.
pub const STORE_CONNECT_MS: u64 = 5_000;

/// Longest time of a statement in a database, milliseconds; its server ends it then.
pub const STORE_STATEMENT_MS: u64 = 8_000;

/// Longest wait for the answers to one call to a database, milliseconds; the connection is given up then. Longer
/// than [`STORE_STATEMENT_MS`], so that a server that works says so itself.
pub const STORE_ANSWER_MS: u64 = 10_000;

/// Longest wait of a statement for a lock in a database, milliseconds.
pub const STORE_LOCK_MS: u64 = 2_000;

/// Bytes that a row counts for in a database, with its indexes.
pub const STORE_ROW_BYTES: u64 = 512;

/// Attempts to put a report down to a row that other gateways report of at the same time.
pub const RECORD_TRIES: usize = 3;

/// Bytes of the URL of a store.
pub const STORE_URL_BYTES: usize = 4096;

/// Pause before a store that failed is tried again, milliseconds: the first, and the longest.
pub const STORE_RETRY_MS: (u64, u64) = (1_000, 30_000);

/// Longest wait at the end for what is queued to be stored, milliseconds.
pub const LEDGER_FLUSH_MS: u64 = 3_000;

/// Bytes of the body of `POST /outcome`.
pub const OUTCOME_BODY_BYTES: usize = 16 * 1024;

/// Bytes of `request_id`, `source` and `kind` in a report; longer ones match nothing.
pub const OUTCOME_TEXT_BYTES_MAX: usize = 128;

/// How old an answer may be to which a report without ids is put down, seconds. A test that an agent runs
/// ends within minutes of the answer that asked for it.
pub const OUTCOME_WINDOW_SECONDS: u64 = 600;

/// Generations of sub-conversations that a sum goes down.
pub const CONVERSATION_DEPTH_MAX: usize = 8;

/// Conversations in one sum.
pub const CONVERSATION_NODES_MAX: usize = 256;

/// Decisions that one sum adds up, the newest ones of each conversation, and newest decisions of all that a list of
/// conversations is made of: some tenths of a second of the store, which stores nothing meanwhile.
pub const CONVERSATION_ROWS_MAX: usize = 100_000;

/// Groups of agent and status in the sum of one conversation, and conversations in a list.
pub const CONVERSATION_GROUPS_MAX: usize = 100;

/// Parts that the window of the adoption numbers is made of.
pub const ADOPTION_PARTS: usize = 24;

/// Bytes of the client's model in a row, and of a record that every exchange carries; a longer name is
/// cut. Names of models have 10 to 50.
pub const ROW_MODEL_BYTES_MAX: usize = 64;

/// Body bytes that must come within `timeouts.request_progress` while a provider waits for them. At
/// the default of 10 s that is 13 kbit/s, less than any network that carries an agent.
pub const REQUEST_PROGRESS_BYTES: u64 = 16 * 1024;

/// Interval at which a client is looked at while its request waits for something else, milliseconds.
pub const CLIENT_LOOK_MS: u64 = 100;

/// Questions about sessions that wait for the store, all cores together (about 1 MiB); one more is not asked, and
/// its session stays as it was.
pub const SESSION_ASKS_QUEUED: usize = 8 * 1024;

/// Sessions of which something is kept in memory (at most 15 MiB), and identified ones that cores know of (2 MiB).
pub const SESSIONS_KEPT: usize = 64 * 1024;

/// How long cores know of an identified session that nobody asks for, minutes. It is kept in the store.
pub const POSITIVE_IDLE_MINUTES: u32 = 30;

/// Sessions that wait to be asked about (about 150 KiB); one more is not asked about, until its next turn.
pub const REMOTE_QUESTIONS_QUEUED: usize = 1024;

/// Sessions that are asked about at a time. A service that hangs for as long as it may keeps as many waiting.
pub const REMOTE_AT_ONCE: usize = 16;

/// Interval at which who asks looks whether the store has answered, milliseconds.
pub const REMOTE_LOOK_MS: u64 = 2;

/// Most attempts at the remote service for one session that may be configured.
pub const REMOTE_ATTEMPTS_MAX: u32 = 5;

/// One core among those of the process, which share what is bounded for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of this core, from 0.
    pub index: usize,
    /// Number of cores.
    pub of: usize,
}

impl Part {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// What this core has of `total`. The parts add up to it, but no core goes without: below one
    /// each they add up to the number of cores.
    #[must_use]
    pub fn share(self, total: usize) -> usize {
        let cores = self.of.max(1);
        let rest = usize::from(self.index < total % cores);
        (total / cores + rest).max(1)
    }
}

const _: () = assert!(BEAT_MS * 10 <= READY_MS && READY_MS < ALIVE_MS);
const _: () = assert!(BLOCK_BYTES < WIDE_BLOCK_BYTES);
// What is held leaves room for the next read.
const _: () = assert!(EXTRA_CHUNK_BYTES <= BLOCK_BYTES as u64 / 2);
const _: () = assert!(WIDEN_ABOVE_BYTES >= BLOCK_BYTES as u64);
const _: () =
    assert!(RESPONSE_HEAD_BYTES >= BLOCK_BYTES && RESPONSE_HEAD_BYTES <= WIDE_BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_no_core_goes_without() {
        for (total, of, sum) in [
            (100, 3, 100),
            (7, 7, 7),
            (4096, 16, 4096),
            (2, 5, 5),
            (0, 2, 2),
        ] {
            let parts: Vec<_> = (0..of)
                .map(|index| Part { index, of }.share(total))
                .collect();
            assert_eq!(
                parts.iter().sum::<usize>(),
                sum,
                "{total} over {of}: {parts:?}"
            );
            assert!(parts[0] - parts[of - 1] <= 1);
        }
    }
}
