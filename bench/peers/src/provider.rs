//! A model provider that speaks OpenAI's Chat Completions and Anthropic's Messages. The model's
//! name says how fast: at once, or token by token when it is due. Such a token carries its time of
//! sending.

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
    let Some((api, model)) = asked(&mut stream).await? else { return Ok(()) };
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head).await?;
    stream.write_all(api.begin().as_bytes()).await?;
    match model.as_str() {
        BURST => stream.write_all(burst).await?,
        PACED => speak(&mut stream, api, PACED_TOKENS).await?,
        _ => speak(&mut stream, api, usize::MAX).await?,
    }
    stream.write_all(api.end().as_bytes()).await?;
    stream.shutdown().await
}

/// The protocol of a request, and the model that it names.
async fn asked(stream: &mut TcpStream) -> io::Result<Option<(Api, String)>> {
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
            let is_messages = seen.starts_with(format!("POST {}", Api::Messages.path()).as_bytes());
            let api = if is_messages { Api::Messages } else { Api::Chat };
            return Ok(body["model"].as_str().map(|model| (api, model.to_owned())));
        }
    }
}

/// A protocol of requests and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's Chat Completions.
    Chat,
    /// Anthropic's Messages.
    Messages,
}

impl Api {
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
        }
    }

    /// The bytes before the first token.
    fn begin(self) -> String {
        let usage = json!({ "input_tokens": 5, "output_tokens": 1 });
        let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage });
        let block = json!({ "type": "text", "text": "" });
        match self {
            Self::Chat => String::new(),
            Self::Messages => [
                event("message_start", json!({ "message": message })),
                event("content_block_start", json!({ "index": 0, "content_block": block })),
            ]
            .concat(),
        }
    }

    fn token(self, text: &str) -> String {
        let delta = || json!({ "type": "text_delta", "text": text });
        match self {
            Self::Chat => chunk(text),
            Self::Messages => {
                event("content_block_delta", json!({ "index": 0, "delta": delta() }))
            }
        }
    }

    fn end(self) -> String {
        let delta = json!({ "stop_reason": "end_turn", "stop_sequence": null });
        match self {
            Self::Chat => end(),
            Self::Messages => [
                event("content_block_stop", json!({ "index": 0 })),
                event("message_delta", json!({ "delta": delta, "usage": { "output_tokens": 5 } })),
                event("message_stop", json!({})),
            ]
            .concat(),
        }
    }
}

/// An event of Messages.
fn event(kind: &str, mut data: Value) -> String {
    data["type"] = kind.into();
    format!("event: {kind}\ndata: {data}\n\n")
}

async fn speak(stream: &mut TcpStream, api: Api, count: usize) -> io::Result<()> {
    let began = Instant::now();
    for nth in 0..count {
        tokio::time::sleep_until(began + PERIOD * nth as u32).await;
        stream.write_all(api.token(&format!("@{}@", now())).as_bytes()).await?;
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
