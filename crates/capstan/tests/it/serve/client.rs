//! A plain client: it posts, watches, and stores the received bytes.

use capstan_protocol::{
    AgentRequest, Payload, ServiceRequest, SessionContext, StreamError, StreamPacket, UserContext,
    sse,
};
use reqwest::Response;
use serde_json::Value;
use uuid::Uuid;

use crate::serve::process::Server;

pub(crate) fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // It speaks to loopback alone, so it need not read the certificates of this machine.
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

pub(crate) fn ask(text: &str) -> ServiceRequest {
    let session = Uuid::now_v7();
    let context = SessionContext::new(session, UserContext::new("u"));
    ServiceRequest::new(context, AgentRequest::query(session, text))
}

impl Server {
    pub(crate) async fn post(&self, http: &reqwest::Client, request: &ServiceRequest) -> Response {
        http.post(format!("{}/v1/assist", self.url)).json(request).send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        http().get(format!("{}{path}", self.url)).send().await.unwrap()
    }

    pub(crate) async fn streams(&self) -> Vec<Value> {
        let list: Value = self.get("/v1/streams").await.json().await.unwrap();
        list["streams"].as_array().unwrap().clone()
    }
}

pub(crate) fn stream_of(response: &Response) -> String {
    response.headers()["x-stream-id"].to_str().unwrap().to_owned()
}

/// The bytes of a response until `is_enough` or its end, however it ends.
pub(crate) async fn read_until(
    response: &mut Response,
    is_enough: impl Fn(&str) -> bool,
) -> Vec<u8> {
    let mut seen = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        seen.extend_from_slice(&chunk);
        if is_enough(&String::from_utf8_lossy(&seen)) {
            break;
        }
    }
    seen
}

/// The complete frames of a body that was cut.
pub(crate) fn whole_frames(seen: &[u8]) -> &[u8] {
    let end = seen.windows(2).rposition(|pair| pair == b"\n\n").map_or(0, |at| at + 2);
    &seen[..end]
}

pub(crate) fn packets(body: &[u8]) -> Vec<StreamPacket> {
    let mut decoder = sse::Decoder::new();
    decoder.push(body);
    let mut packets = Vec::new();
    while let Some(frame) = decoder.next_frame() {
        packets.push(StreamPacket::decode(&frame.unwrap().data).unwrap());
    }
    assert!(!decoder.is_mid_frame(), "a body ends at a frame boundary");
    packets
}

pub(crate) fn text(packets: &[StreamPacket]) -> String {
    packets
        .iter()
        .filter_map(
            |p| if let Payload::Delta(text) = &p.payload { Some(text.as_str()) } else { None },
        )
        .collect()
}

pub(crate) fn errors(packets: &[StreamPacket]) -> Vec<&StreamError> {
    packets
        .iter()
        .filter_map(|p| if let Payload::Error(e) = &p.payload { Some(&**e) } else { None })
        .collect()
}

/// The text of `/tokens`.
pub(crate) fn tokens(count: usize) -> String {
    (1..=count).map(|n| format!("tok{n} ")).collect()
}

/// Every packet once, in order, and CLOSE at the end.
pub(crate) fn assert_whole(packets: &[StreamPacket], said: &str) {
    let seqs: Vec<_> = packets.iter().map(|p| p.seq).collect();
    assert_eq!(seqs, (1..=packets.len() as u64).collect::<Vec<_>>());
    assert_eq!(text(packets), said);
    assert!(
        matches!(&packets.last().unwrap().payload, Payload::Close(c) if c.reason() == "completed")
    );
}
