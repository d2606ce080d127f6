//! `kill -9` in mid-run: what was seen is there again, and the same POST brings the rest.

use capstan_fake_provider::{FakeProvider, Script};
use capstan_protocol::ErrorSeverity;
use serde_json::json;

use crate::serve::client::{
    ask, assert_whole, errors, http, packets, read_until, stream_of, tokens, whole_frames,
};
use crate::serve::process::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_that_was_seen_and_the_retry_brings_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (http, request) = (http(), ask("/tokens 60 --delay 5ms"));
    let server = Server::start(folder.path());
    let mut response = server.post(&http, &request).await;
    let stream = stream_of(&response);
    let mut seen = read_until(&mut response, |seen| seen.contains(":10\n")).await;
    server.kill();
    seen.extend(read_until(&mut response, |_| false).await);
    let seen = whole_frames(&seen);
    assert!(packets(seen).len() >= 10 && packets(seen).len() < 60, "it was killed in mid-run");

    let server = Server::start(folder.path());
    let mut watching = server.get(&format!("/v1/streams/{stream}")).await;
    let replay = read_until(&mut watching, |seen| seen.contains("run_interrupted")).await;
    assert!(replay.starts_with(seen), "the replay is byte-equal to what was seen");
    let known = packets(&replay);
    let interruption = errors(&known).pop().unwrap().clone();
    assert_eq!(interruption.severity, ErrorSeverity::Transient);
    assert!(interruption.retry_after().is_some());

    let response = server.post(&http, &request).await;
    assert_eq!(stream_of(&response), stream);
    let whole = response.bytes().await.unwrap();
    assert!(whole.starts_with(&replay), "the stream was continued, not written anew");
    assert_whole(&packets(&whole), &tokens(60));
    let watched = read_until(&mut watching, |_| false).await;
    assert_eq!([replay, watched].concat(), whole, "a viewer stays and sees the same");
}

/// In a face whose runs the gateway continues itself: its second call sends the request that was
/// stored before the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_its_agent_is_called_a_run_is_claimed_with_its_body() {
    let script = Script::default().fault("silent@1".parse().unwrap());
    let provider = FakeProvider::start("127.0.0.1:0", script).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[[agents]]\nname = \"m\"\nkind = \"openai\"\nmodel = \"m\"\nurl \
         = \"{}/v1\"\n[timeouts]\nbackoff = 0.001\n",
        provider.url()
    );
    std::fs::write(folder.path().join("capstan.toml"), config).unwrap();
    let ask = |server: &Server, text: &str| {
        let post =
            http().post(format!("{}/v1/responses", server.url)).header("idempotency-key", "k");
        post.json(&json!({ "model": "m", "input": text, "stream": true })).send()
    };
    let server = Server::start(folder.path());
    let head = ask(&server, "Once?").await.unwrap();
    provider.until(|calls| calls.len() == 1).await;
    server.kill();

    let server = Server::start(folder.path());
    // No client sends the request again.
    let calls = provider.until(|calls| calls.len() == 2).await;
    assert_eq!(calls[0].body, calls[1].body);
    assert_eq!(ask(&server, "Twice?").await.unwrap().status(), 409, "the key is taken");
    let again = ask(&server, "Once?").await.unwrap();
    assert_eq!(stream_of(&again), stream_of(&head));
    assert!(again.text().await.unwrap().contains("response.completed"));
    assert_eq!(provider.calls().len(), 2);
}
