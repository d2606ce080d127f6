//! The processes behind the callers: a provider that speaks when it is due, and the gateway in
//! front of it.

use std::io;
use std::path::PathBuf;

use capstan_agent::Clock;
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_stores::{Durability, open};
use capstan_upstream::Kinds;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::{PERIOD, TOKENS, now};

/// Where a gateway process keeps its journal.
pub fn folder(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("capstan-bench-{process}"))
}

/// The provider: tokens when they are due.
pub fn provide(_: &[String]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(answer(stream));
        }
    })
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut seen = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    // The body is small and comes with the head, or right after it.
    while !seen.windows(4).any(|window| window == b"\r\n\r\n") || !seen.ends_with(b"}") {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&buffer[..n]);
    }
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        )
        .await?;
    let began = Instant::now();
    for nth in 0..TOKENS {
        tokio::time::sleep_until(began + PERIOD * nth as u32).await;
        let chunk =
            json!({ "choices": [{ "index": 0, "delta": { "content": format!("@{}@", now()) } }] });
        stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await?;
    }
    let end =
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }], "usage": {} });
    stream.write_all(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes()).await?;
    stream.shutdown().await
}

/// The gateway, as `capstan serve` has it.
pub fn stand_between(arguments: &[String]) -> io::Result<()> {
    let provider = arguments.first().cloned().unwrap_or_default();
    let folder = folder(std::process::id());
    let is_disk = arguments.get(1).is_some_and(|journal| journal == "disk");
    let journal = if is_disk { format!("disk:{}", folder.display()) } else { "memory:".to_owned() };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let store = open(&journal, Durability::default()).map_err(io::Error::other)?;
        let keys = json!({ "url": format!("http://{provider}/v1"), "model": "m" });
        let keys: Map<String, Value> = keys.as_object().cloned().unwrap_or_default();
        let agent = Kinds::default().build("openai", keys, &Clock::default());
        let agent = agent.map_err(io::Error::other)?;
        let gateway = Gateway::new(Journal::new(store, TailLimits::default())).agent("a", agent);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        serve(gateway, vec![listener], std::future::pending()).await.map(|_| ())
    })
}
