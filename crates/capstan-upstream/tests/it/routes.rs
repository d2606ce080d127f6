//! Routes through a real gateway, in front of providers that break on purpose. Calls are counted at
//! their sockets.

use std::time::Duration;

use crate::common::{RunSeen, ask, ask_json, client, closed_port, keys};
use capstan_agent::{Clock, Timer};
use capstan_fake_provider::{Answer, Call, Ending, FakeProvider, Fault, Rule, Script, ToolCall};
use capstan_gateway::{Gateway, Settings, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_stores::{Durability, open};
use capstan_upstream::{AgentTable, Breakers, Kinds};
use serde_json::{Value, json};
use tokio::net::TcpListener;

async fn provider(script: Script) -> FakeProvider {
    FakeProvider::start("127.0.0.1:0", script).await.unwrap()
}

async fn healthy() -> FakeProvider {
    provider(Script::default()).await
}

async fn broken(rule: &str) -> FakeProvider {
    provider(Script::default().fault(rule.parse().unwrap())).await
}

fn whole() -> String {
    Answer::default().text
}

/// A gateway whose default agent is the first.
pub(crate) async fn gateway(clock: &Clock, agents: &[(&str, &str, Value)]) -> String {
    let table = |(name, kind, keys): &(&str, &str, Value)| AgentTable {
        name: (*name).to_owned(),
        kind: (*kind).to_owned(),
        keys: crate::common::keys(keys.clone()),
    };
    let tables: Vec<AgentTable> = agents.iter().map(table).collect();
    let built = Kinds::default().build_all(&tables, clock, &Breakers::default());
    let built = built.map_err(|(_, error)| error.to_string()).unwrap();
    let journal =
        Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
    let gateway = Gateway::new(journal).settings(Settings::default()).clock(clock.clone());
    let gateway = tables
        .iter()
        .zip(built)
        .fold(gateway, |gateway, (table, agent)| gateway.agent(&table.name, agent));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { serve(gateway, vec![listener], std::future::pending()).await });
    url
}

/// An agent at a provider.
fn at(provider: &FakeProvider, more: Value) -> Value {
    let mut config = json!({ "url": format!("{}/v1", provider.url()), "model": "m" });
    config.as_object_mut().unwrap().extend(keys(more));
    config
}

/// Two providers, one standing in for the other.
struct Two {
    clock: Clock,
    a: FakeProvider,
    b: FakeProvider,
    gateway: String,
}

impl Two {
    async fn new(
        a: FakeProvider,
        b: FakeProvider,
        a_more: Value,
        b_more: Value,
        route: Value,
    ) -> Self {
        let clock = Clock::by_hand();
        let mut config = json!({ "use": ["a", "b"] });
        config.as_object_mut().unwrap().extend(keys(route));
        let agents = [
            ("route", "route", config),
            ("a", "openai", at(&a, a_more)),
            ("b", "openai", at(&b, b_more)),
        ];
        let gateway = gateway(&clock, &agents).await;
        Self { clock, a, b, gateway }
    }

    async fn plain(a: FakeProvider) -> Self {
        Self::new(a, healthy().await, json!({}), json!({}), json!({})).await
    }

    async fn ask(&self) -> RunSeen {
        ask(&self.gateway, "What is a capstan?").await
    }

    /// Asks, and lets a limit strike when the first provider has got so far.
    async fn ask_and_strike(&self, timer: Timer, is_there: impl Fn(&Call) -> bool) -> RunSeen {
        let strike = async {
            self.a.until(|calls| calls.first().is_some_and(&is_there)).await;
            self.clock.strike(timer);
        };
        tokio::join!(self.ask(), strike).0
    }

    fn calls(&self) -> (usize, usize) {
        (self.a.calls().len(), self.b.calls().len())
    }
}

/// The answer is whole and said once, by the second; nothing but warnings stood in between.
fn passed(told: &RunSeen, calls: usize) {
    assert_eq!(told.text, whole(), "{}", told.raw);
    assert!(
        told.errors.iter().all(|error| error.severity.to_string() == "WARNING"),
        "{:?}",
        told.errors
    );
    let close = told.close.as_ref().unwrap();
    assert_eq!(
        (&close["reason"], &close["agent"], &close["member"]),
        (&"completed".into(), &"route".into(), &"b".into())
    );
    assert_eq!(close["calls"], calls, "{close}");
    assert_eq!(
        told.raw.matches("event: stream.packet").count(),
        told.raw.matches("\"op\":").count()
    );
}

