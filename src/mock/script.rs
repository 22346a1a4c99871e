//! The script of one answer: a list of `key=value` pairs, parsed strictly.
//!
//! Strict because a misspelt key in a test would otherwise test nothing and pass. Values are taken as
//! they stand; in `body`, `command` and `header` a `%XX` stands for one byte, since `;` ends a pair and a header
//! line cannot hold a line feed.

use std::fmt;
use std::time::Duration;

/// Longest wait of any kind, and the bound of a silence without an end of its own.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(600);
/// Content events of one answer.
const EVENTS_MAX: u64 = 1_000_000;
/// Text bytes of one content event.
const EVENT_BYTES_MAX: u64 = 16 << 20;
/// Text bytes of one answer: `events` times `event_bytes`.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Pairs of one script, and entries of one list value.
const ENTRIES_MAX: usize = 4096;

/// What one answer does. The default is a plain, well-behaved answer in the dialect of the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    pub(crate) status: Option<u16>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) file: Option<String>,
    pub(crate) tool: bool,
    /// What a shell-like tool is told to run.
    pub(crate) command: Option<String>,
    pub(crate) echo: bool,
    pub(crate) framing: Option<Framing>,
    /// Body bytes of one write, at least 1.
    pub(crate) piece: Option<usize>,
    /// Body offsets at which a new write starts.
    pub(crate) cuts: Vec<usize>,
    pub(crate) pause: Duration,
    pub(crate) first: Duration,
    pub(crate) events: Option<usize>,
    pub(crate) event_bytes: Option<usize>,
    pub(crate) cut: Option<Cut>,
    pub(crate) silence: Option<Silence>,
    pub(crate) early: Option<Early>,
    /// Request body bytes after which reading stops.
    pub(crate) stall: Option<u64>,
    pub(crate) execute: Execute,
    pub(crate) close: Close,
    pub(crate) interim: Vec<u16>,
}

/// How the end of the answer's body is marked (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Chunked,
    Length,
    Close,
}

/// Where the answer breaks off, in body bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) at: usize,
    pub(crate) reset: bool,
}

/// When the mock says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// No answer at all.
    Head,
    /// After `at` body bytes, for `wait`.
    Body { at: usize, wait: Duration },
}

/// An answer that does not wait for the request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Early {
    /// Request body bytes to read first.
    pub(crate) after: u64,
    /// Announce `Connection: close` and read nothing more; else read the rest and keep the connection.
    pub(crate) close: bool,
}

/// When a request counts as run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Execute {
    /// When its framing ends.
    #[default]
    Framing,
    /// When the root object closes, as stopping decoders do.
    Brace,
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Close {
    /// As the client asks.
    #[default]
    Client,
    /// Closed on the head, with no byte of the body read and no answer.
    Head,
    /// Closed once the request is read, with no answer.
    Before,
    /// Closed after an answer that says so.
    After,
    /// Closed if nothing comes for this long, after an answer that did not say so.
    Idle(Duration),
}

/// Why a script is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptError {
    /// No such key.
    UnknownKey(String),
    /// The key exists, its value has another form.
    BadValue {
        /// The key as written.
        key: String,
        /// The form that the value must have.
        expected: &'static str,
    },
    /// More pairs or list entries than a script may have.
    TooLong,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey(key) => write!(f, "mock script: unknown key `{key}`"),
            Self::BadValue { key, expected } => {
                write!(f, "mock script: `{key}` expects {expected}")
            }
            Self::TooLong => write!(f, "mock script: more than {ENTRIES_MAX} entries"),
        }
    }
}

impl std::error::Error for ScriptError {}

impl std::str::FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let mut early_close = None;
        for (number, pair) in text.split(';').enumerate() {
            if number >= ENTRIES_MAX {
                return Err(ScriptError::TooLong);
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (key.trim(), value.trim());
            match key {
                "" if value.is_empty() => {}
                "early_close" => early_close = Some(boolean(key, value)?),
                _ => script.set(key, value)?,
            }
        }
        match (&mut script.early, early_close) {
            (Some(early), Some(close)) => early.close = close,
            (None, Some(_)) => return Err(bad("early_close", "a script with `early`")),
            (_, None) => {}
        }
        let events = script.events.unwrap_or(1) as u64;
        if events.saturating_mul(script.event_bytes.unwrap_or(1) as u64) > ANSWER_BYTES_MAX {
            return Err(bad("event_bytes", "at most 256 MiB in all events"));
        }
        Ok(script)
    }
}

