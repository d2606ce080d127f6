//! A route across `kill -9`: its calls are counted at the providers' sockets, and an answer that
//! broke off is continued.

use std::path::Path;

use capstan_fake_provider::{Answer, FakeProvider, Script};
use capstan_protocol::{Close, Payload, StreamPacket};
use serde_json::Value;

use crate::serve::client::{ask, assert_whole, errors, http, packets, stream_of};
use crate::serve::process::Server;

async fn provider(faults: &str) -> FakeProvider {
    let faults = faults.split_whitespace().map(|rule| rule.parse().unwrap());
    let script = faults.fold(Script::default(), Script::fault);
    FakeProvider::start("127.0.0.1:0", script).await.unwrap()
}

fn configure(folder: &Path, route: &str, agents: &[(&str, &FakeProvider, &str)]) {
    let mut text = format!("[[agents]]\nname = \"answer\"\nkind = \"route\"\n{route}\n");
    for (name, provider, more) in agents {
        let url = format!("{}/v1", provider.url());
        text += &format!(
            "[[agents]]\nname = \"{name}\"\nkind = \"openai\"\nmodel = \"m\"\nurl \
             = \"{url}\"\n{more}\n"
        );
    }
    text += "[timeouts]\nbackoff = 0.001\n";
    std::fs::write(folder.join("capstan.toml"), text).unwrap();
}

fn close(packets: &[StreamPacket]) -> Value {
    let last = &packets.last().unwrap().payload;
    let Payload::Close(Close::Report(report)) = last else { panic!("{last:?}") };
    Value::Object(report.to_map())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_route_makes_no_more_calls_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (provider("status-500").await, provider("stall-mid-stream").await);
    let route = "use = [\"a\", \"b\"]\nmax_calls = 4\nattempts = 4\n";
    configure(folder.path(), route, &[("a", &a, ""), ("b", &b, "")]);
    let (http, request) = (http(), ask("What is a capstan?"));
    for life in 1..=2 {
        let server = Server::start(folder.path());
        let response = server.post(&http, &request).await;
        let is_stalled = |calls: &[capstan_fake_provider::Call]| {
            calls.len() == life && calls[life - 1].tokens == 20
        };
        b.until(is_stalled).await;
        server.kill();
        drop(response);
    }
    let server = Server::start(folder.path());
    let body = server.post(&http, &request).await.bytes().await.unwrap();
    let packets = packets(&body);
    let close = close(&packets);
    assert_eq!((a.calls().len(), b.calls().len()), (2, 2));
    assert_eq!(
        (&close["reason"], &close["calls"], &close["attempts"]),
        (&"error".into(), &4.into(), &3.into())
    );
    assert_eq!(errors(&packets).last().unwrap().code, "upstream_unreachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_broke_off_with_its_process_is_continued_in_the_next_life() {
    let folder = tempfile::tempdir().unwrap();
    let a = provider("stall-mid-stream@1").await;
    configure(folder.path(), "use = [\"a\"]", &[("a", &a, "prefill = \"plain\"")]);
    let (http, request) = (http(), ask("What is a capstan?"));
    let server = Server::start(folder.path());
    let mut response = server.post(&http, &request).await;
    let stream = stream_of(&response);
    crate::serve::client::read_until(&mut response, |seen| seen.contains(":20\n")).await;
    server.kill();
    let server = Server::start(folder.path());
    let response = server.post(&http, &request).await;
    assert_eq!(stream_of(&response), stream);
    let packets = packets(&response.bytes().await.unwrap());
    assert_whole(&packets, &Answer::default().text);
    let calls = a.calls();
    let said: String = Answer::default().text.split_inclusive(' ').take(20).collect();
    let last = calls[1].body["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((calls.len(), &last["content"]), (2, &said.trim_end().into()));
    let close = close(&packets);
    assert_eq!((&close["member"], &close["calls"]), (&"a".into(), &2.into()));
    let path = format!("{}/v1/console/runs/{stream}", server.url);
    let run: Value = http.get(path).send().await.unwrap().json().await.unwrap();
    assert_eq!(run["attempts"][1]["continued_by"], "prefill", "{run}");
}
