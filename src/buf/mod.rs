//! Blocks of bytes that belong to one core.
//!
//! A connection that waits holds none; one that moves bytes takes a block and gives it back by
//! dropping it. Free blocks are kept up to a cap, so a burst does not stay resident. Wide blocks
//! are granted only while the core uses less than half of its request share: an upload is then
//! slower by a few system calls, never refused.

mod budget;
mod tally;

pub use budget::{Ask, Budget, Grower, Reservation};
pub use tally::{Share, Tally};

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use crate::buf::tally::Counted;
use crate::limits::{BLOCK_BYTES, IDLE_BLOCKS, IDLE_WIDE_BLOCKS, WIDE_BLOCK_BYTES};

/// The block store of one core.
#[derive(Clone)]
pub struct Pool {
    shelf: Rc<RefCell<Shelf>>,
}

struct Shelf {
    ordinary: Vec<Box<[u8]>>,
    wide: Vec<Box<[u8]>>,
    used_bytes: usize,
    share_bytes: usize,
}

impl Pool {
    /// A store for one core whose blocks should stay below `share_bytes`.
    #[must_use]
    pub fn new(share_bytes: usize) -> Self {
        let shelf = Shelf {
            ordinary: Vec::new(),
            wide: Vec::new(),
            used_bytes: 0,
            share_bytes,
        };
        Self {
            shelf: Rc::new(RefCell::new(shelf)),
        }
    }

    /// A block of [`BLOCK_BYTES`].
    #[must_use]
    pub fn ordinary(&self) -> Block {
        let kept = self.shelf.borrow_mut().ordinary.pop();
        self.lend(kept, BLOCK_BYTES)
    }

    /// A block of [`WIDE_BLOCK_BYTES`], or none while half of the share is in use.
    #[must_use]
    pub fn wide(&self) -> Option<Block> {
        let mut shelf = self.shelf.borrow_mut();
        if shelf.used_bytes.saturating_add(WIDE_BLOCK_BYTES) > shelf.share_bytes / 2 {
            return None;
        }
        let kept = shelf.wide.pop();
        drop(shelf);
        Some(self.lend(kept, WIDE_BLOCK_BYTES))
    }

    /// A block that holds at least `bytes`, for a head that outgrew the ordinary one.
    #[must_use]
    pub fn at_least(&self, bytes: usize) -> Block {
        if bytes <= BLOCK_BYTES {
            return self.ordinary();
        }
        self.lend(None, bytes)
    }

    /// A block for a body whose memory was reserved from the budget.
    fn reserved(&self, bytes: usize) -> Block {
        Block {
            bytes: vec![0; bytes].into_boxed_slice(),
            home: self.clone(),
            reserved: true,
        }
    }

    /// Whether less than half of the share is in use, so that an exchange may gather a full window.
    #[must_use]
    pub fn is_roomy(&self) -> bool {
        let shelf = self.shelf.borrow();
        shelf.used_bytes <= shelf.share_bytes / 2
    }

    /// Bytes of the blocks that are lent at this moment.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.shelf.borrow().used_bytes
    }

    fn lend(&self, kept: Option<Box<[u8]>>, bytes: usize) -> Block {
        let mut shelf = self.shelf.borrow_mut();
        shelf.used_bytes = shelf.used_bytes.saturating_add(bytes);
        drop(shelf);
        let bytes = kept.unwrap_or_else(|| vec![0; bytes].into_boxed_slice());
        Block {
            bytes,
            home: self.clone(),
            reserved: false,
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("used_bytes", &self.used_bytes())
            .finish_non_exhaustive()
    }
}

