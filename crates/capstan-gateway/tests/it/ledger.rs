//! What a record tells of its run: by which requests it came, in which trace, and how each of its
//! attempts went.

use crate::common::{all, ask, disk, journal, serve_gateway, start_on, stream_of};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings};
use capstan_journal::{Claim, ContinuedBy, Frame, Journal, NameKind, Named, Run, RunState};
use capstan_protocol::{Fault, FaultKind, Payload, StreamPacket, Timestamp, sse};
use uuid::Uuid;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

async fn record(journal: &Journal, stream: &str) -> Run {
    journal.store().run(Uuid::parse_str(stream).unwrap()).await.unwrap().unwrap()
}

/// The streams that a request's id leads to.
async fn found(journal: &Journal, request_id: &str) -> Vec<String> {
    let runs =
        journal.store().named(Named::all("local", NameKind::RequestId, request_id)).await.unwrap();
    runs.into_iter().map(|run| run.stream_id.to_string()).collect()
}

/// Fails once, after two words; then it says something else after the first of them.
struct Wavering;

#[async_trait]
impl Agent for Wavering {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        out.delta("one ").await?;
        out.usage([("output_tokens".to_owned(), turn.attempt.into())].into_iter().collect())
            .await?;
        if turn.attempt == 1 {
            out.delta("two").await?;
            return Err(Fault::new(FaultKind::UpstreamError).with_retry_after(1.0).into());
        }
        out.delta("three").await?;
        Ok(())
    }

    fn max_attempts(&self) -> u32 {
        3
    }
}

#[tokio::test]
async fn a_run_is_found_by_the_id_of_its_request_and_knows_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    for journal in [journal(), disk(folder.path())] {
        let server = start_on(journal.clone(), Settings::default()).await;
        let headers = [("x-request-id", "ticket-4711"), ("traceparent", PARENT)];
        let response = server.post_with(&ask("/tokens 3"), &headers).await;
        let stream = stream_of(&response);
        all(response).await;
        let run = record(&journal, &stream).await;
        assert_eq!(
            (run.request_id.as_deref(), run.trace_id.as_deref()),
            (Some("ticket-4711"), Some(TRACE))
        );
        assert_eq!(found(&journal, "ticket-4711").await, std::slice::from_ref(&stream));
        let [only] = &run.attempts[..] else { panic!("{:?}", run.attempts) };
        assert_eq!(
            (only.n, only.from_seq, only.to_seq, only.fault.as_deref()),
            (1, Some(1), Some(3), None)
        );
        assert_eq!(
            (only.request_id.as_deref(), only.trace_id.as_deref()),
            (Some("ticket-4711"), Some(TRACE))
        );
        let times = [only.began_at, only.first_packet_at, only.ended_at].map(Option::unwrap);
        assert!(times.is_sorted(), "{times:?}");
        // Who sends none is given one, and told.
        let response = server.post(&ask("/tokens 1")).await;
        let given = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(found(&journal, &given).await, [stream_of(&response)]);
        server.stop().await;
    }
}

#[tokio::test]
async fn every_attempt_is_on_record_with_how_it_went() {
    let journal = journal();
    let server = serve_gateway(Gateway::new(journal.clone()).agent("wavering", Wavering)).await;
    let response = server.post_with(&ask("x"), &[("x-cap-accept", "stream_reset")]).await;
    let stream = stream_of(&response);
    let packets = all(response).await;
    let run = record(&journal, &stream).await;
    let [first, second] = &run.attempts[..] else { panic!("{:?}", run.attempts) };
    assert_eq!((first.n, first.from_seq, first.to_seq), (1, Some(1), Some(2)));
    assert_eq!(
        (first.fault.as_deref(), first.severity.as_deref()),
        (Some("upstream_error"), Some("WARNING"))
    );
    assert_eq!((first.fault_seq, first.retry_after), (Some(3), Some(1.0)));
    assert!(matches!(&packets[2].payload, Payload::Error(error) if error.code == "upstream_error"));
    assert_eq!(first.usage.as_ref().unwrap()["output_tokens"], 1);
    // It repeats the first word, and takes the viewers back to it.
    assert_eq!((second.n, second.fault.as_deref(), second.reset_to), (2, None, Some(1)));
    assert_eq!((second.swallowed_bytes, second.from_seq), (4, Some(4)));
    assert_eq!((first.continued_by, second.continued_by), (None, Some(ContinuedBy::Reset)));
    assert_eq!(second.to_seq, Some(packets.last().unwrap().seq - 1));
    assert_eq!(second.usage.as_ref().unwrap()["output_tokens"], 2);
    assert!(first.ended_at.unwrap() <= second.began_at.unwrap());
    assert_eq!(run.fault, None, "the run was healed; the ledger knows of what");
    server.stop().await;
}

/// Says nothing at first, then a word.
struct Slow;

