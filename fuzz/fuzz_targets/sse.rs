//! However the bytes are cut, they read as the rules say, and a limit is met or broken alike.
#![no_main]

#[path = "../../crates/capstan-protocol/tests/it/any/rules.rs"]
mod rules;

use capstan_protocol::sse::Decoder;
use libfuzzer_sys::fuzz_target;
use rules::Reading;

// The first three bytes say where to cut, how large the later pieces are, and the limit.
fuzz_target!(|bytes: &[u8]| {
    let [at, size, limit, body @ ..] = bytes else { return };
    let (head, tail) = body.split_at(usize::from(*at).min(body.len()));
    let pieces = || std::iter::once(head).chain(tail.chunks(usize::from(*size) + 1));

    let plain = Some(rules::read(body));
    assert_eq!(read([body], usize::MAX), plain);
    assert_eq!(read(pieces(), usize::MAX), plain);

    let limit = usize::from(*limit);
    assert_eq!(read(pieces(), limit), read([body], limit));
});

/// What the decoder reads from these pieces, or nothing if it gave up.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Option<Reading> {
    let mut decoder = Decoder::with_limit(limit);
    let mut reading = Reading::default();
    for piece in pieces {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame() {
            let frame = frame.ok()?;
            let (event, data) = (frame.event.into_owned(), frame.data.into_owned());
            reading.events.push((event, data, decoder.last_event_id().map(str::to_owned)));
        }
    }
    reading.id = decoder.last_event_id().map(str::to_owned);
    reading.retry = decoder.retry();
    Some(reading)
}
