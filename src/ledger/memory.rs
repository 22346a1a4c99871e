//! The store of a gateway that writes no file: the same three tables, gone with the process.

use std::collections::{BTreeSet, VecDeque};

use crate::ledger::conversation::Group;
use crate::ledger::question::Found;
use crate::ledger::row::{Change, Decision, Observation, Outcome, Verdict, column, micros};
use crate::ledger::sessions::{SessionMemory, SessionStore};
use crate::ledger::store::{Candidates, Keep, Store, StoreError, Table};
use crate::ledger::tokens::TokenSums;
use crate::limits::PRUNE_ROWS;

/// Bytes that a row takes beside its texts: the struct, its share of a ring, and allocations.
const ROW_BYTES: u64 = 640;

#[derive(Debug)]
struct Answered {
    row: Observation,
    id: String,
    outcome: Option<Verdict>,
}

impl Answered {
    fn found(&self) -> Found {
        Found {
            id: self.id.clone(),
            session: self.row.session.as_str().to_owned(),
            local: self.row.local,
            outcome: self.outcome,
        }
    }

    fn is_of(&self, principal: &str) -> bool {
        self.row.principal.as_deref().unwrap_or_default() == principal
    }
}

/// Tables in memory, oldest rows first.
#[derive(Debug)]
pub(super) struct Memory {
    /// The oldest rows give way to the newest beyond this.
    bytes_max: u64,
    decisions: VecDeque<Decision>,
    remote: VecDeque<Answered>,
    local: VecDeque<Answered>,
    sessions: SessionMemory,
}

impl Memory {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            decisions: VecDeque::new(),
            remote: VecDeque::new(),
            local: VecDeque::new(),
            sessions: SessionMemory::default(),
        }
    }

    /// Drops the oldest of all rows.
    fn drop_oldest(&mut self) {
        let first = |table: &VecDeque<Answered>| table.front().map_or(i64::MAX, |it| it.row.at_ms);
        let (remote, local) = (first(&self.remote), first(&self.local));
        let decision = self.decisions.front().map_or(i64::MAX, |it| it.at_ms);
        if decision <= remote.min(local) {
            drop(self.decisions.pop_front());
        } else if remote <= local {
            drop(self.remote.pop_front());
        } else {
            drop(self.local.pop_front());
        }
    }

    const fn table(&self, table: Table) -> &VecDeque<Answered> {
        match table {
            Table::Remote => &self.remote,
            Table::Local => &self.local,
        }
    }

    const fn table_mut(&mut self, table: Table) -> &mut VecDeque<Answered> {
        match table {
            Table::Remote => &mut self.remote,
            Table::Local => &mut self.local,
        }
    }

    fn bytes(&self) -> u64 {
        let rows = self.decisions.len() + self.remote.len() + self.local.len();
        (rows as u64).saturating_mul(ROW_BYTES)
    }

    fn decisions_of<'a>(
        &'a self,
        principal: &'a str,
    ) -> impl DoubleEndedIterator<Item = &'a Decision> {
        let is_theirs =
            move |row: &&Decision| row.principal.as_deref().unwrap_or_default() == principal;
        self.decisions.iter().filter(is_theirs)
    }
}