#[async_trait]
impl Agent for Slow {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        if turn.attempt == 1 {
            return Err(Fault::new(FaultKind::UpstreamError).with_retry_after(1.0).into());
        }
        out.delta("word").await?;
        Ok(())
    }

    fn max_attempts(&self) -> u32 {
        2
    }
}

#[tokio::test]
async fn the_gateways_error_is_not_the_agents_first_packet() {
    let journal = journal();
    let server = serve_gateway(Gateway::new(journal.clone()).agent("slow", Slow)).await;
    let response = server.post(&ask("x")).await;
    let stream = stream_of(&response);
    let packets = all(response).await;
    assert!(matches!(packets[0].payload, Payload::Error(_)), "the gateway's warning: {packets:?}");
    let run = record(&journal, &stream).await;
    let [silent, spoke] = &run.attempts[..] else { panic!("{:?}", run.attempts) };
    assert_eq!((silent.first_packet_at, silent.fault_seq), (None, Some(1)));
    assert_eq!((spoke.first_packet_at, spoke.from_seq), (Some(packets[1].t), Some(2)));
    server.stop().await;
}

#[tokio::test]
async fn the_request_that_starts_an_attempt_is_recorded() {
    let journal = journal();
    let server = start_on(journal.clone(), Settings::default()).await;
    let request = ask("/fault upstream_timeout --retry-after 7");
    let first = server.post_with(&request, &[("x-request-id", "first")]).await;
    let stream = stream_of(&first);
    all(first).await;
    let waiting = record(&journal, &stream).await;
    assert_eq!(waiting.state, RunState::Waiting);
    let [ended] = &waiting.attempts[..] else { panic!("{:?}", waiting.attempts) };
    assert_eq!(
        (ended.fault.as_deref(), ended.severity.as_deref()),
        (Some("upstream_timeout"), Some("TRANSIENT"))
    );
    let again =
        server.post_with(&request, &[("x-request-id", "second"), ("traceparent", PARENT)]).await;
    all(again).await;
    let run = record(&journal, &stream).await;
    let ids: Vec<_> =
        run.attempts.iter().map(|attempt| (attempt.n, attempt.request_id.as_deref())).collect();
    assert_eq!(ids[..2], [(1, Some("first")), (2, Some("second"))]);
    assert_eq!(run.attempts[1].trace_id.as_deref(), Some(TRACE));
    assert_eq!(run.attempts[0], *ended, "what is over stays as it is");
    for id in ["first", "second"] {
        assert_eq!(found(&journal, id).await, std::slice::from_ref(&stream));
    }
    server.stop().await;
}

/// A run whose process died after these packets.
async fn cut_short(journal: &Journal, said: Vec<Payload>) -> (Run, Vec<Timestamp>) {
    let body = serde_json::to_vec(&ask("/tokens 5")).unwrap().into();
    let claim = Claim::new("local", "k", Uuid::now_v7(), Timestamp::now());
    let (agent, face, request_id) = ("demo".into(), "cap".into(), Some("r".into()));
    let claim =
        Claim { agent, face, body, request_id, max_attempts: 2, session: "s".into(), ..claim };
    let run = journal.claim(claim, &capstan_journal::Quota::UNLIMITED).await.unwrap().run;
    let (mut frames, mut times) = (Vec::new(), Vec::new());
    for (seq, payload) in (1..).zip(said) {
        let t = Timestamp::from_micros(run.created_at.as_micros() + 300_000 * seq as i64);
        let mut bytes = Vec::new();
        sse::encode_packet(&StreamPacket { stream_id: run.stream_id, seq, t, payload }, &mut bytes);
        frames.push(Frame::new(seq, bytes));
        times.push(t);
    }
    journal.append(run.stream_id, 1, frames).await.unwrap();
    (run, times)
}

#[tokio::test]
async fn a_crashed_attempt_is_recorded_as_far_as_it_got() {
    let folder = tempfile::tempdir().unwrap();
    let journal = disk(folder.path());
    let warning = Fault::new(FaultKind::UpstreamError).to_stream_error(Default::default()).into();
    let words = ["a ", "b "].map(|word| Payload::Delta(word.into()));
    let (run, times) =
        cut_short(&journal, [Payload::Error(warning)].into_iter().chain(words).collect()).await;
    let server = start_on(journal.clone(), Settings::default()).await;
    while server.get("/readyz").await.status() != 200 {}
    let run = record(&journal, &run.stream_id.to_string()).await;
    let [only] = &run.attempts[..] else { panic!("{:?}", run.attempts) };
    assert_eq!((only.from_seq, only.to_seq, only.fault_seq), (Some(1), Some(3), Some(4)));
    assert_eq!(only.fault.as_deref(), Some("run_interrupted"));
    assert_eq!((only.request_id.as_deref(), only.began_at), (Some("r"), Some(run.created_at)));
    // Nobody wrote these down; its packets tell them. The first of them is a warning.
    assert_eq!((only.first_packet_at, only.ended_at), (Some(times[1]), Some(times[2])));
    server.stop().await;
}
