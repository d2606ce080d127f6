//! The spans of runs that end in every way.

use capstan_protocol::ServiceRequest;
use serde_json::json;

use super::collector::{Attributes, Collector, attributes, hex};
use super::{CALLER, OTHER, OTHER_TRACE, PARENT, TRACE, end, traced};
use crate::serve::client::{ask, http, stream_of};
use crate::serve::process::{Server, hasty_folder};

/// Posts as a part of a trace, and reads to the end.
async fn post(server: &Server, request: &ServiceRequest, parent: &str) -> (String, String) {
    let post = http().post(format!("{}/v1/assist", server.url)).json(request);
    let response = post.header("traceparent", parent).send().await.unwrap();
    (stream_of(&response), response.text().await.unwrap())
}

fn expected(pairs: serde_json::Value) -> Attributes {
    let pairs = pairs.as_object().unwrap().clone();
    pairs.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_a_span_of_the_callers_trace_with_a_child_for_its_attempt() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start().await);
    let server =
        traced(folder.path(), &collector, &[("OTEL_RESOURCE_ATTRIBUTES", "deployment=test")]);
    let request = ask("/tokens 3");
    let (stream, _) = post(&server, &request, PARENT).await;
    end(server);
    assert_eq!(
        collector.tree(TRACE),
        ["invoke_agent demo internal: unset", "  attempt demo internal: unset"]
    );
    let [run, attempt] = collector.spans().try_into().unwrap();
    assert_eq!((hex(&run.parent_span_id), run.links.len()), (CALLER.to_owned(), 0));
    assert!(run.start_time_unix_nano <= attempt.start_time_unix_nano);
    assert!(run.end_time_unix_nano >= attempt.end_time_unix_nano);
    let run_attributes = json!({
        "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "capstan",
        "gen_ai.agent.name": "demo",
        "gen_ai.conversation.id": request.context.session_id, "gen_ai.response.model": "demo",
        "gen_ai.usage.input_tokens": "#2", "gen_ai.usage.output_tokens": "#3",
        "capstan.stream_id": stream, "capstan.request_id": request.request_id,
        "capstan.attempts": "#1",
        "capstan.packets": "#4", "capstan.close_reason": "completed",
    });
    assert_eq!(attributes(&run.attributes), expected(run_attributes));
    let attempt_attributes = json!({
        "gen_ai.provider.name": "capstan", "gen_ai.agent.name": "demo",
        "gen_ai.usage.input_tokens": "#2", "gen_ai.usage.output_tokens": "#3",
        "gen_ai.conversation.id": request.context.session_id, "gen_ai.response.model": "demo",
        "capstan.stream_id": stream, "capstan.attempt": "#1",
    });
    assert_eq!(attributes(&attempt.attributes), expected(attempt_attributes));
    let resource = collector.resource();
    assert_eq!(
        (resource["service.name"].as_str(), resource["deployment"].as_str()),
        ("capstan", "test")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_in_ag_ui_is_the_same_span_and_one_without_a_trace_begins_its_own() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start().await);
    let server = traced(folder.path(), &collector, &[("OTEL_SERVICE_NAME", "harbour")]);
    let input = json!({ "threadId": "thread-1", "runId": "run-1", "state": {}, "tools": [],
    "context": [],
        "messages": [{ "id": "1", "role": "user", "content": "/tokens 1" }] });
    for (run, parent) in [("run-1", PARENT), ("run-2", "00-nonsense")] {
        let input =
            json!({ "runId": run, "threadId": input["threadId"], "messages": input["messages"] });
        let post = http().post(format!("{}/v1/ag-ui", server.url)).json(&input);
        post.header("traceparent", parent).send().await.unwrap().text().await.unwrap();
    }
    end(server);
    assert_eq!(
        collector.tree(TRACE),
        ["invoke_agent demo internal: unset", "  attempt demo internal: unset"]
    );
    let spans = collector.spans();
    assert_eq!(spans.len(), 4);
    assert!(spans[2].parent_span_id.is_empty() && hex(&spans[2].trace_id) != TRACE);
    let of_first = attributes(&spans[0].attributes);
    assert_eq!(
        (of_first["capstan.request_id"].as_str(), of_first["gen_ai.conversation.id"].as_str()),
        ("run-1", "thread-1")
    );
    assert_eq!(collector.resource()["service.name"], "harbour");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_and_a_warning_are_events_of_the_runs_span() {
    let (folder, collector) = (hasty_folder(), Collector::start().await);
    let server = traced(folder.path(), &collector, &[]);
    post(&server, &ask("/flaky 1"), PARENT).await;
    post(&server, &ask("/warn"), OTHER).await;
    end(server);
    assert_eq!(
        collector.tree(TRACE),
        [
            "invoke_agent demo internal: unset",
            "  attempt demo internal: STATUS_CODE_ERROR upstream_truncated",
            "  attempt demo internal: unset",
        ]
    );
    let spans = collector.spans();
    let attempts = [&spans[1], &spans[2]].map(|span| attributes(&span.attributes));
    assert_eq!(attempts[0]["error.type"], "upstream_truncated");
    assert_eq!(
        (attempts[1].get("error.type"), attempts[1]["capstan.attempt"].as_str()),
        (None, "#2")
    );
    assert!(
        spans[1].end_time_unix_nano <= spans[2].start_time_unix_nano,
        "one ends before the next begins"
    );
    let run = attributes(&spans[0].attributes);
    assert_eq!(
        (run["capstan.attempts"].as_str(), run.get("error.type")),
        ("#2", None),
        "it was healed"
    );
    let events = &spans.iter().find(|span| !span.events.is_empty()).unwrap().events;
    assert_eq!((events.len(), events[0].name.as_str()), (1, "warning"));
    let told =
        json!({ "error.type": "upstream_timeout", "level": "INFO", "target": "capstan::spans" });
    assert_eq!(attributes(&events[0].attributes), expected(told), "its code and no word of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fatal_fault_is_the_status_of_its_run_and_a_stop_is_no_error() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start().await);
    let server = traced(folder.path(), &collector, &[]);
    post(&server, &ask("/fault upstream_auth"), PARENT).await;
    let hanging = http().post(format!("{}/v1/assist", server.url)).json(&ask("/hang"));
    let hanging = hanging.header("traceparent", OTHER).send().await.unwrap();
    let path = format!("{}/v1/streams/{}", server.url, stream_of(&hanging));
    http().delete(path).send().await.unwrap();
    end(server);
    assert_eq!(
        collector.tree(TRACE),
        [
            "invoke_agent demo internal: STATUS_CODE_ERROR upstream_auth",
            "  attempt demo internal: STATUS_CODE_ERROR upstream_auth",
        ]
    );
    let failed = attributes(&collector.spans()[0].attributes);
    assert_eq!(
        (failed["error.type"].as_str(), failed["capstan.close_reason"].as_str()),
        ("upstream_auth", "error")
    );
    assert_eq!(
        collector.tree(OTHER_TRACE),
        ["invoke_agent demo internal: unset", "  attempt demo internal: unset"]
    );
    let stopped = attributes(&collector.spans()[2].attributes);
    assert_eq!(
        (stopped["capstan.close_reason"].as_str(), stopped.get("error.type")),
        ("cancelled", None)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_others_resume_stays_one_span_whose_later_attempts_are_linked_to_them() {
    let (folder, collector) = (hasty_folder(), Collector::start().await);
    let server = traced(folder.path(), &collector, &[]);
    let request = ask("/fault timeout");
    post(&server, &request, PARENT).await;
    post(&server, &request, OTHER).await;
    let (_, body) = post(&server, &request, OTHER).await;
    assert!(body.contains("CLOSE"), "the third attempt is the last: {body}");
    post(&server, &request, OTHER).await;
    end(server);
    assert_eq!(
        collector.tree(TRACE),
        [
            "invoke_agent demo internal: STATUS_CODE_ERROR timeout",
            "  attempt demo internal: STATUS_CODE_ERROR timeout",
            "  attempt demo internal: STATUS_CODE_ERROR timeout",
            "  attempt demo internal: STATUS_CODE_ERROR timeout",
        ]
    );
    let spans = collector.spans();
    assert_eq!(spans.len(), 4, "whoever attaches makes no span");
    let linked: Vec<Vec<String>> = spans
        .iter()
        .map(|span| span.links.iter().map(|link| hex(&link.trace_id)).collect())
        .collect();
    assert_eq!(
        linked,
        [vec![], vec![], vec![OTHER_TRACE.to_owned()], vec![OTHER_TRACE.to_owned()]]
    );
    assert!(spans.iter().all(|span| span.end_time_unix_nano <= spans[0].end_time_unix_nano));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_stopped_while_it_waits_ends_its_span() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start().await);
    let server = traced(folder.path(), &collector, &[]);
    let (stream, _) = post(&server, &ask("/fault timeout"), PARENT).await;
    http().delete(format!("{}/v1/streams/{stream}", server.url)).send().await.unwrap();
    end(server);
    assert_eq!(
        collector.tree(TRACE),
        ["invoke_agent demo internal: unset", "  attempt demo internal: STATUS_CODE_ERROR timeout"]
    );
    let run = attributes(&collector.spans()[0].attributes);
    assert_eq!(
        (run["capstan.close_reason"].as_str(), run["capstan.attempts"].as_str()),
        ("cancelled", "#1")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_when_the_server_goes_ends_its_span_without_a_close() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start().await);
    std::fs::write(folder.path().join("capstan.toml"), "[timeouts]\ndrain = 0.05\n").unwrap();
    let server = traced(folder.path(), &collector, &[]);
    let hanging = http().post(format!("{}/v1/assist", server.url)).json(&ask("/hang"));
    let hanging = hanging.header("traceparent", PARENT).send().await.unwrap();
    end(server);
    drop(hanging);
    assert_eq!(
        collector.tree(TRACE),
        [
            "invoke_agent demo internal: unset",
            "  attempt demo internal: STATUS_CODE_ERROR run_interrupted"
        ]
    );
    assert_eq!(attributes(&collector.spans()[0].attributes).get("capstan.close_reason"), None);
}
