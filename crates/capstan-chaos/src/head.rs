//! Heads of requests and responses: reads them with a limit, inspects them, writes them again.

use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Heads above this are refused.
const LIMIT: usize = 64 * 1024;
/// Header fields above this are refused.
const FIELDS: usize = 256;
/// The size of one read.
const PIECE: usize = 4 * 1024;
/// Fields about one connection, which must not be forwarded. The proxy supports no upgrades.
const HOP_BY_HOP: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "te", "upgrade"];

/// Why there is no head.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    /// The connection ended before it did; also when it never began.
    #[error("the connection ended within the head")]
    Ended,
    #[error("the head is larger than {LIMIT} bytes")]
    TooLarge,
    #[error("not HTTP/1.1: {0}")]
    Malformed(#[from] httparse::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The start line and the fields.
#[derive(Debug)]
pub(crate) struct Head<L> {
    pub(crate) line: L,
    fields: Vec<(String, Vec<u8>)>,
}

#[derive(Debug)]
pub(crate) struct RequestLine {
    method: String,
    target: String,
    /// The minor version: HTTP/1.0 knows no chunks.
    version: u8,
}

#[derive(Debug)]
pub(crate) struct StatusLine {
    pub(crate) status: u16,
    reason: String,
}

pub(crate) type Request = Head<RequestLine>;
pub(crate) type Response = Head<StatusLine>;

impl<L> Head<L> {
    /// The first value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    /// Whether any value of a field mentions a word.
    fn mentions(&self, name: &str, word: &str) -> bool {
        let has_word =
            |value: &[u8]| String::from_utf8_lossy(value).to_ascii_lowercase().contains(word);
        self.fields.iter().any(|(known, value)| known.eq_ignore_ascii_case(name) && has_word(value))
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    pub(crate) fn add(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.fields.push((name.to_owned(), value.into()));
    }

    fn write(&self, start: &str) -> Vec<u8> {
        let mut out = format!("{start}\r\n").into_bytes();
        for (name, value) in &self.fields {
            if HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop)) {
                continue;
            }
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        // With one request per connection, connections and requests have the same numbers.
        out.extend_from_slice(b"connection: close\r\n\r\n");
        out
    }
}

impl Request {
    /// Reads a request's head. What follows it stays in `buffer`.
    pub(crate) async fn read(
        from: impl AsyncRead + Unpin,
        buffer: &mut BytesMut,
    ) -> Result<Self, HeadError> {
        read(from, buffer, Self::parse).await
    }

    fn parse(bytes: &[u8]) -> Result<Option<(usize, Self)>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(length) = request.parse(bytes)? else { return Ok(None) };
        let line = RequestLine {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            version: request.version.unwrap_or(1),
        };
        Ok(Some((length, Self { line, fields: own(request.headers) })))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let RequestLine { method, target, version } = &self.line;
        self.write(&format!("{method} {target} HTTP/1.{version}"))
    }

    /// Whether the client probably wants a stream: it accepts event streams, or it posts and
    /// accepts anything.
    pub(crate) fn wants_stream(&self) -> bool {
        let takes_anything = self.get("accept").is_none() || self.mentions("accept", "*/*");
        self.mentions("accept", "text/event-stream")
            || (self.line.method == "POST" && takes_anything)
    }

    pub(crate) fn is_head(&self) -> bool {
        self.line.method == "HEAD"
    }

    pub(crate) fn knows_chunks(&self) -> bool {
        self.line.version >= 1
    }
}

impl Response {
    /// Reads a response's head. What follows it stays in `buffer`.
    pub(crate) async fn read(
        from: impl AsyncRead + Unpin,
        buffer: &mut BytesMut,
    ) -> Result<Self, HeadError> {
        read(from, buffer, Self::parse).await
    }

    fn parse(bytes: &[u8]) -> Result<Option<(usize, Self)>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
        let line = StatusLine {
            status: response.code.unwrap_or_default(),
            reason: response.reason.unwrap_or_default().to_owned(),
        };
        Ok(Some((length, Self { line, fields: own(response.headers) })))
    }

    /// An answer of the proxy's own: a line of text.
    pub(crate) fn own(status: u16, reason: &str) -> Self {
        let line = StatusLine { status, reason: reason.to_owned() };
        Self { line, fields: vec![("content-type".into(), b"text/plain; charset=utf-8".into())] }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.write(&format!("HTTP/1.1 {} {}", self.line.status, self.line.reason))
    }

    /// Writes an interim response. The connection fields belong to the final one.
    pub(crate) fn to_interim_bytes(&self) -> Vec<u8> {
        format!("HTTP/1.1 {} {}\r\n\r\n", self.line.status, self.line.reason).into_bytes()
    }

    pub(crate) fn is_event_stream(&self) -> bool {
        self.mentions("content-type", "text/event-stream")
    }

    /// `100 Continue` and its like: another head follows.
    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.line.status)
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.mentions("transfer-encoding", "chunked")
    }

    pub(crate) fn content_length(&self) -> Option<u64> {
        std::str::from_utf8(self.get("content-length")?).ok()?.trim().parse().ok()
    }
}

type Parse<T> = fn(&[u8]) -> Result<Option<(usize, T)>, httparse::Error>;

async fn read<T>(
    mut from: impl AsyncRead + Unpin,
    buffer: &mut BytesMut,
    parse: Parse<T>,
) -> Result<T, HeadError> {
    // Parsing starts over with each piece: a head comes in one or two, and its size is limited.
    loop {
        if let Some((length, head)) = parse(buffer)? {
            buffer.advance(length);
            return Ok(head);
        }
        if buffer.len() >= LIMIT {
            return Err(HeadError::TooLarge);
        }
        buffer.reserve(PIECE);
        if from.read_buf(buffer).await? == 0 {
            return Err(HeadError::Ended);
        }
    }
}

fn own(fields: &[httparse::Header<'_>]) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|field| (field.name.to_owned(), field.value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request::parse(text.as_bytes()).unwrap().unwrap().1
    }

    #[test]
    fn a_head_is_forwarded_without_what_concerns_one_connection() {
        let text = "POST /v1/assist?x=1 HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nX-A: \
         1\r\nx-a: 2\r\n\r\n";
        let expected = "POST /v1/assist?x=1 HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: \
         2\r\nconnection: close\r\n\r\n";
        assert_eq!(request(text).to_bytes(), expected.as_bytes());
    }

    #[test]
    fn streams_are_told_from_other_requests() {
        let wants = |method: &str, accept: &str| {
            request(&format!("{method} / HTTP/1.1\r\n{accept}\r\n")).wants_stream()
        };
        assert!(wants("POST", ""));
        assert!(wants("POST", "accept: */*\r\n"));
        assert!(wants("GET", "Accept: Text/Event-Stream\r\n"));
        assert!(!wants("POST", "accept: application/json\r\n"));
        assert!(!wants("GET", ""));
        assert!(!wants("GET", "accept: */*\r\n"));
    }

    #[tokio::test]
    async fn what_is_no_head_is_refused() {
        let read =
            async |bytes: &[u8]| Request::read(bytes, &mut BytesMut::new()).await.unwrap_err();
        assert!(matches!(read(b"").await, HeadError::Ended));
        assert!(matches!(read(b"GET / HTTP/1.1\r\n").await, HeadError::Ended));
        assert!(matches!(read(b"\x16\x03\x01\x02\x00").await, HeadError::Malformed(_)));
        assert!(matches!(read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, HeadError::Malformed(_)));
        let endless = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &[b'y'; 2 * LIMIT]].concat();
        assert!(matches!(read(&endless).await, HeadError::TooLarge));
    }
}
