//! One request and its response: forwarded, refused, held back, passed at a pace.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::fate::{Fate, Refusal, Stopping};
use crate::faults::Hangup;
use crate::frames::Scanner;
use crate::framing::{Framing, Piece};
use crate::head::{HeadError, Request, Response};
use crate::ledger::Tally;
use crate::memory::StreamKey;
use crate::outlet::{Outlet, Pace};
use crate::passage::Passage;
use crate::shared::Shared;

/// The size of one read.
const PIECE: usize = 16 * 1024;

/// Answers the one request of a connection. Returns how to hang up; errors are of the client's
/// socket.
pub(crate) async fn answer(shared: &Shared, client: &mut TcpStream) -> io::Result<Hangup> {
    let (mut from_client, to_client) = client.split();
    let (mut out, mut rest) = (Outlet::new(to_client), BytesMut::new());
    let mut request = match Request::read(&mut from_client, &mut rest).await {
        Ok(request) => request,
        Err(HeadError::Ended | HeadError::Io(_)) => return Ok(Hangup::Fin),
        Err(error @ HeadError::TooLarge) => {
            return say(&mut out, 431, "Request Header Fields Too Large", &error).await;
        }
        Err(error @ HeadError::Malformed(_)) => {
            return say(&mut out, 400, "Bad Request", &error).await;
        }
    };
    let fate = shared.covers(&request).then(|| shared.draw());
    if let Some(refusal) = fate.as_ref().and_then(|fate| shared.refusal(&request, fate)) {
        return refuse(&mut out, refusal).await;
    }
    if fate.is_some() {
        // Frames cannot be seen in a compressed body.
        request.remove("accept-encoding");
    }
    let mut upstream = match TcpStream::connect(shared.upstream.address()).await {
        Ok(upstream) => upstream,
        Err(error) => return say(&mut out, 502, "Bad Gateway", &error).await,
    };
    let _ = upstream.set_nodelay(true);
    let (from_upstream, to_upstream) = upstream.split();
    let head = request.to_bytes();
    let exchange = Exchange { shared, request, fate, from_upstream, out };
    tokio::select! {
        hangup = exchange.respond() => hangup,
        () = forward(&head, rest, from_client, to_upstream) => Ok(Hangup::Fin),
    }
}

