//! Brotli, unpacked while it comes. The encoder, which nobody here needs, is most of the crate that
//! has both.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Reads what `packed` holds.
pub(crate) struct BrotliDecoder<R> {
    packed: R,
    // Kilobytes, which nobody wants to move.
    state: Box<State>,
    next: Next,
}

/// What the decoder can do something with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Input,
    /// It has more than there was room for.
    Room,
    Nothing,
}

impl<R> BrotliDecoder<R> {
    pub(crate) fn new(packed: R) -> Self {
        let new = StandardAlloc::default;
        Self { packed, state: Box::new(State::new(new(), new(), new())), next: Next::Input }
    }
}

impl<R: AsyncBufRead + Unpin> AsyncRead for BrotliDecoder<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { packed, state, next } = self.get_mut();
        let before = room.filled().len();
        while *next != Next::Nothing && room.remaining() > 0 && room.filled().len() == before {
            // What is inside is told before more is waited for.
            let input = match next {
                Next::Input => ready!(Pin::new(&mut *packed).poll_fill_buf(context))?,
                Next::Room | Next::Nothing => &[],
            };
            let is_end = *next == Next::Input && input.is_empty();
            let (used, result) = unpack(state, input, room);
            Pin::new(&mut *packed).consume(used);
            *next = match result {
                BrotliResult::ResultSuccess => Next::Nothing,
                BrotliResult::NeedsMoreOutput => Next::Room,
                BrotliResult::NeedsMoreInput if is_end => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                BrotliResult::NeedsMoreInput => Next::Input,
                BrotliResult::ResultFailure => {
                    return Poll::Ready(Err(io::Error::other("not brotli")));
                }
            };
        }
        Poll::Ready(Ok(()))
    }
}

/// Fills the room; how much of the input that took, and what is needed to go on.
fn unpack(state: &mut State, input: &[u8], room: &mut ReadBuf<'_>) -> (usize, BrotliResult) {
    let output = room.initialize_unfilled();
    let (mut left, mut used, mut free, mut written) = (input.len(), 0, output.len(), 0);
    let result = BrotliDecompressStream(
        &mut left,
        &mut used,
        input,
        &mut free,
        &mut written,
        output,
        &mut 0,
        state,
    );
    room.advance(written);
    (used, result)
}

#[cfg(test)]
mod tests {
    use async_compression::tokio::write::BrotliEncoder;
    use bytes::Bytes;
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_util::io::StreamReader;

    use super::*;

    /// Two parts, the first of them flushed.
    async fn packed(first: &[u8], second: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut encoder = BrotliEncoder::new(Vec::new());
        encoder.write_all(first).await.unwrap();
        encoder.flush().await.unwrap();
        let flushed = encoder.get_ref().clone();
        encoder.write_all(second).await.unwrap();
        encoder.shutdown().await.unwrap();
        let rest = encoder.into_inner().split_off(flushed.len());
        (flushed, rest)
    }

    fn decoder(pieces: Vec<Vec<u8>>) -> BrotliDecoder<impl AsyncBufRead + Unpin> {
        BrotliDecoder::new(StreamReader::new(stream::iter(
            pieces.into_iter().map(Bytes::from).map(io::Result::Ok),
        )))
    }

    #[tokio::test]
    async fn any_split_and_any_room_gives_the_same_bytes() {
        let text: Vec<u8> = (0..2_000_u32).flat_map(|n| (n * n).to_be_bytes()).collect();
        let (first, rest) = packed(&text, b"the end").await;
        let bytes = [first, rest].concat();
        for (piece, room) in [(1, 1), (7, 16 * 1024), (bytes.len(), 3), (bytes.len(), 1 << 20)] {
            let mut decoder = decoder(bytes.chunks(piece).map(<[u8]>::to_vec).collect());
            let mut told = Vec::new();
            while (&mut decoder).take(room).read_to_end(&mut told).await.unwrap() > 0 {}
            assert!(told == [&text[..], b"the end"].concat(), "pieces of {piece}, room for {room}");
        }
    }

    #[tokio::test]
    async fn what_was_flushed_is_told_before_more_comes() {
        let (first, _) = packed(b"one", b"two").await;
        let packed = stream::iter([io::Result::Ok(Bytes::from(first))]).chain(stream::pending());
        let mut decoder = BrotliDecoder::new(StreamReader::new(packed));
        let mut room = [0; 16];
        assert_eq!(decoder.read(&mut room).now_or_never().unwrap().unwrap(), 3);
        assert_eq!(&room[..3], b"one");
        assert!(decoder.read(&mut room).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_cut_is_told_from_what_is_not_brotli() {
        let (first, _) = packed(b"one", b"two").await;
        let cut = decoder(vec![first]).read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        let odd = decoder(vec![vec![0xff; 64]]).read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(odd.kind(), io::ErrorKind::Other);
    }
}