impl Script {
    /// The script that a model name stands for: `mock-` and one of the shortcuts, else none.
    pub(crate) fn from_model(model: &str) -> Option<Self> {
        let shortcut = model.strip_prefix("mock-")?;
        if let Some(status) = shortcut.strip_prefix("error-") {
            return format!("status={status}").parse().ok();
        }
        if let Some(file) = shortcut.strip_prefix("file-") {
            return format!("file={file}").parse().ok();
        }
        let text = match shortcut {
            "tool" => "tool",
            "slow" => "events=20; pause=200ms",
            "long" => "events=2000",
            "cut" => "cut=500",
            "silence" => "silence=head",
            "echo" => "echo=head",
            _ => return None,
        };
        text.parse().ok()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ScriptError> {
        match key {
            "status" => self.status = Some(status(key, value)?),
            "header" => self.headers.push(header(key, value)?),
            "body" => self.body = Some(percent_decoded(key, value)?),
            "file" if !value.is_empty() => self.file = Some(value.to_owned()),
            "file" => return Err(bad(key, "the name of a response file")),
            "tool" => self.tool = value.is_empty() || boolean(key, value)?,
            "command" => self.command = Some(command(key, value)?),
            "echo" if value == "head" => self.echo = true,
            "echo" => return Err(bad(key, "`head`")),
            "framing" => self.framing = Some(framing(key, value)?),
            "piece" => match size(key, value)? {
                0 => return Err(bad(key, "a number of bytes, at least 1")),
                bytes => self.piece = Some(bytes),
            },
            "cuts" => self.cuts = offsets(key, value)?,
            "pause" => self.pause = duration(key, value)?,
            "first" => self.first = duration(key, value)?,
            "events" => self.events = Some(bounded(key, value, EVENTS_MAX)?),
            "event_bytes" => self.event_bytes = Some(bounded(key, value, EVENT_BYTES_MAX)?),
            "cut" => self.cut = Some(cut(key, value)?),
            "silence" => self.silence = Some(silence(key, value)?),
            "early" => {
                let after = number(key, value)?;
                self.early = Some(Early { after, close: true });
            }
            "stall" => self.stall = Some(number(key, value)?),
            "execute" => self.execute = execute(key, value)?,
            "close" => self.close = close(key, value)?,
            "interim" => match value {
                "100" => self.interim.push(100),
                "103" => self.interim.push(103),
                _ => return Err(bad(key, "100 or 103")),
            },
            _ => return Err(ScriptError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }
}

fn bad(key: &str, expected: &'static str) -> ScriptError {
    ScriptError::BadValue {
        key: key.to_owned(),
        expected,
    }
}

fn number(key: &str, value: &str) -> Result<u64, ScriptError> {
    value.parse().map_err(|_| bad(key, "a number"))
}

fn size(key: &str, value: &str) -> Result<usize, ScriptError> {
    value.parse().map_err(|_| bad(key, "a number of bytes"))
}

fn bounded(key: &str, value: &str, max: u64) -> Result<usize, ScriptError> {
    let given = number(key, value)?;
    if given > max {
        return Err(bad(key, "a smaller number"));
    }
    usize::try_from(given).map_err(|_| bad(key, "a smaller number"))
}

fn boolean(key: &str, value: &str) -> Result<bool, ScriptError> {
    value.parse().map_err(|_| bad(key, "`true` or `false`"))
}

fn status(key: &str, value: &str) -> Result<u16, ScriptError> {
    let code = value.parse().unwrap_or(0);
    if (200..=599).contains(&code) {
        Ok(code)
    } else {
        Err(bad(key, "a status from 200 to 599"))
    }
}

fn command(key: &str, value: &str) -> Result<String, ScriptError> {
    let form = "a shell command";
    let command = String::from_utf8(percent_decoded(key, value)?).map_err(|_| bad(key, form))?;
    if command.is_empty() {
        return Err(bad(key, form));
    }
    Ok(command)
}

fn header(key: &str, value: &str) -> Result<(String, String), ScriptError> {
    let form = "`Name:Value`";
    let (name, value) = value.split_once(':').ok_or_else(|| bad(key, form))?;
    let value = String::from_utf8(percent_decoded(key, value.trim())?);
    let value = value.map_err(|_| bad(key, form))?;
    let broken = value.contains(['\r', '\n', '\0']);
    if name.trim().is_empty() || broken {
        return Err(bad(key, form));
    }
    Ok((name.trim().to_owned(), value))
}

fn framing(key: &str, value: &str) -> Result<Framing, ScriptError> {
    match value {
        "chunked" => Ok(Framing::Chunked),
        "length" => Ok(Framing::Length),
        "close" => Ok(Framing::Close),
        _ => Err(bad(key, "`chunked`, `length` or `close`")),
    }
}

fn offsets(key: &str, value: &str) -> Result<Vec<usize>, ScriptError> {
    let list = value
        .split(',')
        .map(|offset| size(key, offset.trim()))
        .collect::<Result<Vec<_>, _>>()?;
    if list.len() > ENTRIES_MAX {
        Err(ScriptError::TooLong)
    } else {
        Ok(list)
    }
}

/// `10ms` or `2s`, at most [`WAIT_MAX`].
fn duration(key: &str, value: &str) -> Result<Duration, ScriptError> {
    let form = "a time such as `10ms` or `2s`, at most 600s";
    let (digits, scale) = match value.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (value.strip_suffix('s').ok_or_else(|| bad(key, form))?, 1000),
    };
    let millis: u64 = digits.parse().map_err(|_| bad(key, form))?;
    let wait = Duration::from_millis(millis.saturating_mul(scale));
    if wait > WAIT_MAX {
        Err(bad(key, form))
    } else {
        Ok(wait)
    }
}

fn cut(key: &str, value: &str) -> Result<Cut, ScriptError> {
    let (reset, at) = match value.strip_prefix("rst") {
        Some("") => (true, "0"),
        Some(rest) => (true, rest.strip_prefix(':').unwrap_or(rest)),
        None => (false, value),
    };
    let at = size(key, at).map_err(|_| bad(key, "`OFFSET` or `rst:OFFSET`"))?;
    Ok(Cut { at, reset })
}

fn silence(key: &str, value: &str) -> Result<Silence, ScriptError> {
    if value == "head" {
        return Ok(Silence::Head);
    }
    let (at, wait) = match value.split_once(':') {
        Some((at, wait)) => (at, duration(key, wait)?),
        None => (value, WAIT_MAX),
    };
    let at = size(key, at).map_err(|_| bad(key, "`head`, `OFFSET` or `OFFSET:TIME`"))?;
    Ok(Silence::Body { at, wait })
}

fn execute(key: &str, value: &str) -> Result<Execute, ScriptError> {
    match value {
        "brace" => Ok(Execute::Brace),
        "framing" => Ok(Execute::Framing),
        _ => Err(bad(key, "`brace` or `framing`")),
    }
}

fn close(key: &str, value: &str) -> Result<Close, ScriptError> {
    match value.split_once(':') {
        Some(("idle", wait)) => Ok(Close::Idle(duration(key, wait)?)),
        None if value == "head" => Ok(Close::Head),
        None if value == "before" => Ok(Close::Before),
        None if value == "after" => Ok(Close::After),
        _ => Err(bad(key, "`head`, `before`, `after` or `idle:TIME`")),
    }
}

fn percent_decoded(key: &str, value: &str) -> Result<Vec<u8>, ScriptError> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let digits = tail
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.ok_or_else(|| bad(key, "`%` followed by two hex digits"))?);
        rest = &tail[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Script {
        text.parse().unwrap()
    }

    #[test]
    fn empty_script_is_the_plain_answer() {
        for text in ["", " ", ";", " ; ;"] {
            assert_eq!(parsed(text), Script::default(), "{text:?}");
        }
    }

    #[test]
    fn every_key_is_read() {
        let script = parsed(
            "status=429; header=Retry-After: 2; header=x-a:b%3Bc; body=a%0Ab; file=chat-text.sse; tool; \
             command=a%3B b; \
             echo=head; framing=close; piece=3; cuts=1, 5,9; pause=10ms; first=2s; events=7; \
             event_bytes=100; cut=rst:40; silence=12:30ms; early=64; early_close=false; stall=5; \
             execute=brace; close=idle:5ms; interim=103; interim=100",
        );
        let headers = [("Retry-After", "2"), ("x-a", "b;c")];
        let expected = Script {
            status: Some(429),
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            body: Some(b"a\nb".to_vec()),
            file: Some("chat-text.sse".to_owned()),
            tool: true,
            command: Some("a; b".to_owned()),
            echo: true,
            framing: Some(Framing::Close),
            piece: Some(3),
            cuts: vec![1, 5, 9],
            pause: Duration::from_millis(10),
            first: Duration::from_secs(2),
            events: Some(7),
            event_bytes: Some(100),
            cut: Some(Cut {
                at: 40,
                reset: true,
            }),
            silence: Some(Silence::Body {
                at: 12,
                wait: Duration::from_millis(30),
            }),
            early: Some(Early {
                after: 64,
                close: false,
            }),
            stall: Some(5),
            execute: Execute::Brace,
            close: Close::Idle(Duration::from_millis(5)),
            interim: vec![103, 100],
        };
        assert_eq!(script, expected);
    }

    #[test]
    fn forms_of_one_key() {
        assert_eq!(
            parsed("cut=9").cut,
            Some(Cut {
                at: 9,
                reset: false
            })
        );
        assert_eq!(parsed("cut=rst").cut, Some(Cut { at: 0, reset: true }));
        assert_eq!(parsed("silence=head").silence, Some(Silence::Head));
        let endless = Some(Silence::Body {
            at: 3,
            wait: WAIT_MAX,
        });
        assert_eq!(parsed("silence=3").silence, endless);
        assert_eq!(
            parsed("early=0").early,
            Some(Early {
                after: 0,
                close: true
            })
        );
        assert_eq!(
            parsed("early_close=true;early=0").early,
            Some(Early {
                after: 0,
                close: true
            })
        );
        for (text, close) in [
            ("head", Close::Head),
            ("before", Close::Before),
            ("after", Close::After),
        ] {
            assert_eq!(parsed(&format!("close={text}")).close, close);
        }
    }

    #[test]
    fn unknown_key_is_named() {
        let error = "status=200; colour=red".parse::<Script>().unwrap_err();
        assert_eq!(error, ScriptError::UnknownKey("colour".to_owned()));
        assert!(error.to_string().contains("`colour`"));
        assert!("=5".parse::<Script>().is_err());
    }

    #[test]
    fn bad_values_name_their_key() {
        for text in [
            "status=100",
            "status=600",
            "status=x",
            "header=novalue",
            "header=:v",
            "header=a:b%0Ac",
            "body=%4",
            "body=%zz",
            "file=",
            "tool=maybe",
            "echo=body",
            "framing=zip",
            "piece=0",
            "cuts=1,x",
            "pause=10",
            "pause=601s",
            "first=fast",
            "events=1000001",
            "event_bytes=-1",
            "cut=",
            "cut=rst:x",
            "silence=tail",
            "silence=1:x",
            "early=",
            "early_close=true",
            "early=1;early_close=2",
            "stall=x",
            "execute=never",
            "close=idle",
            "close=later",
            "interim=101",
            "events=1000000;event_bytes=1000",
        ] {
            let error = text.parse::<Script>().unwrap_err();
            assert!(
                matches!(error, ScriptError::BadValue { .. }),
                "{text}: {error}"
            );
        }
        let cuts = vec!["1"; ENTRIES_MAX + 1].join(",");
        assert_eq!(
            format!("cuts={cuts}").parse::<Script>(),
            Err(ScriptError::TooLong)
        );
    }

    #[test]
    fn model_names_stand_for_scripts() {
        assert_eq!(Script::from_model("mock-tool"), Some(parsed("tool")));
        assert_eq!(
            Script::from_model("mock-error-529"),
            Some(parsed("status=529"))
        );
        assert_eq!(
            Script::from_model("mock-file-a.sse"),
            Some(parsed("file=a.sse"))
        );
        for shortcut in ["slow", "long", "cut", "silence", "echo"] {
            assert!(
                Script::from_model(&format!("mock-{shortcut}")).is_some(),
                "{shortcut}"
            );
        }
        for plain in ["mock-model", "mock-error-x", "gpt-5", "mock-", ""] {
            assert_eq!(Script::from_model(plain), None, "{plain}");
        }
    }
}
