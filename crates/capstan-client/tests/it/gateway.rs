//! The client against a real gateway with the demo agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{InProcess, Server, quick};
use capstan_agent::Timer;
use capstan_client::protocol::{Cursor, Payload, Profile, Transcript};
use capstan_client::{CapClient, CapError, Notice, Options, PacketStream, blocking};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use uuid::Uuid;

async fn all(packets: &mut PacketStream) -> Result<Transcript, CapError> {
    let mut transcript = Transcript::default();
    while let Some(packet) = packets.next().await? {
        transcript.take(&packet);
    }
    Ok(transcript)
}

#[tokio::test]
async fn a_chat_yields_text_and_knows_its_conversation_at_once() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let mut answer = client.chat("/tokens 3");
    let conversation = answer.conversation_id();
    let mut pieces = Vec::new();
    while let Some(text) = answer.next().await.unwrap() {
        pieces.push(text);
    }
    assert_eq!((pieces.len(), pieces.concat().as_str()), (3, answer.text()));
    assert_eq!(answer.reason().as_deref(), Some("completed"));
    assert!(answer.usage().is_some() && answer.stream_id().is_some());
    let next = client.chat_in(conversation, "And then?");
    assert_eq!(next.conversation_id(), conversation);
    assert!(!next.collect().await.unwrap().is_empty());
}

#[tokio::test]
async fn both_profiles_tell_the_same() {
    let server = Server::start().await;
    let text = async |profile| {
        let client =
            CapClient::with_options(&server.url, "", Options::new().profile(profile)).unwrap();
        client.chat("What is a capstan?").collect().await.unwrap()
    };
    assert_eq!(text(Profile::V1).await, text(Profile::V2).await);
}

/// Collects the notices of a client.
fn listen(options: Options) -> (Options, Arc<Mutex<Vec<Notice>>>) {
    let notices = Arc::<Mutex<Vec<Notice>>>::default();
    let heard = Arc::clone(&notices);
    (options.on_notice(move |notice| heard.lock().unwrap().push(notice.clone())), notices)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_is_woken_again_until_its_attempts_are_spent() {
    let (options, notices) = listen(Options::new().transport(InProcess::start().await));
    let client = CapClient::with_options("http://localhost", "", options).unwrap();
    let error = client.chat("/fault upstream_truncated").collect().await.unwrap_err();
    let runtime = error.as_runtime().unwrap();
    assert_eq!((runtime.code(), runtime.severity().as_str()), ("upstream_truncated", "FATAL"));
    assert!(runtime.partial_text.as_ref().is_some_and(|text| !text.is_empty()));
    let notices = notices.lock().unwrap();
    let count =
        |wanted: fn(&Notice) -> bool| notices.iter().filter(|notice| wanted(notice)).count();
    assert_eq!(count(|n| matches!(n, Notice::AttemptFailed { .. })), 2);
    assert_eq!(count(|n| matches!(n, Notice::Resumed { .. })), 2);
    let wait_of =
        |n: &Notice| if let Notice::Retrying { wait, .. } = n { Some(*wait) } else { None };
    let waits: Vec<_> = notices.iter().filter_map(wait_of).collect();
    assert_eq!(waits, [Duration::from_secs(1); 2], "as long as it was told");
}

#[tokio::test(start_paused = true)]
async fn others_run_while_a_client_waits() {
    let options = Options::new().transport(InProcess::start().await);
    let client = CapClient::with_options("http://localhost", "", options).unwrap();
    let mut beats = 0;
    let beside = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            beats += 1;
        }
    };
    tokio::select! {
        // It waits twice, for a second each.
        end = client.chat("/fault upstream_truncated").collect() => assert!(end.is_err()),
        () = beside => {}
    }
    assert!(beats >= 19, "{beats}");
}

#[tokio::test]
async fn a_wait_of_the_gateways_own_is_not_noticed() {
    let server = Server::start().await;
    let (options, notices) = listen(Options::new());
    let client = CapClient::with_options(&server.url, "", options).unwrap();
    let healed = client.chat("/flaky 2 --wait 2").collect().await.unwrap();
    assert_eq!(server.clock.asked(Timer::Again).len(), 2, "the gateway waited");
    assert!(
        !notices.lock().unwrap().iter().any(|notice| matches!(notice, Notice::Retrying { .. }))
    );
    assert_eq!(healed, client.chat("/flaky 0").collect().await.unwrap());
}

#[tokio::test]
async fn a_long_wait_fails_at_once_and_says_how_long() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let error = client.chat("/flaky 2 --wait 100").collect().await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(100)));
    assert!(error.to_string().contains("try again in 100 s"), "{error}");
}

#[tokio::test]
async fn a_healed_run_replays_without_waiting_or_raising() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let mut first = client.assist(&client.question(Uuid::now_v7(), "/flaky 2"));
    let live = all(&mut first).await.unwrap();
    let stream = first.stream_id().unwrap();
    let replayed = all(&mut client.attach(Cursor::start(stream))).await.unwrap();
    assert_eq!(live.text(), replayed.text());
    let half = first.cursor().unwrap().seq / 2;
    let rest = all(&mut client.attach(Cursor::new(stream, half))).await.unwrap();
    assert!(live.text().ends_with(rest.text()) && rest.text().len() < live.text().len());
    let nothing = all(&mut client.attach(first.cursor().unwrap())).await.unwrap();
    assert_eq!(nothing, Transcript::default(), "204: the stream is over");
}

