//! An incremental reader of HTTP/1.1 responses: head, declared length, chunks, or until the end of the
//! connection (RFC 9112 §4, §6, §7.1).
//!
//! It hands body bytes on as they come and keeps only a head that is not whole yet. Lenient where that
//! cannot change a length, since the target is under test and not under attack; what has two readings
//! is malformed.

use memchr::memchr;
use memchr::memmem;

/// Bytes of one head; targets send a few hundred.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a chunk-size line with its extensions, and of all trailers.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Interim responses before the final one.
const INTERIM_MAX: u32 = 8;

/// What a push came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The response goes on.
    More,
    /// The response is whole.
    Done,
}

/// No response of HTTP/1.1, or more than one for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// Body bytes that are left of a declared length.
    Fixed(u64),
    /// The size line of a chunk: size so far, digits so far, whether an extension began.
    Size {
        size: u64,
        digits: u32,
        extension: bool,
    },
    /// Data bytes that are left of a chunk.
    Data(u64),
    /// The line end behind the data of a chunk.
    DataEnd,
    /// Trailers; bytes of the current line so far, its line end not counted.
    Trailer(usize),
    /// Everything up to the end of the connection.
    Open,
    Done,
}

/// Reads one response after the other; [`Reader::reset`] between them.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    /// Bytes of an unfinished head.
    head: Vec<u8>,
    /// Bytes of the current size line or of all trailers, against [`LINE_BYTES_MAX`].
    line_bytes: usize,
    interim: u32,
    status: u16,
    keeps: bool,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            state: State::Head,
            head: Vec::with_capacity(HEAD_BYTES_MAX),
            line_bytes: 0,
            interim: 0,
            status: 0,
            keeps: true,
        }
    }

    /// Ready for the next response.
    pub(super) fn reset(&mut self) {
        self.state = State::Head;
        self.head.clear();
        self.line_bytes = 0;
        self.interim = 0;
        self.status = 0;
        self.keeps = true;
    }

    /// Status of the response; 0 before its head is whole.
    pub(super) const fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may be used again, once the response is whole.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }

    /// Takes what was read; body bytes go to `body` in order.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<Step, Malformed> {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Head => self.take_head(bytes)?,
                State::Fixed(left) | State::Data(left) => {
                    let take = usize::try_from(left).map_or(bytes.len(), |n| n.min(bytes.len()));
                    let (mine, rest) = bytes.split_at(take);
                    body(mine);
                    self.advance(left - mine.len() as u64);
                    rest
                }
                State::Open => {
                    body(bytes);
                    &[]
                }
                State::Size { .. } | State::DataEnd | State::Trailer(_) => {
                    let (first, rest) = bytes.split_first().ok_or(Malformed)?;
                    self.take_byte(*first)?;
                    rest
                }
                // One request, one response.
                State::Done => return Err(Malformed),
            };
        }
        Ok(if self.state == State::Done {
            Step::Done
        } else {
            Step::More
        })
    }

    /// The connection ended; true if that is how the response ends.
    pub(super) const fn ends_here(&self) -> bool {
        matches!(self.state, State::Open | State::Done)
    }

    /// `left` bytes of the length or of the chunk remain.
    const fn advance(&mut self, left: u64) {
        self.state = match (self.state, left) {
            (State::Fixed(_), 0) => State::Done,
            (State::Fixed(_), _) => State::Fixed(left),
            (_, 0) => State::DataEnd,
            (_, _) => State::Data(left),
        };
    }

    /// One byte of the framing of chunks.
    fn take_byte(&mut self, byte: u8) -> Result<(), Malformed> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return Err(Malformed);
        }
        self.state = match (self.state, byte) {
            (
                State::Size {
                    digits: 1.., size, ..
                },
                b'\n',
            ) => {
                self.line_bytes = 0;
                if size == 0 {
                    State::Trailer(0)
                } else {
                    State::Data(size)
                }
            }
            (
                State::Size {
                    digits,
                    size,
                    extension,
                },
                _,
            ) => {
                let digit = char::from(byte).to_digit(16).filter(|_| !extension);
                match digit {
                    Some(digit) if size >> 60 == 0 => State::Size {
                        size: size << 4 | u64::from(digit),
                        digits: digits + 1,
                        extension: false,
                    },
                    Some(_) => return Err(Malformed),
                    None if digits > 0 && (extension || b"; \t\r".contains(&byte)) => State::Size {
                        size,
                        digits,
                        extension: true,
                    },
                    None => return Err(Malformed),
                }
            }
            (State::DataEnd, b'\r') if self.line_bytes == 1 => State::DataEnd,
            (State::DataEnd, b'\n') => {
                self.line_bytes = 0;
                SIZE
            }
            (State::Trailer(0), b'\n') => State::Done,
            (State::Trailer(_), b'\n') => State::Trailer(0),
            (State::Trailer(line), b'\r') => State::Trailer(line),
            (State::Trailer(line), _) => State::Trailer(line + 1),
            (_, _) => return Err(Malformed),
        };
        Ok(())
    }

    /// Takes bytes up to the end of the head; returns what follows.
    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        if self.head.is_empty() {
            // As a rule a head comes whole, and is not copied.
            if let Some(end) = memmem::find(bytes, b"\r\n\r\n") {
                let (head, rest) = bytes.split_at(end + 4);
                self.read_head(head)?;
                return Ok(rest);
            }
        }
        // The mark may lie across two reads.
        let seen = self.head.len().saturating_sub(3);
        let held = self.head.len();
        let take = bytes.len().min(HEAD_BYTES_MAX - held);
        self.head
            .extend_from_slice(bytes.get(..take).unwrap_or_default());
        let unseen = self.head.get(seen..).unwrap_or_default();
        let Some(end) = memmem::find(unseen, b"\r\n\r\n").map(|at| seen + at + 4) else {
            return if self.head.len() < HEAD_BYTES_MAX {
                Ok(&[])
            } else {
                Err(Malformed)
            };
        };
        self.head.truncate(end);
        let head = std::mem::take(&mut self.head);
        let read = self.read_head(&head);
        // Its memory serves the next head.
        self.head = head;
        self.head.clear();
        read?;
        Ok(bytes.get(end - held..).unwrap_or_default())
    }

    fn read_head(&mut self, mut head: &[u8]) -> Result<(), Malformed> {
        let status = next_line(&mut head).ok_or(Malformed)?;
        self.status = status_of(status).ok_or(Malformed)?;
        self.keeps = status.starts_with(b"HTTP/1.1");
        let (mut length, mut chunked) = (None, false);
        while let Some(line) = next_line(&mut head).filter(|line| !line.is_empty()) {
            let colon = memchr(b':', line).ok_or(Malformed)?;
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            if name.eq_ignore_ascii_case(b"content-length") {
                if length.is_some() {
                    return Err(Malformed);
                }
                length = Some(number(value).ok_or(Malformed)?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed);
                }
                chunked = true;
            } else if name.eq_ignore_ascii_case(b"connection") {
                let mut tokens = value.split(|b| *b == b',');
                if tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close")) {
                    self.keeps = false;
                }
            }
        }
        self.state = match (self.status, length, chunked) {
            (101, _, _) => return Err(Malformed),
            (100..=199, _, _) => {
                self.interim += 1;
                if self.interim > INTERIM_MAX {
                    return Err(Malformed);
                }
                self.status = 0;
                State::Head
            }
            (_, Some(_), true) => return Err(Malformed),
            (204 | 304, _, _) | (_, Some(0), false) => State::Done,
            (_, Some(length), false) => State::Fixed(length),
            (_, None, true) => SIZE,
            (_, None, false) => {
                self.keeps = false;
                State::Open
            }
        };
        Ok(())
    }
}

