//! How long calls may take: time-outs and the deadline, against servers that never come to an end.
//! The clock is paused.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::scripted::{STREAM, frame};
use bytes::Bytes;
use capstan_client::protocol::Cursor;
use capstan_client::transport::{Request, Response, Transport, TransportError};
use capstan_client::{CapClient, CapError, Options};
use futures_util::{FutureExt as _, StreamExt as _, future, stream};
use http::HeaderMap;
use tokio::time::Instant;
use uuid::Uuid;

/// Servers that hold on to a client.
enum Holding {
    /// The head of the response never comes.
    NoHead,
    /// The body never ends.
    NoEnd,
    /// One new packet per connection, after a second each.
    OnePacketEach(AtomicU64),
    /// Bytes that mean nothing, for ever.
    Heartbeats,
    /// A heartbeat every 15 s, three times; then nothing.
    FallingSilent,
    /// The connection is refused.
    Refusing,
}

#[async_trait::async_trait]
impl Transport for Holding {
    async fn send(&self, _: Request) -> Result<Response, TransportError> {
        let ok = |bytes: String| Ok(Bytes::from(bytes));
        let body = match self {
            Self::NoHead => pending().await,
            Self::NoEnd => stream::iter([ok("{".into())]).chain(stream::pending()).boxed(),
            Self::OnePacketEach(seq) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let seq = seq.fetch_add(1, Ordering::Relaxed) + 1;
                stream::iter([ok(frame(None, seq, "a"))]).boxed()
            }
            Self::Heartbeats => stream::repeat(())
                .then(move |()| {
                    tokio::time::sleep(Duration::from_secs(15))
                        .then(|()| future::ready(Ok(":\n".into())))
                })
                .boxed(),
            Self::FallingSilent => stream::iter(0..3)
                .then(move |_| {
                    tokio::time::sleep(Duration::from_secs(15))
                        .then(|()| future::ready(Ok(":\n".into())))
                })
                .chain(stream::pending())
                .boxed(),
            Self::Refusing => {
                return Err(TransportError("cannot connect: Connection refused".into()));
            }
        };
        let headers = HeaderMap::from_iter([(
            http::header::CONTENT_TYPE,
            "text/event-stream".parse().unwrap(),
        )]);
        Ok(Response { status: 200, headers, body })
    }
}

fn client(server: Holding, options: Options) -> CapClient {
    CapClient::with_options("http://holding", "", options.transport(server)).unwrap()
}

/// The result of each call, and the seconds that it took.
async fn whole_answers(client: &CapClient) -> Vec<(String, f64)> {
    let question = client.question(Uuid::now_v7(), "Hi");
    let calls = [
        async { client.health().await.unwrap_err() }.boxed(),
        async { client.stop(STREAM).await.unwrap_err() }.boxed(),
        async { client.streams(None, 10).await.unwrap_err() }.boxed(),
        async { client.ask(&question).await.unwrap_err() }.boxed(),
    ];
    let mut seen = Vec::new();
    for call in calls {
        let began = Instant::now();
        seen.push((call.await.to_string(), began.elapsed().as_secs_f64().round()));
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn every_whole_answer_has_its_time_out() {
    for server in [Holding::NoHead, Holding::NoEnd] {
        let seen =
            whole_answers(&client(server, Options::new().read_timeout(Duration::from_secs(5))))
                .await;
        assert_eq!(
            seen.iter().map(|(_, after)| *after).collect::<Vec<_>>(),
            [5.0, 5.0, 5.0, 3600.0]
        );
        assert!(
            seen[0].0.starts_with("no connection to http://holding: no answer within 5 s; "),
            "{seen:?}"
        );
        assert!(seen[3].0.contains("no answer within 3600 s"), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_out_of_ask_can_be_set() {
    let options = Options::new().ask_timeout(Duration::from_secs(7));
    assert_eq!(whole_answers(&client(Holding::NoHead, options)).await[3].1, 7.0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_whole_answers_too() {
    let options = Options::new().deadline(Duration::from_secs(3));
    for (told, after) in whole_answers(&client(Holding::NoHead, options)).await {
        assert_eq!(after, 3.0);
        assert!(
            told.starts_with("http://holding: not done within the deadline of 3 s; a run"),
            "{told}"
        );
    }
    let options = Options::new().max_retries(1000).deadline(Duration::from_secs(100));
    assert_eq!(
        whole_answers(&client(Holding::Refusing, options)).await[3].1,
        100.0,
        "waits between tries count"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_stream_however_lively_it_is() {
    let servers: [fn() -> Holding; 5] = [
        || Holding::OnePacketEach(AtomicU64::new(0)),
        || Holding::Heartbeats,
        || Holding::NoHead,
        || Holding::NoEnd,
        || Holding::Refusing,
    ];
    for server in servers {
        let options = Options::new().max_retries(1000).deadline(Duration::from_secs(90));
        let client = client(server(), options);
        let began = Instant::now();
        let error = client.chat("Hi").collect().await.unwrap_err();
        let CapError::Connection(e) = &error else { panic!("{error:?}") };
        assert_eq!(e.deadline, Some(Duration::from_secs(90)));
        assert_eq!(e.address.as_deref(), Some("http://holding"));
        assert_eq!(began.elapsed().as_secs_f64().round(), 90.0);
        let mut viewer = client.attach(Cursor::start(STREAM));
        while let Ok(packet) = viewer.next().await {
            assert!(packet.is_some(), "the end was never told");
        }
        assert_eq!(viewer.next().await, Ok(None), "what is over stays over");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_counted_from_the_last_bytes() {
    let options = Options::new().max_retries(0).read_timeout(Duration::from_secs(20));
    let (began, client) = (Instant::now(), client(Holding::FallingSilent, options));
    let error = client.attach(Cursor::start(STREAM)).next().await.unwrap_err();
    assert!(error.to_string().contains("nothing came for 20 s"), "{error}");
    assert_eq!(began.elapsed().as_secs_f64().round(), 65.0, "three times 15 s, then 20");
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_a_lively_stream_is_read_for_ever() {
    let mut packets = client(Holding::OnePacketEach(AtomicU64::new(0)), Options::new())
        .attach(Cursor::start(STREAM));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3600) {
        assert!(packets.next().await.unwrap().is_some());
    }
}