#[tokio::test]
async fn a_reset_is_an_event_for_packets_and_an_error_for_text() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let transcript =
        all(&mut client.assist(&client.question(Uuid::now_v7(), "/diverge"))).await.unwrap();
    let mut answer = client.chat("/diverge");
    let error = loop {
        match answer.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the reset went by"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.as_runtime().unwrap().code(), "stream_reset");
    assert_eq!(
        client.chat("/diverge").collect().await.unwrap(),
        transcript.text(),
        "the whole text applies it"
    );
}

#[tokio::test]
async fn failures_are_typed() {
    let server = Server::start().await;
    let client = CapClient::with_options(&server.url, "", quick()).unwrap();
    let fatal = client.chat("/fault content_refused --after 2").collect().await.unwrap_err();
    let runtime = fatal.as_runtime().unwrap();
    assert_eq!(
        (runtime.code(), runtime.is_retryable(), runtime.status),
        ("content_refused", false, None)
    );
    let problem =
        client.ask(&client.question(Uuid::now_v7(), "/fault content_refused")).await.unwrap_err();
    assert_eq!(problem.as_runtime().unwrap().status, Some(502));
    let missing = all(&mut client.attach(Cursor::start(Uuid::now_v7()))).await.unwrap_err();
    assert_eq!(missing.as_runtime().unwrap().code(), "stream_not_found");
    let nowhere =
        CapClient::with_options("http://127.0.0.1:9", "", quick().max_retries(1)).unwrap();
    let lost = nowhere.chat("Hi").collect().await.unwrap_err();
    assert!(matches!(&lost, CapError::Connection(e) if e.retries == 1), "{lost}");
}

#[tokio::test]
async fn a_warning_is_a_packet_like_any_other() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let transcript =
        all(&mut client.assist(&client.question(Uuid::now_v7(), "/warn"))).await.unwrap();
    assert_eq!(transcript.error().unwrap().severity.as_str(), "WARNING");
}

/// The lines that `tracing` received.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_warning_is_logged_once_by_packets_and_by_text() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish()
        .with("capstan_client=warn".parse::<Targets>().unwrap());
    let _guard = tracing::subscriber::set_default(subscriber);
    all(&mut client.assist(&client.question(Uuid::now_v7(), "/warn"))).await.unwrap();
    client.chat("/warn").collect().await.unwrap();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("the agent warns: ").count(), 2, "{text}");
    assert!(text.lines().all(|line| line.contains("WARN capstan_client")), "{text}");
}

#[tokio::test]
async fn a_stop_ends_the_run_for_everybody() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let mut packets = client.assist(&client.question(Uuid::now_v7(), "/tokens 100000 --delay 5ms"));
    packets.next().await.unwrap();
    client.stop(packets.stream_id().unwrap()).await.unwrap();
    let transcript = all(&mut packets).await.unwrap();
    assert_eq!(transcript.close().unwrap().reason(), "cancelled");
}

#[tokio::test]
async fn one_object_holds_the_whole_answer() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let answer = client.ask(&client.question(Uuid::now_v7(), "/tokens 2")).await.unwrap();
    assert_eq!(answer.metrics.unwrap()["attempts"], 1);
    assert_eq!(client.health().await.unwrap().status, capstan_client::protocol::HealthStatus::Ok);
}

#[tokio::test]
async fn a_dropped_next_loses_nothing() {
    let server = Server::start().await;
    let client = CapClient::new(&server.url, "").unwrap();
    let mut packets = client.assist(&client.question(Uuid::now_v7(), "/tokens 200 --delay 1ms"));
    let mut seqs = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_micros(300), packets.next()).await {
            Err(_) => {}
            Ok(Ok(Some(packet))) => {
                seqs.push(packet.seq);
                if matches!(packet.payload, Payload::Close(_)) {
                    break;
                }
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(seqs, (1..=201).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_named_agent_answers_instead_of_the_default_one() {
    let server = Server::start().await;
    for url in [server.url.clone(), format!("{}/v1", server.url)] {
        let client = CapClient::new(&url, "").unwrap();
        let named = client.with_agent("demo").chat("/tokens 5").collect().await.unwrap();
        assert_eq!(named, client.chat("/tokens 5").collect().await.unwrap());
        for name in ["nobody", "demo/../x", "a b?c#d"] {
            let refused = client.with_agent(name).chat("Hi").collect().await.unwrap_err();
            assert_eq!(refused.as_runtime().unwrap().code(), "agent_not_found", "{name}");
        }
    }
}

#[test]
fn the_blocking_client_is_the_same_without_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start());
    let client = blocking::CapClient::new(&server.url, "").unwrap();
    let mut answer = client.chat("/tokens 5");
    let pieces: Vec<_> = answer.by_ref().map(Result::unwrap).collect();
    assert_eq!((pieces.len(), pieces.concat().as_str()), (5, answer.text()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || {
                client.chat("/tokens 50").map(Result::unwrap).collect::<String>()
            })
        })
        .collect();
    let texts: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(texts.iter().all(|text| *text == texts[0] && !text.is_empty()));
    assert_eq!(client.health().unwrap().status, capstan_client::protocol::HealthStatus::Ok);
}

#[test]
fn wrong_urls_and_keys_are_refused_at_once_and_keys_stay_out_of_debug() {
    for url in ["localhost:8787", "ftp://x", ""] {
        assert!(
            CapClient::new(url, "").unwrap_err().to_string().contains("expected http"),
            "{url}"
        );
    }
    assert!(CapClient::new("http://x", "a\nb").is_err());
    assert!(
        !CapClient::new("ftp://me:sk_secret@x", "").unwrap_err().to_string().contains("sk_secret")
    );
    let client = CapClient::new("http://x", "sk_secret").unwrap();
    assert!(!format!("{client:?}").contains("sk_secret"));
}