/// Before the first token another member is another call of the same attempt, and no packet.
fn passed_unseen(told: &RunSeen) {
    passed(told, 2);
    assert!(told.errors.is_empty(), "{:?}", told.errors);
    assert_eq!(told.close.as_ref().unwrap()["attempts"], 1);
}

macro_rules! before_the_first_token {
    ($($name:ident: $rule:expr;)*) => { $(
        #[tokio::test]
        async fn $name() {
            let two = Two::plain(broken($rule).await).await;
            passed_unseen(&two.ask().await);
            assert_eq!(two.calls(), (1, 1));
        }
    )* };
}

before_the_first_token! {
    a_reset_before_the_head_falls_back: "reset-before-headers";
    a_close_before_the_head_falls_back: "close-before-headers";
    a_429_falls_back_at_once: "status-429";
    a_500_falls_back: "status-500";
    a_503_falls_back: "status-503";
    a_529_falls_back: "status-529";
    a_quota_that_is_spent_falls_back: "quota";
    a_key_that_is_refused_falls_back: "wrong-key";
    a_model_that_is_not_there_falls_back: "model-not-found";
    a_proxys_error_page_falls_back: "html-502";
    a_page_instead_of_an_answer_falls_back: "html";
    an_error_in_a_200_falls_back: "error-in-200";
    an_empty_answer_falls_back: "empty-answer";
    a_stream_that_is_done_without_a_word_falls_back: "empty";
}

#[tokio::test]
async fn a_429_with_a_long_wait_falls_back_at_once() {
    let rule = Rule::new(Fault::Status(429)).retry_after(60);
    let two = Two::plain(provider(Script::default().fault(rule)).await).await;
    passed_unseen(&two.ask().await);
    assert_eq!((two.calls(), two.clock.asked(Timer::Again)), ((1, 1), vec![]), "nobody waits");
}

#[tokio::test]
async fn a_refused_connection_an_unknown_host_and_a_failed_handshake_fall_back() {
    let nobody = closed_port();
    let plain = healthy().await;
    for url in [
        format!("http://{}/v1", nobody.local_addr().unwrap()),
        "http://no-such-host.invalid/v1".to_owned(),
        plain.url().replace("http://", "https://"),
    ] {
        let two =
            Two::new(healthy().await, healthy().await, json!({ "url": url }), json!({}), json!({}))
                .await;
        passed_unseen(&two.ask().await);
        assert_eq!(two.calls(), (0, 1), "{url}");
    }
}

#[tokio::test]
async fn a_hang_before_the_head_falls_back_when_the_first_token_is_late() {
    let two = Two::plain(broken("silent").await).await;
    passed_unseen(&two.ask_and_strike(Timer::FirstToken, |_| true).await);
    assert_eq!(two.clock.asked(Timer::FirstToken)[0], capstan_upstream::FIRST_TOKEN);
    let calls = two.a.until(|calls| calls[0].ending.is_some()).await;
    assert_eq!((calls.len(), calls[0].ending), (1, Some(Ending::HungUp)));
}

#[tokio::test]
async fn a_slow_first_token_falls_back_and_is_hung_up() {
    let rule = Rule::new(Fault::SlowFirstToken).seconds(Duration::from_secs(3600));
    let a = provider(Script::default().fault(rule)).await;
    let two = Two::new(a, healthy().await, json!({}), json!({}), json!({ "first_token": 8 })).await;
    let asked = tokio::spawn({
        let url = two.gateway.clone();
        async move { ask(&url, "What is a capstan?").await }
    });
    // Two waits have this limit: the head of the answer, which comes, and its first token, which
    // does not.
    two.a.until(|calls| calls.len() == 1).await;
    while two.clock.asked(Timer::FirstToken).len() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(two.clock.asked(Timer::FirstToken)[0] == Duration::from_secs(8));
    two.clock.strike(Timer::FirstToken);
    passed_unseen(&asked.await.unwrap());
    let calls = two.a.until(|calls| calls[0].ending.is_some()).await;
    assert_eq!(calls[0].ending, Some(Ending::HungUp));
}