impl Store for Memory {
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        for change in changes {
            while self.bytes() >= self.bytes_max.max(ROW_BYTES) {
                self.drop_oldest();
            }
            match change {
                Change::Decided(row) => self.decisions.push_back(Decision::clone(row)),
                Change::Observed(row) => {
                    self.table_mut(Table::of(row.local)).push_back(Answered {
                        id: row.id.to_string(),
                        row: Observation::clone(row),
                        outcome: None,
                    });
                }
            }
        }
        Ok(())
    }

    fn by_request(&mut self, principal: &str, id: &str) -> Result<Option<Found>, StoreError> {
        let rows = Table::ALL.into_iter().flat_map(|it| self.table(it).iter());
        let mut theirs = rows.filter(|row| row.is_of(principal));
        Ok(theirs.find(|row| row.id == id).map(Answered::found))
    }

    fn newest(
        &mut self,
        table: Table,
        principal: &str,
        session: &str,
    ) -> Result<Option<Found>, StoreError> {
        let mut rows = self.table(table).iter().rev();
        let newest = rows.find(|row| row.is_of(principal) && row.row.session.as_str() == session);
        Ok(newest.map(Answered::found))
    }

    fn candidates(
        &mut self,
        principal: &str,
        source: Option<&str>,
        since_ms: i64,
    ) -> Result<Candidates, StoreError> {
        let mut newest: Option<&Answered> = None;
        let mut sessions = BTreeSet::new();
        for table in Table::ALL {
            let recent = self.table(table).iter().rev();
            for row in recent.take_while(|row| row.row.at_ms >= since_ms) {
                let named = source.is_none_or(|source| *row.row.source == *source);
                if !named || !row.is_of(principal) {
                    continue;
                }
                sessions.insert(row.row.session.as_str());
                if newest.is_none_or(|newest| newest.row.at_ms < row.row.at_ms) {
                    newest = Some(row);
                }
            }
        }
        Ok(Candidates {
            newest: newest.map(Answered::found),
            several: sessions.len() > 1,
        })
    }

    fn set_outcome(
        &mut self,
        found: &Found,
        outcome: &Outcome,
        _: i64,
    ) -> Result<bool, StoreError> {
        let table = self.table_mut(Table::of(found.local));
        let row = table.iter_mut().find(|row| row.id == found.id);
        row.ok_or(StoreError::Other)?.outcome = Some(outcome.verdict);
        Ok(true)
    }

    fn sessions(&mut self) -> Box<dyn SessionStore + '_> {
        Box::new(&mut self.sessions)
    }

    fn prune(&mut self, keep: Keep) -> Result<bool, StoreError> {
        let mut more = false;
        for table in Table::ALL {
            let rows = self.table_mut(table);
            more |= drop_before(rows, |row| row.row.at_ms < keep.since_ms);
        }
        more |= drop_before(&mut self.decisions, |row| row.at_ms < keep.since_ms);
        Ok(more)
    }

    fn groups(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<(Vec<Group>, usize), StoreError> {
        let mut groups: Vec<Group> = Vec::new();
        let mut found = 0;
        let rows = self.decisions_of(principal).rev();
        let rows = rows.filter(|row| row.session.as_str() == session);
        for row in rows.take(most) {
            found += 1;
            let status = i64::from(row.status);
            let same = |it: &Group| it.agent.as_deref() == row.agent() && it.status == status;
            let at = groups.iter().position(same).unwrap_or_else(|| {
                groups.push(Group {
                    agent: row.agent().map(str::to_owned),
                    status,
                    requests: 0,
                    request_bytes: 0,
                    response_bytes: 0,
                    answered: 0,
                    first_byte_us: 0,
                    first_byte_us_max: 0,
                    first_at: row.at_ms,
                    last_at: row.at_ms,
                    tokens: TokenSums::default(),
                });
                groups.len() - 1
            });
            let Some(group) = groups.get_mut(at) else {
                continue;
            };
            group.requests += 1;
            group.request_bytes += column(row.request_bytes);
            group.response_bytes += column(row.response_bytes);
            if let Some(first_byte) = row.first_byte.map(micros) {
                group.answered += 1;
                group.first_byte_us += first_byte;
                group.first_byte_us_max = group.first_byte_us_max.max(first_byte);
            }
            group.tokens.add(&row.tokens());
            group.first_at = group.first_at.min(row.at_ms);
            group.last_at = group.last_at.max(row.at_ms);
        }
        groups.sort_by(|a, b| (&a.agent, a.status).cmp(&(&b.agent, b.status)));
        Ok((groups, found))
    }

    fn children(
        &mut self,
        principal: &str,
        session: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let rows = self.decisions_of(principal);
        let children = rows.filter(|row| row.parent() == Some(session));
        let keys: BTreeSet<_> = children.map(|row| row.session.as_str()).collect();
        Ok(keys.into_iter().take(most).map(str::to_owned).collect())
    }

    fn newest_conversations(
        &mut self,
        principal: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let mut keys: Vec<String> = Vec::new();
        for row in self.decisions_of(principal).rev() {
            if keys.len() == most {
                break;
            }
            if !keys.iter().any(|key| key == row.session.as_str()) {
                keys.push(row.session.as_str().to_owned());
            }
        }
        Ok(keys)
    }
}

/// Drops a bounded number of rows from the front while they are unwanted. Whether it stopped at the
/// bound.
fn drop_before<T>(rows: &mut VecDeque<T>, unwanted: impl Fn(&T) -> bool) -> bool {
    for _ in 0..PRUNE_ROWS {
        if !rows.front().is_some_and(&unwanted) {
            return false;
        }
        drop(rows.pop_front());
    }
    true
}