/// Forwards the request, its body and the client's FIN. It returns only when the client is gone,
/// because a server that stops reading may still answer.
async fn forward(head: &[u8], mut rest: BytesMut, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) {
    let mut is_heard = to.write_all(head).await.is_ok();
    loop {
        is_heard = is_heard && to.write_all(&rest).await.is_ok();
        rest.clear();
        if !is_heard {
            return std::future::pending().await;
        }
        rest.reserve(PIECE);
        match from.read_buf(&mut rest).await {
            Ok(0) => {
                let _ = to.shutdown().await;
                return std::future::pending().await;
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// An answer of our own that is no fault on purpose.
async fn say(
    out: &mut Outlet<WriteHalf<'_>>,
    status: u16,
    reason: &str,
    error: &(dyn std::error::Error + Sync),
) -> io::Result<Hangup> {
    let text = format!("chaos: {error}\n");
    write_own(out, Response::own(status, reason), &text).await
}

async fn refuse(out: &mut Outlet<WriteHalf<'_>>, refusal: Refusal) -> io::Result<Hangup> {
    let reason = match refusal.status {
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Refused",
    };
    let mut response = Response::own(refusal.status, reason);
    if let Some(seconds) = refusal.retry_after {
        response.add("retry-after", seconds.to_string());
    }
    write_own(out, response, "chaos: refused on purpose\n").await
}

async fn write_own(
    out: &mut Outlet<WriteHalf<'_>>,
    mut response: Response,
    text: &str,
) -> io::Result<Hangup> {
    response.add("content-length", text.len().to_string());
    let mut bytes = response.to_bytes();
    bytes.extend_from_slice(text.as_bytes());
    out.write(&bytes).await?;
    Ok(Hangup::Fin)
}

/// A request that was forwarded.
struct Exchange<'a> {
    shared: &'a Shared,
    request: Request,
    fate: Option<Fate>,
    from_upstream: ReadHalf<'a>,
    out: Outlet<WriteHalf<'a>>,
}

impl Exchange<'_> {
    /// Reads the response and applies the stream's fate. The client also sees what the upstream
    /// does by itself.
    async fn respond(mut self) -> io::Result<Hangup> {
        let mut buffer = BytesMut::new();
        let response = match self.read_head(&mut buffer).await? {
            Ok(response) => response,
            Err(HeadError::Io(_)) => return Ok(Hangup::Reset),
            Err(HeadError::Ended) => return Ok(Hangup::Fin),
            Err(error @ (HeadError::TooLarge | HeadError::Malformed(_))) => {
                return say(&mut self.out, 502, "Bad Gateway", &error).await;
            }
        };
        let framing = Framing::of(&response, self.request.is_head());
        let is_covered = self.shared.faults.all || response.is_event_stream();
        if framing == Framing::Length(0) || !is_covered {
            return self.pass_untouched(response, framing, buffer).await;
        }
        self.pass_stream(response, framing, buffer).await
    }

    /// The final head, with interim ones passed on.
    async fn read_head(
        &mut self,
        buffer: &mut BytesMut,
    ) -> io::Result<Result<Response, HeadError>> {
        loop {
            let response = match Response::read(&mut self.from_upstream, buffer).await {
                Ok(response) => response,
                Err(error) => return Ok(Err(error)),
            };
            if !response.is_interim() {
                return Ok(Ok(response));
            }
            self.out.write(&response.to_interim_bytes()).await?;
        }
    }

    async fn pass_untouched(
        mut self,
        response: Response,
        framing: Framing,
        buffer: BytesMut,
    ) -> io::Result<Hangup> {
        self.out.set_chunked(response.is_chunked());
        self.out.write(&response.to_bytes()).await?;
        self.pass_body(framing, buffer, Fate::default(), None).await
    }

    async fn pass_stream(
        mut self,
        mut response: Response,
        framing: Framing,
        buffer: BytesMut,
    ) -> io::Result<Hangup> {
        // A stream may also come as the answer to a request that did not look like it.
        let fate = self.fate.take().unwrap_or_else(|| self.shared.draw());
        if let Some(time) = fate.delay.filter(|_| self.spend(|tally| &mut tally.delays)) {
            tokio::time::sleep(time).await;
        }
        if let Some(Stopping::BeforeHead(hangup)) = fate.stop
            && self.spend(|tally| &mut tally.cuts)
        {
            return Ok(hangup);
        }
        self.out.set_pace(self.pace(&fate));
        // In chunks, because a repeat makes a body longer and a clean end makes it shorter.
        let is_chunked = self.request.knows_chunks();
        response.remove("content-length");
        response.remove("transfer-encoding");
        if is_chunked {
            response.add("transfer-encoding", "chunked");
        }
        self.out.set_chunked(is_chunked);
        self.out.write(&response.to_bytes()).await?;
        let key = if response.is_event_stream() { Some(self.repeat(&fate).await?) } else { None };
        self.pass_body(framing, buffer, fate, key).await
    }

    fn pace(&self, fate: &Fate) -> Pace {
        Pace {
            drip: fate.drip && self.spend(|tally| &mut tally.drips),
            bytes_per_second: fate.throttle.filter(|_| self.spend(|tally| &mut tally.throttles)),
        }
    }

    /// Sends packets again that a resuming client has seen, if the fate says so. Returns the
    /// stream's key in memory.
    async fn repeat(&mut self, fate: &Fate) -> io::Result<StreamKey> {
        let memory = &self.shared.memory;
        let cursor = self.request.get("last-event-id").unwrap_or_default();
        let Some(key) = memory.find(cursor) else { return Ok(memory.open()) };
        let seen: Vec<Bytes> = memory.recall(key, cursor, fate.repeat.unwrap_or(0));
        if !seen.is_empty() && self.spend(|tally| &mut tally.repeats) {
            for packet in &seen {
                self.out.write_chunk(packet).await?;
            }
        }
        Ok(key)
    }

    async fn pass_body(
        mut self,
        mut framing: Framing,
        mut buffer: BytesMut,
        fate: Fate,
        key: Option<StreamKey>,
    ) -> io::Result<Hangup> {
        let Shared { ledger, memory, .. } = self.shared;
        let keep = key.map(|key| (memory, key));
        let mut passage = Passage {
            scanner: Scanner::default(),
            stall: fate.stall,
            stop: fate.stop,
            ledger,
            keep,
        };
        loop {
            match framing.next(&mut buffer) {
                Ok(Piece::Data(data)) => {
                    if let Some(hangup) = passage.pass(&data, &mut self.out).await? {
                        return Ok(hangup);
                    }
                }
                Ok(Piece::More) => {
                    buffer.reserve(PIECE);
                    match self.from_upstream.read_buf(&mut buffer).await {
                        Ok(0) if framing.may_end() => break,
                        Ok(0) => return Ok(Hangup::Fin),
                        Ok(_) => {}
                        Err(_) => return Ok(Hangup::Reset),
                    }
                }
                Ok(Piece::End) => break,
                Err(_) => return Ok(Hangup::Fin),
            }
        }
        if let Some(key) = key {
            memory.forget(key);
        }
        self.out.finish().await?;
        Ok(Hangup::Fin)
    }

    fn spend(&self, count: impl FnOnce(&mut Tally) -> &mut u64) -> bool {
        self.shared.ledger.spend(count)
    }
}
