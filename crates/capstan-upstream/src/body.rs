//! Reads the body of a response, and decompresses it if necessary.
//!
//! The adapter does not ask for compression, but some servers and proxies compress anyway.
//! Decompression works in pieces of a fixed size and up to a limit, so that a small response cannot
//! fill the memory.

use std::io;
use std::pin::Pin;

use async_compression::tokio::bufread::{GzipDecoder, ZlibDecoder, ZstdDecoder};
use bytes::{Bytes, BytesMut};
use capstan_protocol::{ErrorSeverity, Fault};
use futures_util::TryStreamExt as _;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::io::StreamReader;

use crate::brotli::BrotliDecoder;
use crate::decode::malformed;
use crate::http::{cut, cut_by};

/// The size of a decompressed piece, in bytes.
const PIECE: usize = 16 * 1024;
/// The largest decompressed body, in bytes. No answer of a model is larger.
const LONGEST: usize = 256 * 1024 * 1024;

pub(crate) enum Body {
    Plain(Response),
    Packed { reader: Pin<Box<dyn AsyncRead + Send>>, left: usize },
}

impl Body {
    /// Opens a body by the encoding in its headers. An unknown encoding is a fatal fault, because a
    /// retry would get it again.
    pub(crate) fn of(response: Response) -> Result<Self, Fault> {
        let encoding =
            response.headers().get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
        if matches!(encoding.as_str(), "" | "identity") {
            return Ok(Self::Plain(response));
        }
        let packed = StreamReader::new(response.bytes_stream().map_err(io::Error::other));
        let reader: Pin<Box<dyn AsyncRead + Send>> = match encoding.as_str() {
            "gzip" | "x-gzip" => {
                let mut decoder = GzipDecoder::new(packed);
                decoder.multiple_members(true);
                Box::pin(decoder)
            }
            "br" => Box::pin(BrotliDecoder::new(packed)),
            "zstd" => Box::pin(ZstdDecoder::new(packed)),
            "deflate" => Box::pin(ZlibDecoder::new(packed)),
            other => return Err(unreadable(format!("a body in the encoding {other:?}"))),
        };
        Ok(Self::Packed { reader, left: LONGEST })
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let (reader, left) = match self {
            Self::Plain(response) => return response.chunk().await.map_err(cut),
            Self::Packed { reader, left } => (reader, left),
        };
        let mut piece = BytesMut::with_capacity(PIECE);
        let len = (&mut *reader).take(PIECE as u64).read_buf(&mut piece).await.map_err(broken)?;
        *left = left
            .checked_sub(len)
            .ok_or_else(|| unreadable(format!("a body of more than {LONGEST} bytes")))?;
        Ok((len > 0).then(|| piece.freeze()))
    }
}

fn unreadable(what: String) -> Fault {
    malformed(what).with_severity(ErrorSeverity::Fatal)
}

/// The connection broke, or the body does not match its headers.
fn broken(error: io::Error) -> Fault {
    let is_ours = error.get_ref().is_some_and(|inner| inner.is::<reqwest::Error>());
    let is_cut = is_ours || error.kind() == io::ErrorKind::UnexpectedEof;
    if is_cut {
        cut_by(&error)
    } else {
        malformed(format!("a body that cannot be unpacked: {error}"))
    }
}