/// Bytes lent by a [`Pool`]; dropping gives them back.
pub struct Block {
    bytes: Box<[u8]>,
    home: Pool,
    /// Its bytes count against the budget of reservations and not against the core's share.
    reserved: bool,
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.reserved {
            return;
        }
        let mut shelf = self.home.shelf.borrow_mut();
        let bytes = std::mem::take(&mut self.bytes);
        shelf.used_bytes = shelf.used_bytes.saturating_sub(bytes.len());
        let (shelf, cap) = match bytes.len() {
            BLOCK_BYTES => (&mut shelf.ordinary, IDLE_BLOCKS),
            WIDE_BLOCK_BYTES => (&mut shelf.wide, IDLE_WIDE_BLOCKS),
            _ => return,
        };
        if shelf.len() < cap {
            shelf.push(bytes);
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Bytes read but not yet used, in a block that is held only while there are any.
#[derive(Debug)]
pub struct Input {
    pool: Pool,
    block: Option<Block>,
    start: usize,
    end: usize,
    /// Where the block is counted while the bytes are those of a request on its way.
    counted: Option<Counted>,
}

impl Input {
    /// An empty input that takes its blocks from `pool`.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            block: None,
            start: 0,
            end: 0,
            counted: None,
        }
    }

    /// Counts the block, and those that follow it, in `share` for as long as that exists.
    pub fn count_in(&mut self, share: &Share) {
        self.counted = Some(share.counted());
        self.count();
    }

    fn count(&self) {
        if let Some(counted) = &self.counted {
            counted.set(self.held_bytes());
        }
    }

    fn hold(&mut self, block: Option<Block>) {
        self.block = block;
        self.count();
    }

    /// A wide block, where neither the core nor the share it is counted in is half used up.
    fn wide(&self) -> Option<Block> {
        let allowed = self.counted.as_ref().is_none_or(Counted::may_widen);
        allowed.then(|| self.pool.wide()).flatten()
    }

