//! A model that words every call differently: call 7 writes `c7w1 c7w2 …`. So a test sees if a
//! stream mixes two calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct Wordy {
    pub(crate) url: String,
    calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Wordy {
    /// Starts it, with this number of words per answer and this pace.
    pub(crate) async fn start(words: usize, pace: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (url, calls) =
            (format!("http://{}/v1", listener.local_addr().unwrap()), Arc::default());
        let counter: Arc<AtomicUsize> = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let call = counter.fetch_add(1, Ordering::SeqCst) + 1;
                // A closed connection ends it.
                tokio::spawn(async move { drop(answer(socket, call, words, pace).await) });
            }
        });
        Self { url, calls, task }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The call of a complete answer; `None` if the text is none.
    pub(crate) fn call_of(text: &str, words: usize) -> Option<usize> {
        let call = text.strip_prefix('c')?.split('w').next()?.parse().ok()?;
        (said(call, words).concat() == text).then_some(call)
    }
}

impl Drop for Wordy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn said(call: usize, words: usize) -> Vec<String> {
    (1..=words).map(|word| format!("c{call}w{word} ")).collect()
}

async fn answer(
    socket: TcpStream,
    call: usize,
    words: usize,
    pace: Duration,
) -> std::io::Result<()> {
    let mut socket = BufReader::new(socket);
    let (mut length, mut line) = (0, String::new());
    while socket.read_line(&mut line).await? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    socket.read_exact(&mut vec![0; length]).await?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    for word in said(call, words) {
        let piece = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n"
        );
        socket.write_all(piece.as_bytes()).await?;
        socket.flush().await?;
        tokio::time::sleep(pace).await;
    }
    let end = "data: \
     {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    socket.write_all(end.as_bytes()).await?;
    socket.shutdown().await
}
