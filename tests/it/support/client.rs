//! A raw client: it sends the bytes a test gives it and reads answers with the strict reader.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::support::message::{End, Flow, Head, PATIENCE, Stop, Wire, shown};

/// A chat body that every dialect path accepts.
pub(crate) const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// The OpenAI path most tests use.
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// One connection to the gateway.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) wire: Wire,
}

/// One answer, read to its end.
pub(crate) struct Response {
    /// Informational heads that came before.
    pub(crate) interim: Vec<Head>,
    pub(crate) head: Head,
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
    pub(crate) trailers: Vec<Vec<u8>>,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("interim", &self.interim)
            .field("head", &self.head)
            .field("body", &format_args!("{}", shown(&self.body)))
            .field("end", &self.end)
            .field("trailers", &self.trailers.len())
            .finish_non_exhaustive()
    }
}

impl Response {
    /// The code of an error that the gateway made itself.
    pub(crate) fn gateway_error(&self) -> Option<String> {
        self.head.value("x-lanegate-error")
    }

    /// Whether the server said that this is the last answer on the connection.
    pub(crate) fn closes(&self) -> bool {
        self.head.lists("connection", "close") || self.end != End::Complete
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        Self {
            wire: Wire::new(stream),
        }
    }

    /// Inside TLS, to a server that is known by its address.
    pub(crate) fn connect_encrypted(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        let name = ServerName::IpAddress(address.ip().into());
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self {
            wire: Wire::encrypted(stream, session.into()),
        }
    }

    /// Whether the first byte of an answer is there.
    pub(crate) fn has_answer(&self) -> bool {
        let stream = self.wire.stream();
        stream.set_nonblocking(true).unwrap();
        let some = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        some
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.wire.send(bytes)
    }

    /// The next answer, whole, to a request with `method`.
    pub(crate) fn response(&mut self, method: &str) -> Result<Response, Stop> {
        let (interim, head) = self.heads()?;
        let status = head.status()?;
        let mut flow = Flow::new(head.response_framing(method)?);
        let (body, end) = flow.collect(&mut self.wire);
        Ok(Response {
            interim,
            head,
            status,
            body,
            end,
            trailers: flow.trailers,
        })
    }

    /// The next final head, and the informational ones before it.
    pub(crate) fn heads(&mut self) -> Result<(Vec<Head>, Head), Stop> {
        let mut interim = Vec::new();
        loop {
            let head = self.wire.head()?;
            if head.status()? >= 200 {
                return Ok((interim, head));
            }
            interim.push(head);
        }
    }

    /// Sends a request and reads its answer; any stop is the test's failure.
    pub(crate) fn exchange(&mut self, method: &str, request: &[u8]) -> Response {
        self.send(request).unwrap();
        self.response(method).unwrap()
    }
}

/// A request with a Content-Length.
pub(crate) fn request(method: &str, target: &str, fields: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = head(method, target, fields);
    if !body.is_empty() || method == "POST" {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// A request that the gateway answers itself.
pub(crate) fn local() -> Vec<u8> {
    request("HEAD", "/", &[], b"")
}

/// The ordinary chat request.
pub(crate) fn chat(fields: &[&str]) -> Vec<u8> {
    request("POST", CHAT, fields, BODY.as_bytes())
}

/// The head of a request, open for more fields.
pub(crate) fn head(method: &str, target: &str, fields: &[&str]) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: gw.test\r\n");
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    head
}

/// One chunk.
pub(crate) fn chunk(data: &[u8]) -> Vec<u8> {
    let size = format!("{:x}\r\n", data.len());
    [size.as_bytes(), data, b"\r\n"].concat()
}

/// A JSON body of exactly `bytes` bytes that any dialect path accepts.
pub(crate) fn json_of(bytes: usize) -> Vec<u8> {
    let (before, after) = (
        r#"{"model":"m","messages":[{"role":"user","content":""#,
        r#""}]}"#,
    );
    let filler = bytes - before.len() - after.len();
    format!("{before}{}{after}", "x".repeat(filler)).into_bytes()
}

/// Closes, or resets in place of a FIN.
pub(crate) fn leave(client: Client, reset: bool) {
    if reset {
        client.wire.reset();
    } else {
        drop(client);
    }
}