macro_rules! after_the_first_token {
    ($($name:ident: $rule:expr;)*) => { $(
        #[tokio::test]
        async fn $name() {
            let two = Two::plain(broken($rule).await).await;
            let told = two.ask().await;
            passed(&told, 2);
            assert_eq!((two.calls(), &told.close.as_ref().unwrap()["attempts"]), ((1, 1),
            &2.into()));
        }
    )* };
}

after_the_first_token! {
    a_reset_in_the_middle_goes_on_elsewhere: "reset-mid-stream";
    a_close_in_the_middle_goes_on_elsewhere: "close-mid-stream";
    a_body_that_ends_early_goes_on_elsewhere: "truncated";
    an_error_in_the_stream_goes_on_elsewhere: "error-in-stream";
    a_rate_limit_in_the_stream_goes_on_elsewhere_at_once: "rate-limit-in-stream";
    a_malformed_chunk_goes_on_elsewhere: "malformed-chunk";
    a_done_without_a_finish_goes_on_elsewhere: "done-without-finish";
    an_error_object_in_the_stream_goes_on_elsewhere: "error-object-in-stream";
    a_detail_in_the_stream_goes_on_elsewhere: "detail-in-stream";
}

#[tokio::test]
async fn a_stall_in_the_middle_continues_at_another_member() {
    let two = Two::plain(broken("stall-mid-stream").await).await;
    let told = two.ask_and_strike(Timer::Idle, |call| call.tokens == 20).await;
    passed(&told, 2);
    let calls = two.a.until(|calls| calls[0].ending.is_some()).await;
    assert_eq!((calls.len(), calls[0].ending), (1, Some(Ending::HungUp)));
}

