//! Edits by span: what changes in a body, and nothing else.

/// Bytes `start..end` of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset one past the last byte.
    pub end: u64,
}

/// A span of the body and the bytes that take its place.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// Offset of the first byte replaced.
    pub start: u64,
    /// Offset one past the last byte replaced; equal to `start` for an insertion.
    pub end: u64,
    /// What stands there instead.
    pub replacement: Box<[u8]>,
}

// The replacement may hold a session id.
impl std::fmt::Debug for Patch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = self.replacement.len();
        write!(f, "Patch({}..{}, {length} bytes)", self.start, self.end)
    }
}

/// Most patches of one body: its model, its session, and that usage is asked for.
pub const PATCHES_MAX: usize = 3;

/// The patches of one body, in its order. None of them costs no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    all: [Patch; PATCHES_MAX],
    count: usize,
}

impl Patches {
    /// Adds one.
    ///
    /// # Errors
    /// There are [`PATCHES_MAX`] already.
    pub fn add(&mut self, patch: Patch) -> Result<(), Patch> {
        let Some(free) = self.all.get_mut(self.count) else {
            return Err(patch);
        };
        *free = patch;
        self.count += 1;
        let taken = self.all.get_mut(..self.count).unwrap_or_default();
        taken.sort_by_key(|patch| patch.start);
        Ok(())
    }

    /// All of them, in the order of the body.
    #[must_use]
    pub fn as_slice(&self) -> &[Patch] {
        self.all.get(..self.count).unwrap_or_default()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first bytes of a body, in which all patches lie, around and with what is put in.
    #[must_use]
    pub fn around<'a>(&'a self, data: &'a [u8]) -> Pieces<'a> {
        let at = |offset: u64| usize::try_from(offset).map_or(data.len(), |at| at.min(data.len()));
        let mut pieces: Pieces<'a> = [&[]; 2 * PATCHES_MAX + 1];
        let mut from = 0;
        let mut slots = pieces.iter_mut();
        for patch in self.as_slice() {
            for piece in [data.get(from..at(patch.start)), Some(&*patch.replacement)] {
                if let Some(slot) = slots.next() {
                    *slot = piece.unwrap_or_default();
                }
            }
            from = at(patch.end);
        }
        if let Some(slot) = slots.next() {
            *slot = data.get(from..).unwrap_or_default();
        }
        pieces
    }
}

/// A piece of a body, cut at its patches.
pub type Pieces<'a> = [&'a [u8]; 2 * PATCHES_MAX + 1];

/// Length of a body of `len` bytes after `patches`; `None` if a patch lies outside the body, the
/// patches overlap or are out of order, or the sum overflows.
#[must_use]
pub fn patched_len(len: u64, patches: &[Patch]) -> Option<u64> {
    let mut from = 0;
    let mut total = len;
    for patch in patches {
        if patch.start < from || patch.end > len {
            return None;
        }
        total = total.checked_sub(patch.end.checked_sub(patch.start)?)?;
        total = total.checked_add(u64::try_from(patch.replacement.len()).ok()?)?;
        from = patch.end;
    }
    Some(total)
}

/// A held body with `patches` applied: slice, patch, slice. `None` as for [`patched_len`].
#[must_use]
pub fn splice(body: &[u8], patches: &[Patch]) -> Option<Vec<u8>> {
    let total = patched_len(u64::try_from(body.len()).ok()?, patches)?;
    let mut spliced = Vec::with_capacity(usize::try_from(total).ok()?);
    let mut from = 0;
    for patch in patches {
        spliced.extend_from_slice(body.get(from..usize::try_from(patch.start).ok()?)?);
        spliced.extend_from_slice(&patch.replacement);
        from = usize::try_from(patch.end).ok()?;
    }
    spliced.extend_from_slice(body.get(from..)?);
    Some(spliced)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(start: u64, end: u64, text: &str) -> Patch {
        let replacement = text.as_bytes().into();
        Patch {
            start,
            end,
            replacement,
        }
    }

    #[test]
    fn replacement_insertion_and_removal_in_one_pass() {
        let patches = [patch(0, 1, "XY"), patch(2, 2, "-"), patch(3, 5, "")];
        assert_eq!(splice(b"abcdef", &patches).unwrap(), b"XYb-cf");
        assert_eq!(patched_len(6, &patches), Some(6));
    }

    #[test]
    fn pieces_around_patches_are_what_a_splice_makes() {
        let body = b"abcdef";
        for added in [
            vec![],
            vec![patch(2, 4, "XY")],
            vec![patch(3, 5, ""), patch(1, 1, "-")],
            vec![patch(0, 1, "X"), patch(6, 6, "Y")],
        ] {
            let mut patches = Patches::default();
            for patch in &added {
                assert_eq!(patches.add(patch.clone()), Ok(()));
            }
            assert_eq!(patches.is_empty(), added.is_empty());
            let pieces = patches.around(body).concat();
            assert_eq!(Some(pieces), splice(body, patches.as_slice()), "{added:?}");
        }
    }

    #[test]
    fn no_more_patches_than_there_is_room_for() {
        let mut patches = Patches::default();
        for start in 0..PATCHES_MAX as u64 {
            assert_eq!(patches.add(patch(start, start, "x")), Ok(()));
        }
        assert_eq!(patches.add(patch(9, 9, "x")), Err(patch(9, 9, "x")));
        assert_eq!(patches.as_slice().len(), PATCHES_MAX);
    }

    #[test]
    fn overlapping_reversed_and_outside_patches_are_refused() {
        for patches in [
            vec![patch(0, 3, ""), patch(2, 4, "")],
            vec![patch(3, 4, ""), patch(0, 1, "")],
            vec![patch(3, 2, "")],
            vec![patch(5, 7, "")],
        ] {
            assert_eq!(splice(b"abcdef", &patches), None, "{patches:?}");
        }
    }
}
