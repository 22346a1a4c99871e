//! The field section, read by httparse; the place of a fault is found here.

use std::ops::Range;

use crate::http1::error::HeadError;
use crate::http1::error::HeadReason;
use crate::http1::head::FIELDS_MAX;
use crate::http1::head::Field;
use crate::http1::head::Span;
use crate::http1::head::fault;
use crate::http1::is_token_byte;
use crate::http1::is_value_byte;

/// Reads the lines of `section`, all of which end with CRLF and the last of which is empty.
pub(super) fn read_fields(
    bytes: &[u8],
    section: Range<usize>,
    fields: &mut Vec<Field>,
) -> Result<(), HeadError> {
    let start = section.start;
    let text = bytes.get(section).unwrap_or_default();
    let mut slots = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let Ok(httparse::Status::Complete((_, read))) = httparse::parse_headers(text, &mut slots)
    else {
        return Err(first_fault(text, start));
    };
    fields.clear();
    fields.extend(read.iter().map(|field| Field {
        name: span_of(field.name.as_bytes(), bytes),
        value: span_of(field.value, bytes),
    }));
    Ok(())
}

/// Where `part` lies in `bytes`, of which it is a slice.
fn span_of(part: &[u8], bytes: &[u8]) -> Span {
    let start = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
    Span::new(start, start.saturating_add(part.len()))
}

/// Where and why a field section was refused; httparse says only that it was.
fn first_fault(section: &[u8], start: usize) -> HeadError {
    let mut at = start;
    for line in section.split(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some((i, reason)) = line_fault(line) {
            return fault(at.saturating_add(i), reason);
        }
        at = at.saturating_add(line.len()).saturating_add(2);
    }
    fault(start, HeadReason::FieldName)
}

/// The first fault of a field line `field-name ":" OWS field-value OWS` (RFC 9112 §5).
fn line_fault(line: &[u8]) -> Option<(usize, HeadReason)> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Some((0, HeadReason::FieldFold));
    }
    let name_bytes = line.iter().take_while(|&&b| is_token_byte(b)).count();
    match line.get(name_bytes) {
        None if line.is_empty() => None,
        Some(b':') if name_bytes > 0 => {
            let value = line.get(name_bytes..).unwrap_or_default();
            let i = value.iter().position(|&b| !is_value_byte(b))?;
            Some((name_bytes.saturating_add(i), HeadReason::FieldValue))
        }
        _ => Some((name_bytes, HeadReason::FieldName)),
    }
}
