//! The readers of server-sent events under test, each the way its authors mean it to be used.
//!
//! All get the same borrowed chunks and hand over the data of every frame; nobody pays for a
//! runtime or a copy that the crate does not make itself.

use std::convert::Infallible;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use capstan_protocol::sse;
use eventsource_stream::Eventsource as _;
use futures_util::stream::{self, Stream};

/// Ours.
pub fn capstan(chunks: &[&[u8]], mut take: impl FnMut(&str)) {
    let mut decoder = sse::Decoder::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(frame) = decoder.next_frame() {
            take(&frame.expect("no frame is too large").data);
        }
    }
}

pub fn eventsource_stream(chunks: &[&[u8]], mut take: impl FnMut(&str)) {
    drain(ready(chunks).eventsource(), |event| take(&event.expect("a valid body").data));
}

pub fn sse_stream(chunks: &[&[u8]], mut take: impl FnMut(&str)) {
    drain(sse_stream::SseByteStream::new(ready(chunks)), |block| {
        if let Some(data) = block.expect("a valid body").data {
            take(&data);
        }
    });
}

fn ready<'a>(chunks: &'a [&'a [u8]]) -> impl Stream<Item = Result<&'a [u8], Infallible>> + Unpin {
    stream::iter(chunks.iter().map(|chunk| Ok(*chunk)))
}

/// Polls by hand: a stream of ready chunks never waits.
fn drain<S: Stream>(stream: S, mut take: impl FnMut(S::Item)) {
    let mut stream = pin!(stream);
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(item)) = stream.as_mut().poll_next(&mut context) {
        take(item);
    }
}