    /// The unread bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.block
            .as_ref()
            .and_then(|b| b.get(self.start..self.end))
            .unwrap_or_default()
    }

    /// A block of [`BLOCK_BYTES`] from where this input has its own.
    #[must_use]
    pub fn spare(&self) -> Block {
        self.pool.ordinary()
    }

    /// The unread bytes, for a decoder that works in place.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.block
            .as_mut()
            .and_then(|b| b.get_mut(self.start..self.end))
            .unwrap_or_default()
    }

    /// Number of unread bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Bytes that it holds of the core's share: those of its block, unless they were reserved for.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.block
            .as_ref()
            .filter(|block| !block.reserved)
            .map_or(0, |block| block.len())
    }

    /// Whether nothing is unread.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Marks the first `count` unread bytes as used; gives the block back when none are left.
    pub fn consume(&mut self, count: usize) {
        self.start = self.end.min(self.start.saturating_add(count));
        if self.is_empty() {
            self.release();
        }
    }

    /// Takes `count` unread bytes out from `at` on; what is behind them moves up.
    pub fn remove(&mut self, at: usize, count: usize) {
        let count = count.min(self.len().saturating_sub(at));
        let from = self.start + at;
        if let Some(block) = &mut self.block {
            block.copy_within(from + count..self.end, from);
        }
        self.end -= count;
        if self.is_empty() {
            self.release();
        }
    }

    /// Forgets everything and gives the block back.
    pub fn release(&mut self) {
        self.hold(None);
        self.start = 0;
        self.end = 0;
    }

    /// Room behind the unread bytes, at least one byte, from a block of at least `capacity`
    /// bytes in all; none when `capacity` unread bytes are already held.
    pub fn room(&mut self, capacity: usize) -> Option<&mut [u8]> {
        if self.len() >= capacity {
            return None;
        }
        let held = self.block.as_ref().map_or(0, |b| b.len());
        if held == 0 {
            self.hold(Some(self.pool.at_least(capacity.min(BLOCK_BYTES))));
        } else if self.end == held && self.start == 0 {
            let target = capacity.min(held.saturating_mul(4)).max(BLOCK_BYTES);
            // One step to the size that is kept for reuse, where there is a way for it to be used.
            let kept = (capacity >= WIDE_BLOCK_BYTES && held < WIDE_BLOCK_BYTES)
                .then(|| self.wide())
                .flatten();
            self.move_into(kept.unwrap_or_else(|| self.pool.at_least(target)));
        } else if self.end == held {
            if let Some(block) = &mut self.block {
                block.copy_within(self.start..self.end, 0);
            }
            self.end -= self.start;
            self.start = 0;
        }
        let end = self.end;
        self.block
            .as_mut()
            .and_then(|b| b.get_mut(end..))
            .filter(|room| !room.is_empty())
    }

    /// Moves what is unread out of a block that was reserved for, into one of ordinary size.
    pub fn shrink(&mut self) {
        if self.block.as_ref().is_some_and(|block| block.reserved) {
            self.move_into(self.pool.at_least(self.len()));
        }
    }

    /// Moves the unread bytes into a block of at least `bytes`, for a body that was reserved for.
    pub fn reserve(&mut self, bytes: usize) {
        if self
            .block
            .as_ref()
            .is_some_and(|block| block.len() >= bytes)
        {
            return;
        }
        self.move_into(self.pool.reserved(bytes));
    }

    /// Goes on in `block`, which has room for what is unread.
    fn move_into(&mut self, mut block: Block) {
        let held = self.bytes();
        let count = held.len();
        if let Some(room) = block.get_mut(..count) {
            room.copy_from_slice(held);
        }
        self.hold(Some(block));
        self.start = 0;
        self.end = count;
    }

    /// Exchanges the block for an empty wide one if the input is empty and the pool grants it.
    pub fn widen(&mut self) {
        if self.is_empty()
            && self
                .block
                .as_ref()
                .is_none_or(|b| b.len() < WIDE_BLOCK_BYTES)
        {
            if let Some(wide) = self.wide() {
                self.hold(Some(wide));
            }
            self.start = 0;
            self.end = 0;
        }
    }

    /// Marks `count` bytes of the room as read from the peer.
    pub fn filled(&mut self, count: usize) {
        let held = self.block.as_ref().map_or(0, |b| b.len());
        self.end = held.min(self.end.saturating_add(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_block_is_used_again_and_counted() {
        let pool = Pool::new(1 << 20);
        let block = pool.ordinary();
        let address = block.as_ptr();
        assert_eq!(pool.used_bytes(), BLOCK_BYTES);
        drop(block);
        assert_eq!(pool.used_bytes(), 0);
        assert_eq!(pool.ordinary().as_ptr(), address);
    }

    #[test]
    fn wide_blocks_stop_at_half_of_the_share() {
        let pool = Pool::new(4 * WIDE_BLOCK_BYTES);
        let held = [pool.wide(), pool.wide()];
        assert!(held.iter().all(Option::is_some));
        assert!(pool.wide().is_none());
    }

    #[test]
    fn an_empty_input_holds_no_block() {
        let pool = Pool::new(1 << 20);
        let mut input = Input::new(pool.clone());
        input.room(64).unwrap()[..5].copy_from_slice(b"hello");
        input.filled(5);
        assert_eq!(input.bytes(), b"hello");
        input.consume(2);
        assert_eq!(input.bytes(), b"llo");
        input.consume(3);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_reserved_block_counts_for_nothing_and_shrinks_to_what_is_unread() {
        let pool = Pool::new(1 << 20);
        let mut input = Input::new(pool.clone());
        input.room(64).unwrap()[..5].copy_from_slice(b"hello");
        input.filled(5);
        input.reserve(1 << 22);
        assert_eq!(pool.used_bytes(), 0);
        input.consume(3);
        input.shrink();
        assert_eq!(
            (input.bytes(), pool.used_bytes()),
            (&b"lo"[..], BLOCK_BYTES)
        );
    }

    #[test]
    fn bytes_in_the_middle_can_be_taken_out() {
        let mut input = Input::new(Pool::new(1 << 20));
        input.room(64).unwrap()[..8].copy_from_slice(b"xabXXcdx");
        input.filled(8);
        input.consume(1);
        input.remove(2, 2);
        assert_eq!(input.bytes(), b"abcdx");
        input.remove(4, 99);
        assert_eq!(input.bytes(), b"abcd");
    }

    #[test]
    fn room_grows_to_the_capacity_and_no_further() {
        let pool = Pool::new(1 << 20);
        let mut input = Input::new(pool);
        let mut written = 0_usize;
        while let Some(room) = input.room(50_000) {
            let take = room.len().min(50_000 - written);
            room[..take].fill(7);
            input.filled(take);
            written += take;
        }
        assert_eq!(written, 50_000);
        assert!(input.bytes().iter().all(|b| *b == 7));
    }
}