#[tokio::test]
async fn a_request_that_fails_everywhere_goes_to_no_other_member() {
    for (rule, code) in
        [("invalid-request", "upstream_error"), ("content-filter", "content_refused")]
    {
        let two = Two::plain(broken(rule).await).await;
        let told = two.ask().await;
        assert_eq!(told.errors.last().unwrap().code, code);
        assert_eq!(two.calls(), (1, 0), "{rule}");
    }
    let next = json!({ "on_refusal": "next" });
    let two =
        Two::new(broken("content-filter").await, healthy().await, json!({}), json!({}), next).await;
    passed_unseen(&two.ask().await);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_goes_to_the_member_with_more_context_and_to_no_other() {
    let (short, other, long) = (broken("context-length").await, healthy().await, healthy().await);
    let route = json!({ "use": ["short", "other", { "name": "b", "when": "context" }] });
    let agents = [
        ("route", "route", route),
        ("short", "openai", at(&short, json!({}))),
        ("other", "openai", at(&other, json!({}))),
        ("b", "openai", at(&long, json!({}))),
    ];
    let gateway = gateway(&Clock::by_hand(), &agents).await;
    passed_unseen(&ask(&gateway, "hi").await);
    assert_eq!((short.calls().len(), other.calls().len(), long.calls().len()), (1, 0, 1));
    let two = Two::plain(broken("context-length").await).await;
    assert_eq!(two.ask().await.errors.last().unwrap().code, "context_length_exceeded");
    assert_eq!(two.calls(), (1, 0));
}

#[tokio::test]
async fn a_cut_answer_is_continued_by_the_next_provider_with_no_character_twice_and_none_missing() {
    let prefill = json!({ "prefill": "plain" });
    let two =
        Two::new(broken("reset-mid-stream").await, healthy().await, json!({}), prefill, json!({}))
            .await;
    passed(&two.ask().await, 2);
    let call = &two.b.calls()[0];
    let said: String = whole().split_inclusive(' ').take(20).collect();
    let messages = call.body["messages"].as_array().unwrap();
    assert_eq!(
        messages.last().unwrap(),
        &json!({ "role": "assistant", "content": said.trim_end() })
    );
    assert!(call.tokens <= 41, "only the rest was said: {}", call.tokens);
}

#[tokio::test]
async fn a_cut_answer_of_claude_is_continued_without_whitespace_at_the_end() {
    let (a, b) = (broken("truncated@1").await, healthy().await);
    let claude = json!({ "url": a.url(), "model": "claude-sonnet-4-5" });
    let agents = [
        ("route", "route", json!({ "use": ["a", "b"] })),
        ("a", "anthropic", claude),
        ("b", "openai", at(&b, json!({}))),
    ];
    let gateway = gateway(&Clock::by_hand(), &agents).await;
    let told = ask(&gateway, "hi").await;
    assert_eq!(told.text, whole(), "{}", told.raw);
    assert_eq!(
        (a.calls().len(), b.calls().len()),
        (2, 0),
        "who can go on comes before who would begin anew"
    );
    assert_eq!(told.close.unwrap()["member"], "a");
}

#[tokio::test]
async fn a_refused_prefill_restarts_and_compares_costs_no_attempt_and_is_remembered() {
    let prefill = json!({ "prefill": "plain" });
    let b = broken("refuses-prefill").await;
    let two = Two::new(broken("reset-mid-stream").await, b, json!({}), prefill, json!({})).await;
    let told = two.ask().await;
    passed(&told, 3);
    assert_eq!(told.close.unwrap()["attempts"], 2);
    passed(&two.ask().await, 2);
    let has_prefill: Vec<bool> =
        two.b.calls().iter().map(|call| call.body.to_string().contains("assistant")).collect();
    assert_eq!(has_prefill, [true, false, false]);
}

#[tokio::test]
async fn an_answer_with_a_tool_call_is_never_continued() {
    let call =
        ToolCall { name: "pay".into(), arguments: keys(json!({ "amount": 5 })), input: None };
    let text = "I pay five coins for the rope now.";
    let answer =
        Answer { text: text.into(), tool_calls: vec![call.clone(), call], ..Answer::default() };
    // After the text, the first call as a whole and a piece of the second.
    let cut = Rule::new(Fault::ResetMidStream).after(8 + 5);
    let (a, b) = (
        provider(Script::default().answer(answer.clone()).fault(cut)).await,
        provider(Script::default().answer(answer)).await,
    );
    // Messages says when a call is whole; it is shown then.
    let agents = [
        ("route", "route", json!({ "use": ["a", "b"] })),
        ("a", "anthropic", json!({ "url": a.url(), "model": "m" })),
        ("b", "openai", at(&b, json!({ "prefill": "plain" }))),
    ];
    let gateway = gateway(&Clock::by_hand(), &agents).await;
    let told = ask(&gateway, "hi").await;
    assert_eq!(b.calls()[0].body["messages"].as_array().unwrap().len(), 1, "it is asked anew");
    let began =
        crate::common::types(&told).iter().filter(|kind| **kind == "TOOL_CALL_START").count();
    assert_eq!((told.text.as_str(), began), (text, 2), "{}", told.raw);
}

#[tokio::test]
async fn a_hedge_takes_the_first_token_and_stops_the_other_call() {
    let rule = Rule::new(Fault::SlowFirstToken).seconds(Duration::from_secs(3600));
    let a = provider(Script::default().fault(rule)).await;
    let two = Two::new(a, healthy().await, json!({}), json!({}), json!({ "hedge": 1.5 })).await;
    let told = two.ask_and_strike(Timer::Hedge, |_| true).await;
    passed_unseen(&told);
    assert_eq!(two.clock.asked(Timer::Hedge), [Duration::from_millis(1500)]);
    let calls = two.a.until(|calls| calls[0].ending.is_some()).await;
    assert_eq!((calls.len(), calls[0].ending, two.b.calls().len()), (1, Some(Ending::HungUp), 1));
    let metrics = metrics(&two.gateway).await;
    assert!(
        metrics
            .contains(r#"capstan_route_calls_total{route="route",member="a",outcome="stopped"} 1"#),
        "{metrics}"
    );
    // A first token in time needs no second call.
    let two =
        Two::new(healthy().await, healthy().await, json!({}), json!({}), json!({ "hedge": 1.5 }))
            .await;
    assert_eq!(two.ask().await.text, whole());
    assert_eq!(two.calls(), (1, 0));
}

async fn metrics(gateway: &str) -> String {
    client().get(format!("{gateway}/metrics")).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn the_breaker_opens_over_all_runs_and_closes_with_a_probe() {
    let breaker = json!({ "breaker": { "failures": 3, "seconds": 30 } });
    let two =
        Two::new(broken("status-503").await, healthy().await, json!({}), json!({}), breaker).await;
    for calls in [1, 2, 3, 3, 3] {
        assert_eq!(two.ask().await.text, whole());
        assert_eq!(two.a.calls().len(), calls);
    }
    let state = |value| format!(r#"capstan_route_breaker{{route="route",member="a"}} {value}"#);
    let told = metrics(&two.gateway).await;
    assert!(told.contains(&state(2)), "{told}");
    assert!(
        told.contains(r#"capstan_route_fallbacks_total{route="route",member="a"} 3"#),
        "{told}"
    );
    assert!(
        told.contains(
            r#"capstan_route_calls_total{route="route",member="b",outcome="answered"} 5"#
        ),
        "{told}"
    );
    two.clock.pass(Duration::from_secs(30));
    assert!(metrics(&two.gateway).await.contains(&state(1)));
    assert_eq!(two.ask().await.text, whole());
    assert_eq!(two.a.calls().len(), 4, "one probe, which fails");
    assert_eq!(two.ask().await.text, whole());
    assert_eq!(two.a.calls().len(), 4);
    two.a.set_faults(Vec::new());
    two.clock.pass(Duration::from_secs(60));
    assert_eq!(two.ask().await.close.unwrap()["member"], "a");
    assert!(metrics(&two.gateway).await.contains(&state(0)));
}

#[tokio::test]
async fn calls_and_usage_are_reported_by_member() {
    // Without its finish, so that it has said what it took so far: nothing.
    let two = Two::plain(broken("reset-mid-stream@1").await).await;
    let (status, told) = ask_json(&two.gateway, "hi").await;
    assert_eq!(status, 200, "{told}");
    let metrics = &told["metrics"];
    assert_eq!(
        (&metrics["member"], &metrics["calls"], &metrics["attempts"]),
        (&"b".into(), &2.into(), &2.into())
    );
    assert_eq!(metrics["usage_by_member"]["b"]["output_tokens"], 60, "{told}");
    assert_eq!(told["output"]["close"]["usage"], metrics["usage_by_member"]["b"]);
    assert_eq!(told["output"]["text"], whole());
}

#[tokio::test]
async fn weights_spread_runs_and_the_others_still_stand_in() {
    let (a, b) = (healthy().await, healthy().await);
    let route = json!({ "use": [{ "name": "a", "weight": 1 }, { "name": "b", "weight": 1 }] });
    let agents = [
        ("route", "route", route),
        ("a", "openai", at(&a, json!({}))),
        ("b", "openai", at(&b, json!({}))),
    ];
    let gateway = gateway(&Clock::by_hand(), &agents).await;
    for _ in 0..16 {
        assert_eq!(ask(&gateway, "hi").await.text, whole());
    }
    let (first, second) = (a.calls().len(), b.calls().len());
    assert!(first + second == 16 && first.min(second) > 0, "{first} and {second}");
    a.set_faults(vec!["status-500".parse().unwrap()]);
    for _ in 0..4 {
        assert_eq!(ask(&gateway, "hi").await.text, whole());
    }
}

#[tokio::test]
async fn a_route_keeps_its_budget_whichever_member_fails() {
    for (rule, calls) in [("status-500", 4), ("reset-mid-stream", 4), ("error-in-stream", 4)] {
        let two = Two::new(
            broken(rule).await,
            broken(rule).await,
            json!({}),
            json!({}),
            json!({ "max_calls": 4, "attempts": 4 }),
        )
        .await;
        let told = two.ask().await;
        let (a, b) = two.calls();
        assert!(a + b <= calls, "{rule}: {a} and {b}");
        let close = told.close.unwrap();
        assert_eq!(
            (&close["reason"], &close["calls"]),
            (&"error".into(), &(a + b).into()),
            "{rule}"
        );
    }
}

#[tokio::test]
async fn an_outage_is_not_multiplied() {
    let share = json!({ "retry_share": 0, "breaker": { "failures": 1000 } });
    let two = Two::new(
        broken("reset-mid-stream").await,
        broken("reset-mid-stream").await,
        json!({}),
        json!({}),
        share,
    )
    .await;
    for _ in 0..16 {
        two.ask().await;
    }
    let (a, b) = two.calls();
    assert!(a + b <= 32 + 20, "each once, and the floor of each: {a} and {b}");
}

#[tokio::test]
async fn a_member_with_side_effects_is_left_only_if_it_cannot_have_begun() {
    let b = healthy().await;
    let route = |member: Value, kind: &'static str| {
        [
            ("route", "route", json!({ "use": ["a", "b"] })),
            ("a", kind, member),
            ("b", "openai", at(&b, json!({}))),
        ]
    };
    let clock = Clock::by_hand();
    let absent =
        gateway(&clock, &route(json!({ "command": ["/no/such/program"] }), "command")).await;
    passed_unseen(&ask(&absent, "hi").await);
    let begun = gateway(&clock, &route(json!({ "command": ["false"] }), "command")).await;
    let told = ask(&begun, "hi").await;
    assert_eq!(
        (told.text.as_str(), told.errors.last().unwrap().severity.to_string().as_str()),
        ("", "FATAL")
    );
    let nobody = closed_port();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    let unreached = gateway(&clock, &route(json!({ "url": url }), "cap")).await;
    passed_unseen(&ask(&unreached, "hi").await);
    assert_eq!(b.calls().len(), 2);
}

#[tokio::test]
async fn with_one_provider_silence_ends_in_a_type_after_one_more_try_at_most() {
    for (rule, timer) in [("silent", Timer::FirstToken), ("stall-mid-stream", Timer::Idle)] {
        let a = broken(rule).await;
        let clock = Clock::by_hand();
        let agents =
            [("route", "route", json!({ "use": ["a"] })), ("a", "openai", at(&a, json!({})))];
        let gateway = gateway(&clock, &agents).await;
        let strike = async {
            // The attempt that stalled, and those that follow it.
            for n in 1..=3 {
                a.until(|calls| {
                    calls.len() >= n && (rule == "silent" || calls[n - 1].tokens == 20)
                })
                .await;
                clock.strike(timer);
            }
        };
        let told = tokio::select! {
            told = ask(&gateway, "hi") => told,
            () = async { strike.await; std::future::pending().await } => unreachable!(),
        };
        let error = told.errors.last().unwrap();
        assert_eq!(error.code, "upstream_timeout", "{rule}");
        assert_ne!(error.severity.to_string(), "WARNING", "{rule}");
        assert!(a.calls().len() <= 3, "{rule}: {}", a.calls().len());
    }
}

/// With nobody to stand in, each fault passes or ends in a type; none is a short answer that claims
/// to be whole.
#[tokio::test]
async fn with_one_provider_every_fault_passes_or_is_typed() {
    let quick = [
        "status-429",
        "status-500",
        "status-503",
        "status-529",
        "quota",
        "wrong-key",
        "reset-before-headers",
        "close-before-headers",
        "reset-mid-stream",
        "close-mid-stream",
        "truncated",
        "error-in-stream",
        "rate-limit-in-stream",
        "malformed-chunk",
        "done-without-finish",
        "empty",
        "error-object-in-stream",
        "detail-in-stream",
        "html",
        "html-502",
        "error-in-200",
        "model-not-found",
    ];
    for rule in quick {
        for when in ["", "@1"] {
            let a = broken(&format!("{rule}{when}")).await;
            let agents =
                [("route", "route", json!({ "use": ["a"] })), ("a", "openai", at(&a, json!({})))];
            let gateway = gateway(&Clock::by_hand(), &agents).await;
            let told = ask(&gateway, "hi").await;
            let close = told.close.clone().unwrap_or_default();
            let is_whole = told.text == whole() && close["reason"] == "completed";
            let is_typed =
                told.errors.last().is_some_and(|error| error.severity.to_string() != "WARNING");
            assert!(is_whole || is_typed, "{rule}{when}: {}", told.raw);
            assert!(a.calls().len() <= 4, "{rule}{when}: {}", a.calls().len());
        }
    }
}
