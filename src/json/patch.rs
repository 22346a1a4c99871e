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
#[derive(Clone, PartialEq, Eq)]
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
