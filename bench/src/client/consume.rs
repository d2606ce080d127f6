//! The consumers of the client bench, each in a process of its own.

use std::io;
use std::time::{Duration, Instant};

use capstan_client::CapClient;
use capstan_protocol::{Payload, StreamPacket};
use eventsource_client::{Client as _, ClientBuilder, ReconnectOptions, SSE};
use futures_util::TryStreamExt as _;
use launchdarkly_sdk_transport::HyperTransport;
use serde_json::json;
use uuid::Uuid;

pub const ROLE: &str = "client-consumer";

pub fn run(args: &[String]) -> io::Result<()> {
    let [name, url] = args else { return Err(io::Error::other("expected a client and a URL")) };
    let mut count = Count::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match name.as_str() {
        "capstan" => runtime.block_on(capstan(url, &mut count))?,
        "capstan-blocking" => blocking(url, &mut count)?,
        _ => runtime.block_on(eventsource(url, &mut count))?,
    }
    count.report();
    Ok(())
}

#[derive(Default)]
struct Count {
    packets: usize,
    start: Option<Instant>,
    early_kb: u64,
}

impl Count {
    fn one(&mut self, packet: &StreamPacket) {
        self.packets += 1;
        if self.start.is_none() {
            (self.start, self.early_kb) = (Some(Instant::now()), resident());
        }
        std::hint::black_box(packet);
    }

    fn report(&self) {
        let seconds = self.start.map_or(0.0, |start| start.elapsed().as_secs_f64());
        let result = json!({ "packets": self.packets, "seconds": seconds,
        "early_kb": self.early_kb, "late_kb": resident() });
        println!("{result}");
    }
}

async fn capstan(url: &str, count: &mut Count) -> io::Result<()> {
    let client = CapClient::new(url, "sk").map_err(io::Error::other)?;
    let mut packets = client.assist(&client.question(Uuid::now_v7(), "Hi"));
    while let Some(packet) = packets.next().await.map_err(io::Error::other)? {
        count.one(&packet);
    }
    Ok(())
}

fn blocking(url: &str, count: &mut Count) -> io::Result<()> {
    let client = capstan_client::blocking::CapClient::new(url, "sk").map_err(io::Error::other)?;
    let question =
        CapClient::new(url, "sk").map_err(io::Error::other)?.question(Uuid::now_v7(), "Hi");
    for packet in client.assist(&question) {
        count.one(&packet.map_err(io::Error::other)?);
    }
    Ok(())
}

/// As its README has it, with the packet read by serde.
async fn eventsource(url: &str, count: &mut Count) -> io::Result<()> {
    let transport = HyperTransport::builder()
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(60))
        .build_http()
        .map_err(io::Error::other)?;
    let client = ClientBuilder::for_url(&format!("{url}/assist"))
        .map_err(|e| io::Error::other(format!("{e:?}")))?
        .method("POST".into())
        .body("{}".into())
        .reconnect(ReconnectOptions::reconnect(false).build())
        .build_with_transport(transport);
    let mut stream = client.stream();
    while let Some(event) =
        stream.try_next().await.map_err(|e| io::Error::other(format!("{e:?}")))?
    {
        let SSE::Event(event) = event else { continue };
        let packet: StreamPacket = serde_json::from_str(&event.data)?;
        count.one(&packet);
        if matches!(packet.payload, Payload::Close(_)) {
            break;
        }
    }
    Ok(())
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
