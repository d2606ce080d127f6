//! A streaming Brotli decoder over the crate `brotli-decompressor`. The crate that also has an
//! encoder is much larger, and nobody here needs an encoder.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Decompresses the content of `packed`.
pub(crate) struct BrotliDecoder<R> {
    packed: R,
    // Boxed, because it has many kilobytes.
    state: Box<State>,
    next: Next,
}

/// What the decoder needs next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Input,
    /// Room for output: it has more output than fitted.
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
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { packed, state, next } = self.get_mut();
        let before = buffer.filled().len();
        while *next != Next::Nothing && buffer.remaining() > 0 && buffer.filled().len() == before {
            // Returns the present output before it waits for more input.
            let input = match next {
                Next::Input => ready!(Pin::new(&mut *packed).poll_fill_buf(context))?,
                Next::Room | Next::Nothing => &[],
            };
            let is_end = *next == Next::Input && input.is_empty();
            let (used, result) = unpack(state, input, buffer);
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

/// Decompresses into the buffer. Returns how much input it used, and what it needs next.
fn unpack(state: &mut State, input: &[u8], buffer: &mut ReadBuf<'_>) -> (usize, BrotliResult) {
    let output = buffer.initialize_unfilled();
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
    buffer.advance(written);
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

    /// Two parts, of which the first one is flushed.
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
        for (piece, buffer) in [(1, 1), (7, 16 * 1024), (bytes.len(), 3), (bytes.len(), 1 << 20)] {
            let mut decoder = decoder(bytes.chunks(piece).map(<[u8]>::to_vec).collect());
            let mut unpacked = Vec::new();
            while (&mut decoder).take(buffer).read_to_end(&mut unpacked).await.unwrap() > 0 {}
            assert!(
                unpacked == [&text[..], b"the end"].concat(),
                "pieces of {piece}, room for {buffer}"
            );
        }
    }

    #[tokio::test]
    async fn flushed_output_is_returned_before_more_input() {
        let (first, _) = packed(b"one", b"two").await;
        let packed = stream::iter([io::Result::Ok(Bytes::from(first))]).chain(stream::pending());
        let mut decoder = BrotliDecoder::new(StreamReader::new(packed));
        let mut buffer = [0; 16];
        assert_eq!(decoder.read(&mut buffer).now_or_never().unwrap().unwrap(), 3);
        assert_eq!(&buffer[..3], b"one");
        assert!(decoder.read(&mut buffer).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_cut_is_distinguished_from_invalid_brotli() {
        let (first, _) = packed(b"one", b"two").await;
        let cut = decoder(vec![first]).read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        let odd = decoder(vec![vec![0xff; 64]]).read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(odd.kind(), io::ErrorKind::Other);
    }
}
