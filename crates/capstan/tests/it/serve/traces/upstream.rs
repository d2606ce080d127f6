//! A model provider behind a traced gateway: its spans, the trace context that it gets, and what
//! spans omit.

use std::fs;
use std::path::Path;

use hyper::Response;
use serde_json::json;

use super::collector::{Collector, attributes, hex};
use super::{PARENT, TRACE, end, traced};
use crate::serve::client::{ask, http};
use crate::serve::peer::Peer;

const QUESTION: &str = "quinquereme";
const ANSWER: &str = "trireme";
const UPSTREAM_KEY: &str = "sk-upstream-secret";
const TENANT_KEY: &str = "sk_a_key_that_nobody_may_read";
/// The SHA-256 of [`TENANT_KEY`].
const TENANT_HASH: &str = "sha256:4d360d3fb47c165c513ad3430449806a7f019537a1fe237b1a9b8361b65286c1";

/// A provider of OpenAI's protocol whose first answer breaks off.
async fn provider() -> Peer {
    Peer::start(|nth| async move {
        let chunk = |value: serde_json::Value| format!("data: {value}\n\n");
        let said = chunk(json!({ "model": "m-1-dated", "choices": [{ "index": 0,
            "delta": { "content": ANSWER } }] }));
        let usage = json!({ "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9 });
        let rest =
            chunk(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }],
            "usage": usage }));
        let body = if nth == 0 { said } else { format!("{said}{rest}data: [DONE]\n\n") };
        Response::builder().header("content-type", "text/event-stream").body(body.into()).unwrap()
    })
    .await
}

fn configure(folder: &Path, provider: &Peer) {
    let file = format!(
        "[[agents]]\nname = \"writer\"\nkind = \"openai\"\nmodel = \"m-1\"\nurl = \"{}\"\nkey_env \
         = \"UPSTREAM_KEY\"\n\
         [[tenants]]\nname = \"harbour\"\nkeys = [\"{TENANT_HASH}\"]\n",
        provider.url
    );
    fs::write(folder.join("capstan.toml"), file).unwrap();
}

/// Calls the provider through a traced gateway. Returns its log.
async fn converse(collector: &Collector, provider: &Peer, env: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), provider);
    let key = ("UPSTREAM_KEY", UPSTREAM_KEY);
    let server = traced(folder.path(), collector, &[&[key], env].concat());
    let mut request = ask(QUESTION);
    request.payload.payload.insert("note".into(), QUESTION.into());
    let post =
        http().post(format!("{}/v1/assist", server.url)).json(&request).bearer_auth(TENANT_KEY);
    let response =
        post.header("traceparent", PARENT).header("tracestate", "vendor=1").send().await.unwrap();
    assert!(response.text().await.unwrap().contains(ANSWER));
    end(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_models_attempts_are_chat_spans_with_propagated_context() {
    let (collector, provider) = (Collector::start().await, provider().await);
    converse(&collector, &provider, &[]).await;
    assert_eq!(
        collector.tree(TRACE),
        [
            "invoke_agent writer internal: unset",
            "  chat m-1 client: STATUS_CODE_ERROR upstream_truncated",
            "  chat m-1 client: unset",
        ]
    );
    let spans = collector.spans();
    for (span, has_usage) in spans.iter().zip([true, false, true]) {
        let told = attributes(&span.attributes);
        assert_eq!(told["gen_ai.provider.name"], "openai");
        assert_eq!(
            (told["gen_ai.request.model"].as_str(), told["gen_ai.response.model"].as_str()),
            ("m-1", "m-1-dated")
        );
        let usage = ["input", "output"]
            .map(|which| told.get(&format!("gen_ai.usage.{which}_tokens")).cloned());
        let expected =
            if has_usage { [Some("#7".into()), Some("#2".into())] } else { [None, None] };
        assert_eq!(usage, expected, "{told:?}");
    }
    let operations =
        spans.iter().map(|span| attributes(&span.attributes)["gen_ai.operation.name"].clone());
    assert_eq!(operations.collect::<Vec<_>>(), ["invoke_agent", "chat", "chat"]);
    for (seen, attempt) in provider.seen().iter().zip(&spans[1..]) {
        let own = format!("00-{TRACE}-{}-01", hex(&attempt.span_id));
        assert_eq!(
            (seen.header("traceparent"), seen.header("tracestate")),
            (Some(&own[..]), Some("vendor=1"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_content_and_no_key_is_exported_or_logged() {
    let (collector, provider) = (Collector::start().await, provider().await);
    let env = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20collector-key"),
        ("CAPSTAN_LOG", "trace"),
    ];
    let log = converse(&collector, &provider, &env).await;
    let exported = collector.text();
    assert!(exported.contains("invoke_agent writer"));
    for secret in
        [QUESTION, ANSWER, UPSTREAM_KEY, TENANT_KEY, TENANT_HASH, "harbour", "collector-key"]
    {
        assert!(!exported.contains(secret), "{secret} is exported");
    }
    for secret in [UPSTREAM_KEY, TENANT_KEY, "collector-key"] {
        assert!(!log.contains(secret), "{secret} in\n{log}");
    }
    for seen in collector.peer.seen() {
        assert_eq!(
            (seen.path.as_str(), seen.header("authorization")),
            ("/v1/traces", Some("Bearer collector-key"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsampled_run_is_not_exported_and_its_trace_continues() {
    let (collector, provider) = (Collector::start().await, provider().await);
    converse(&collector, &provider, &[("OTEL_TRACES_SAMPLER", "always_off")]).await;
    assert!(collector.peer.seen().is_empty());
    let told = provider.seen()[0].header("traceparent").unwrap().to_owned();
    assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_exports_nothing_passes_the_trace_on_unchanged() {
    let (collector, provider) = (Collector::start().await, provider().await);
    converse(&collector, &provider, &[("OTEL_SDK_DISABLED", "true")]).await;
    assert!(collector.peer.seen().is_empty());
    for seen in provider.seen() {
        assert_eq!(
            (seen.header("traceparent"), seen.header("tracestate")),
            (Some(PARENT), Some("vendor=1"))
        );
    }
}
