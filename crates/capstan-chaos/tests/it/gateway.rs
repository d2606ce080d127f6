//! In front of the real gateway: without faults nothing changes, and with them the journal still
//! has the run.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Answer, Proxy};
use capstan_chaos::{After, At, Cut, Faults, Repeat, With};
use capstan_demo::Demo;
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_protocol::{
    AgentRequest, Payload, ServiceRequest, SessionContext, StreamPacket, UserContext, sse,
};
use capstan_stores::{Durability, open};
use tokio::net::TcpListener;
use uuid::Uuid;

async fn gateway() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let journal =
        Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
    let gateway = Gateway::new(journal).agent("demo", Demo::with_delay(Duration::ZERO));
    tokio::spawn(serve(gateway, vec![listener], std::future::pending()));
    address
}

/// Posts a message, optionally at a cursor.
async fn post(proxy: &Proxy, request: &ServiceRequest, cursor: &str) -> Answer {
    let body = serde_json::to_string(request).unwrap();
    let cursor =
        if cursor.is_empty() { String::new() } else { format!("last-event-id: {cursor}\r\n") };
    let head = "POST /v1/assist HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    proxy.send(&format!("{head}{cursor}content-length: {}\r\n\r\n{body}", body.len())).await
}

fn ask(text: &str) -> ServiceRequest {
    let session = Uuid::now_v7();
    ServiceRequest::new(
        SessionContext::new(session, UserContext::new("u")),
        AgentRequest::query(session, text),
    )
}

fn field(answer: &Answer, name: &str) -> String {
    let head = answer.head();
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap().to_owned()
}

/// The packets of a body, however it ended, and the last cursor.
fn packets(body: &[u8]) -> (Vec<StreamPacket>, String) {
    let mut decoder = sse::Decoder::new();
    decoder.push(body);
    let mut packets = Vec::new();
    while let Some(frame) = decoder.next_frame() {
        packets.push(StreamPacket::decode(&frame.unwrap().data).unwrap());
    }
    (packets, decoder.last_event_id().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_whole_run_passes_byte_equal() {
    let gateway = gateway().await;
    let proxy = Proxy::start(gateway, Faults::none()).await;
    let live = post(&proxy, &ask("What is a capst\u{e4}n?"), "").await;
    // The same raw client, straight to the gateway.
    let direct = Proxy { address: gateway, handle: proxy.handle.clone() };
    let path = format!("/v1/streams/{}", field(&live, "x-stream-id"));
    let get = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(live.text(), direct.send(&get).await.text());
    let (packets, _) = packets(live.text().as_bytes());
    assert_eq!(proxy.handle.tally().packets, packets.len() as u64);
    assert!(packets.len() > 3);
}

/// Posts again and again until the stream is closed, dropping repeats. Returns what is new, in the
/// order it came.
async fn put_together(proxy: &Proxy) -> Vec<u64> {
    let request = ask("What is a capst\u{e4}n?");
    let (mut seqs, mut cursor) = (Vec::new(), String::new());
    for _ in 0..200 {
        let answer = post(proxy, &request, &cursor).await;
        if !answer.bytes.starts_with(b"HTTP/1.1 200") {
            continue;
        }
        let (packets, last) = packets(&answer.dechunk().0);
        for packet in packets {
            if seqs.last().is_none_or(|last| *last < packet.seq) {
                seqs.push(packet.seq);
            }
            if matches!(packet.payload, Payload::Close(_)) {
                return seqs;
            }
        }
        cursor = if last.is_empty() { cursor } else { last };
    }
    panic!("no CLOSE, {:?}", proxy.handle.tally());
}

#[tokio::test]
async fn a_run_that_is_cut_again_and_again_can_be_put_together() {
    let cut = Cut { rate: 1.0, after: After::Packets(2..=5), at: At::Frame, with: With::Reset };
    let repeat = Repeat { rate: 1.0, packets: 3 };
    let proxy = Proxy::start(gateway().await, Faults { cut, repeat, ..Faults::none() }).await;
    let seqs = put_together(&proxy).await;
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let tally = proxy.handle.tally();
    assert!(tally.cuts > 1 && tally.repeats > 1, "{tally:?}");
}

#[tokio::test(start_paused = true)]
async fn brutality_loses_nothing_and_invents_nothing() {
    let proxy = Proxy::start(gateway().await, Faults::brutal()).await;
    for _ in 0..20 {
        let seqs = put_together(&proxy).await;
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    }
    let tally = proxy.handle.tally();
    assert!(tally.kinds().iter().all(|(_, count)| *count > 0), "{tally:?}");
}