const SIZE: State = State::Size {
    size: 0,
    digits: 0,
    extension: false,
};

/// The line up to the next CR LF, and moves behind it.
fn next_line<'a>(head: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr(b'\n', head)?;
    let (line, rest) = head.split_at(end + 1);
    *head = rest;
    line.strip_suffix(b"\r\n")
}

/// `HTTP/1.x NNN ...`
fn status_of(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let (version, rest) = rest.split_first()?;
    let digits = rest.strip_prefix(b" ")?.get(..3)?;
    let ends = rest.get(4).is_none_or(|b| *b == b' ');
    if !version.is_ascii_digit() || !ends {
        return None;
    }
    let status = u16::try_from(number(digits)?).ok()?;
    (100..=599).contains(&status).then_some(status)
}

fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, body, and whether the connection may be kept; `None` if the response is not whole.
    type Read = Result<Option<(u16, Vec<u8>, bool)>, Malformed>;

    fn read(pieces: &[&[u8]]) -> Read {
        let mut reader = Reader::new();
        let mut body = Vec::new();
        let mut step = Step::More;
        for piece in pieces {
            step = reader.push(piece, |bytes| body.extend_from_slice(bytes))?;
        }
        let whole = step == Step::Done || reader.ends_here();
        Ok(whole.then(|| (reader.status(), body, reader.keeps())))
    }

    const WHOLE: &[(&str, u16, &str, bool)] = &[
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            200,
            "hello",
            true,
        ),
        ("HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", 200, "", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true),
        (
            "HTTP/1.1 503 x y\r\nConnection: a, Close\r\nContent-Length: 1\r\n\r\n!",
            503,
            "!",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n!",
            200,
            "!",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0A;x=1\r\n0123456789\r\n0\r\n\r\n",
            200,
            "abc0123456789",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: 1\r\nOther: 2\r\n\r\n",
            200,
            "",
            true,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            200,
            "ok",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\nup to the end",
            200,
            "up to the end",
            false,
        ),
    ];

    #[test]
    fn responses_are_read_alike_at_every_cut() {
        for (text, status, body, keeps) in WHOLE {
            let expected = Ok(Some((*status, body.as_bytes().to_vec(), *keeps)));
            let bytes = text.as_bytes();
            assert_eq!(read(&[bytes]), expected, "{text:?}");
            let single: Vec<_> = bytes.chunks(1).collect();
            assert_eq!(read(&single), expected, "{text:?} byte by byte");
            for cut in 1..bytes.len() {
                let (a, b) = bytes.split_at(cut);
                assert_eq!(read(&[a, b]), expected, "{text:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn responses_that_break_off_are_not_whole() {
        for (text, _, _, _) in WHOLE.iter().filter(|case| case.2 != "up to the end") {
            for cut in 0..text.len() {
                let part = text.as_bytes().get(..cut).unwrap();
                assert_eq!(read(&[part]), Ok(None), "{text:?} up to {cut}");
            }
        }
    }

    #[test]
    fn what_has_two_readings_is_malformed() {
        for text in [
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 999 OK\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n!",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n!",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!HTTP/1.1 200 OK\r\n",
        ] {
            assert_eq!(read(&[text.as_bytes()]), Err(Malformed), "{text:?}");
        }
    }

    #[test]
    fn endless_heads_lines_and_interims_are_malformed() {
        let head = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let size = format!("{chunked}1;{}", "x".repeat(LINE_BYTES_MAX));
        let trailers = format!("{chunked}0\r\n{}", "a: b\r\n".repeat(LINE_BYTES_MAX / 4));
        let interims = "HTTP/1.1 100 Continue\r\n\r\n".repeat(9);
        for text in [head, size, trailers, interims] {
            assert_eq!(read(&[text.as_bytes()]), Err(Malformed));
        }
    }

    #[test]
    fn reader_reads_on_after_a_reset() {
        let mut reader = Reader::new();
        for (text, status, body, _) in WHOLE.iter().take(8) {
            reader.reset();
            let mut got = Vec::new();
            let step = reader.push(text.as_bytes(), |bytes| got.extend_from_slice(bytes));
            assert_eq!(step, Ok(Step::Done), "{text:?}");
            assert_eq!(
                (reader.status(), got.as_slice()),
                (*status, body.as_bytes())
            );
        }
    }
}
