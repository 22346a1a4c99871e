//! Durations and sizes as text: `250ms`, `5s`, `10m`, `1h`, `30d`; `64KiB`, `32MiB`, `4GiB`, plain bytes.
//!
//! Whole numbers of one unit only. Printing picks the largest unit that keeps the number whole, so
//! that what is printed reads back as the same quantity.

use std::time::Duration;

const DURATIONS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
/// Shown only beside a duration that was written in days: hours keep every other one that anybody
/// compares in one unit.
const DAY: (&str, u64) = ("d", 86_400_000);
const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads a duration; `None` for anything else, overflow included.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (count, unit) = split(text)?;
    let mut units = DURATIONS.into_iter().chain([DAY]);
    let (_, millis) = units.find(|(name, _)| *name == unit)?;
    count.checked_mul(millis).map(Duration::from_millis)
}

/// Reads a size in bytes; `None` for anything else, overflow included.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (count, unit) = split(text)?;
    if unit.is_empty() {
        return Some(count);
    }
    let (_, bytes) = SIZES.into_iter().find(|(name, _)| *name == unit)?;
    count.checked_mul(bytes)
}

/// Digits, then the unit directly behind them.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text.get(..digits)?.parse().ok()?, text.get(digits..)?))
}

/// A duration of whole milliseconds in its largest unit.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (unit, size) = largest(millis, &DURATIONS).unwrap_or(("s", 1000));
    format!("{}{unit}", millis / size)
}

/// A duration beside one that was written so: in days where that one is and they are whole.
pub(super) fn show_duration_beside(written: &str, duration: Duration) -> String {
    let (unit, size) = DAY;
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if written.ends_with(unit) && millis > 0 && millis.is_multiple_of(size) {
        format!("{}{unit}", millis / size)
    } else {
        show_duration(duration)
    }
}

/// A size in its largest unit; plain bytes where none fits.
pub(crate) fn show_size(bytes: u64) -> String {
    let (unit, size) = largest(bytes, &SIZES).unwrap_or(("", 1));
    format!("{}{unit}", bytes / size)
}

/// A size to the nearest whole number, of at least two digits, of the largest unit: for reading,
/// at most a twentieth off.
pub(super) fn show_about(bytes: u64) -> String {
    let fits = SIZES.into_iter().find(|(_, size)| bytes / size >= 10);
    let (unit, size) = fits.unwrap_or(("", 1));
    let rounded = bytes.saturating_add(size / 2) / size;
    format!("{rounded}{unit}")
}

fn largest<'a>(count: u64, units: &[(&'a str, u64)]) -> Option<(&'a str, u64)> {
    units
        .iter()
        .copied()
        .find(|(_, size)| count > 0 && count.is_multiple_of(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print() {
        for (text, millis) in [
            ("250ms", 250),
            ("5s", 5000),
            ("10m", 600_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn days_are_shown_beside_days() {
        let [day, month] = [1, 30].map(|days| Duration::from_secs(days * 86_400));
        assert_eq!(parse_duration("30d"), Some(month));
        for (written, duration, shown) in [
            ("31d", month, "30d"),
            ("2d", day, "1d"),
            ("2d", day / 2, "12h"),
            ("2d", Duration::ZERO, "0s"),
            ("25h", day, "24h"),
            ("", month, "720h"),
        ] {
            assert_eq!(show_duration_beside(written, duration), shown, "{written}");
        }
    }

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes) in [
            ("64KiB", 65_536),
            ("32MiB", 32 << 20),
            ("4GiB", 4 << 30),
            ("1000", 1000),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(show_size(bytes), text);
        }
    }

    #[test]
    fn sizes_for_reading_are_rounded() {
        for (bytes, text) in [
            (0, "0"),
            (10_239, "10239"),
            (10_240, "10KiB"),
            (163_840_000, "156MiB"),
            ((512 << 20) - 163_840_000 / 2, "434MiB"),
            (3 << 29, "1536MiB"),
            ((12 << 30) + (1 << 29), "13GiB"),
        ] {
            assert_eq!(show_about(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "s", "5", "5 s", "-5s", "+5s", "1.5s", "5S", "5w", "1h30m", "９s",
        ] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
        for text in [
            "", "KiB", "64KB", "64 KiB", "64k", "-1", "0x10", "1.5GiB", "64kib",
        ] {
            assert_eq!(parse_size(text), None, "{text:?}");
        }
        assert_eq!(parse_duration("18446744073709551615h"), None);
        assert_eq!(parse_size("18446744073709551615GiB"), None);
        assert_eq!(parse_size("99999999999999999999"), None);
    }
}
