//! A model provider that says what it is told to by the model's name, as OpenAI's Chat Completions:
//! at once, or token by token when it is due. Such a token carries the time of its sending.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::stamps::now;

pub const ROLE: &str = "provider";

pub const TOKENS: usize = 2_000;
pub const PACED_TOKENS: usize = 100;
pub const PERIOD: Duration = Duration::from_millis(20);

/// As fast as it can be read.
pub const BURST: &str = "burst";
/// 50 tokens a second, for two seconds.
pub const PACED: &str = "paced";
/// 50 tokens a second, for as long as anybody listens.
pub const ENDLESS: &str = "endless";

pub fn serve(port: &str) -> io::Result<()> {
    capstan_bench_kit::process::allow_many_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let burst: &'static [u8] = Vec::leak(burst());
    runtime.block_on(async {
        let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(answer(stream, burst));
        }
    })
}

async fn answer(mut stream: TcpStream, burst: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(model) = asked(&mut stream).await? else { return Ok(()) };
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head).await?;
    match model.as_str() {
        BURST => stream.write_all(burst).await?,
        PACED => speak(&mut stream, PACED_TOKENS).await?,
        _ => speak(&mut stream, usize::MAX).await?,
    }
    stream.write_all(end().as_bytes()).await?;
    stream.shutdown().await
}

/// The model that a request names.
async fn asked(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(None);
        }
        seen.extend_from_slice(&buffer[..n]);
        // Requests are small: whatever is a document after the head is the whole body.
        let body = memchr::memmem::find(&seen, b"\r\n\r\n").map(|at| &seen[at + 4..]);
        if let Some(body) = body.and_then(|body| serde_json::from_slice::<Value>(body).ok()) {
            return Ok(body["model"].as_str().map(str::to_owned));
        }
    }
}

async fn speak(stream: &mut TcpStream, count: usize) -> io::Result<()> {
    let began = Instant::now();
    for nth in 0..count {
        tokio::time::sleep_until(began + PERIOD * nth as u32).await;
        stream.write_all(chunk(&format!("@{}@", now())).as_bytes()).await?;
    }
    Ok(())
}

fn chunk(text: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

fn burst() -> Vec<u8> {
    (1..=TOKENS).map(|n| chunk(&format!("tok{n} "))).collect::<String>().into_bytes()
}

fn end() -> String {
    let mut end = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk",
    "created": 1_700_000_000, "model": "m" });
    end["choices"] = json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]);
    end["usage"] = json!({ "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10 });
    format!("data: {end}\n\ndata: [DONE]\n\n")
}
