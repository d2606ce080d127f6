//! What the demo agent promises: the same answer every time, and every way in which a run can go.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use capstan_agent::{Agent, Cancel, CancelReason, Output, Turn, channel};
use capstan_demo::Demo;
use capstan_protocol::{
    CATALOGUE, ChatMessage, ErrorDomain, ErrorSeverity, Event, EventView, Fault, FaultKind,
    PresentationEventType, ProgressStatus,
};
use common::{Attempt, run};
use serde_json::json;

async fn attempt(text: &str, attempt: u32) -> Attempt {
    let mut turn = Turn::new(text);
    turn.attempt = attempt;
    run(&Demo::with_delay(Duration::ZERO), turn).await
}

async fn first(text: &str) -> Attempt {
    attempt(text, 1).await
}

fn fault_of(attempt: Attempt) -> Fault {
    attempt.outcome.expect_err("the attempt should fail").into_fault()
}

fn views(attempt: &Attempt) -> Vec<EventView> {
    let mut views = Vec::new();
    for output in &attempt.outputs {
        if let Output::Event { kind, payload } = output {
            let event = Event::of(payload);
            assert_eq!(event.kind.as_deref(), Some(kind.as_str()));
            views.push(event.view());
        }
    }
    views
}

fn usage_of(attempt: &Attempt) -> serde_json::Value {
    match attempt.outputs.last() {
        Some(Output::Usage(usage)) => json!(usage),
        other => panic!("usage comes last, not {other:?}"),
    }
}

// ---- plain text ----

#[tokio::test]
async fn the_same_message_gives_the_same_chunks_in_every_attempt() {
    for text in ["Why is the sea salty?", "hello", "", "日本語", "/help", "/warn", "/tokens 20"]
    {
        let expected = first(text).await;
        for number in 1..=3 {
            assert_eq!(attempt(text, number).await.outputs, expected.outputs, "{text}");
        }
    }
}

#[tokio::test]
async fn the_answer_to_a_question_never_changes() {
    // Journals outlive upgrades: a later version must give the same answer.
    let text = first("Why is the sea salty?").await.text();
    assert_eq!(
        text,
        "Ah, “salty”: a fine thing to ask about. There is a knot in the middle of it, and the \
         knot is called “sea”; \
         “salty” only pulls. A real model would now know more, but hardly sooner; `/help` shows \
         what else I can do."
    );
}

#[tokio::test]
async fn an_answer_is_a_few_sentences_in_words() {
    let attempt = first("How do tides work on the moon?").await;
    attempt.outcome.as_ref().unwrap();
    let deltas = attempt.deltas();
    assert!(deltas.iter().all(|delta| delta.split_whitespace().count() == 1), "{deltas:?}");
    assert!((10..100).contains(&deltas.len()), "{deltas:?}");
}

#[tokio::test]
async fn model_and_usage_are_reported_in_words() {
    let attempt = first("Why is the sea salty?").await;
    assert_eq!(attempt.outputs[0], Output::Model("demo".into()));
    let said = attempt.text().split_whitespace().count();
    assert_eq!(usage_of(&attempt), json!({"input_tokens": 5, "output_tokens": said}));
}

#[tokio::test]
async fn earlier_turns_are_counted() {
    let turns = |n: usize| {
        let pair = [ChatMessage::user("hello"), ChatMessage::assistant("hi")];
        let history = pair.iter().cloned().cycle().take(2 * n);
        Turn::talk(history.chain([ChatMessage::user("And now?")]).collect())
    };
    let demo = Demo::with_delay(Duration::ZERO);
    assert!(run(&demo, turns(1)).await.text().contains("one turn before"));
    assert!(run(&demo, turns(2)).await.text().contains("2 turns before"));
    assert!(!run(&demo, turns(0)).await.text().contains("before this one"));
}

#[tokio::test(start_paused = true)]
async fn words_come_at_reading_pace() {
    let start = tokio::time::Instant::now();
    let attempt = run(&Demo::new(), Turn::new("hello")).await;
    let words = u32::try_from(attempt.deltas().len()).unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(20) * words);
}

// ---- commands ----

#[tokio::test]
async fn a_question_is_asked_once_and_its_answer_is_taken() {
    let asked = first("/ask Paint it blue? --expires 60").await;
    let Some(Output::Interrupt(question)) = asked.outputs.last() else {
        panic!("it asks at the end")
    };
    assert_eq!(
        (question.id.as_str(), question.message.as_deref()),
        ("decision", Some("Paint it blue?"))
    );
    assert!(question.deadline().unwrap() > capstan_protocol::Timestamp::now());
    let mut turn = Turn::new("/ask");
    let answer = json!([{ "interruptId": "decision", "status": "resolved",
    "payload": { "approved": true } }]);
    turn.answers = serde_json::from_str::<Vec<_>>(&answer.to_string()).unwrap().into();
    let answered = run(&Demo::with_delay(Duration::ZERO), turn).await;
    assert_eq!(answered.text(), r#"You answered {"approved":true}, so I go on."#);
    assert!(!answered.outputs.iter().any(|output| matches!(output, Output::Interrupt(_))));
}

#[tokio::test]
async fn help_names_every_command() {
    let text = first("/help").await.text();
    for command in [
        "/help",
        "/echo",
        "/tokens",
        "/fault",
        "/warn",
        "/user-error",
        "/events",
        "/flaky",
        "/diverge",
        "/hang",
        "/panic",
    ] {
        assert!(text.contains(&format!("- `{command}")), "{command}");
    }
}

#[tokio::test]
async fn tokens_are_exactly_as_many_as_asked_for() {
    for count in [0, 1, 7, 1_000, 100_000] {
        let attempt = first(&format!("/tokens {count}")).await;
        attempt.outcome.as_ref().unwrap();
        let expected: Vec<String> = (1..=count).map(|n| format!("tok{n} ")).collect();
        assert_eq!(attempt.deltas(), expected);
        assert_eq!(usage_of(&attempt), json!({"input_tokens": 2, "output_tokens": count}));
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_come_at_the_delay_asked_for() {
    for (command, millis) in
        [("/tokens 10 --delay 10ms", 100), ("/tokens 2 --delay 1.5s", 3_000), ("/tokens 10", 0)]
    {
        let start = tokio::time::Instant::now();
        run(&Demo::new(), Turn::new(command)).await.outcome.unwrap();
        assert_eq!(start.elapsed(), Duration::from_millis(millis), "{command}");
    }
}

#[tokio::test]
async fn every_code_in_every_spelling_ends_the_run_with_its_fault() {
    for entry in CATALOGUE {
        let spellings = [
            entry.code.to_owned(),
            entry.slug.to_owned(),
            entry.code.to_uppercase(),
            entry.problem_type(),
        ];
        for (after, spelling) in spellings.iter().enumerate() {
            let attempt = first(&format!("/fault {spelling} --after {after}")).await;
            assert_eq!(attempt.deltas().len(), after);
            let failure = attempt.outcome.unwrap_err();
            assert!(failure.is_final(), "{spelling}");
            assert_eq!(failure.into_fault(), Fault::new(entry.kind), "{spelling}");
        }
        let agui = fault_of(first(&format!("/fault {}", entry.agui.as_str())).await);
        assert_eq!(agui.kind(), entry.agui.head());
    }
}

#[tokio::test]
async fn a_fault_comes_after_three_deltas_by_default() {
    assert_eq!(first("/fault TIMEOUT").await.text(), "tok1 tok2 tok3 ");
    assert_eq!(first("/fault TIMEOUT --after 0").await.text(), "");
}

#[tokio::test]
async fn a_fault_waits_as_long_as_asked_in_whole_seconds() {
    for (wait, seconds) in [("7", 7), ("1.2", 2), ("500ms", 1), ("0", 0)] {
        let fault = fault_of(first(&format!("/fault rate-limited --retry-after {wait}")).await);
        assert_eq!(fault.retry_after(), Some(seconds), "{wait}");
    }
}

#[tokio::test]
async fn after_a_warning_the_run_continues() {
    let attempt = first("/warn").await;
    let at =
        attempt.outputs.iter().position(|output| matches!(output, Output::Warning(_))).unwrap();
    let is_text =
        |outputs: &[Output]| outputs.iter().any(|output| matches!(output, Output::Delta(_)));
    assert!(is_text(&attempt.outputs[..at]) && is_text(&attempt.outputs[at..]));
    attempt.outcome.unwrap();
}

#[tokio::test]
async fn after_a_user_error_the_run_continues() {
    let attempt = first("/user-error").await;
    let [EventView::UserError(error)] = &views(&attempt)[..] else { panic!("one user error") };
    assert_eq!((error.code, error.domain, error.retryable), (Some(503), ErrorDomain::Tool, true));
    assert!(matches!(attempt.outputs.iter().rev().nth(1), Some(Output::Delta(_))));
    attempt.outcome.unwrap();
}

#[tokio::test]
async fn events_show_every_view_that_an_agent_can_write() {
    let attempt = first("/events").await;
    let (mut kinds, mut steps) = (Vec::new(), Vec::new());
    for view in views(&attempt) {
        kinds.push(match view {
            EventView::Citations(block) => {
                assert!(
                    block
                        .citations
                        .iter()
                        .all(|c| c.uri.as_str().starts_with("https://example.org/"))
                );
                PresentationEventType::CitationBlock.as_str()
            }
            EventView::Progress(update) => {
                steps.push(update.status);
                PresentationEventType::ProgressIndicator.as_str()
            }
            EventView::Media(_) => PresentationEventType::MediaCarousel.as_str(),
            EventView::Markdown(_) => PresentationEventType::MarkdownBlock.as_str(),
            EventView::Thought(_) => PresentationEventType::ThoughtTrace.as_str(),
            EventView::UserError(_) => "user_error",
            // A reset is the gateway's to write.
            EventView::Reset(_) | EventView::Interrupt(_) | EventView::Other => {
                panic!("not an agent's event")
            }
        });
    }
    for kind in PresentationEventType::ALL
        .map(PresentationEventType::as_str)
        .into_iter()
        .chain(["user_error"])
    {
        assert!(kinds.contains(&kind), "{kind}");
    }
    assert_eq!(steps, [ProgressStatus::Running, ProgressStatus::Complete]);
    attempt.outcome.unwrap();
}

#[tokio::test]
async fn a_flaky_run_breaks_off_half_way_and_then_completes_the_same_text() {
    let whole = attempt("/flaky 2", 3).await;
    whole.outcome.as_ref().unwrap();
    for number in [1, 2] {
        let broken = attempt("/flaky 2 --wait 2", number).await;
        assert!(whole.text().starts_with(&broken.text()));
        assert_eq!(broken.deltas().len(), whole.deltas().len() / 2);
        let failure = broken.outcome.unwrap_err();
        assert!(!failure.is_final(), "another attempt may heal it");
        let fault = failure.into_fault();
        assert_eq!((fault.severity(), fault.retry_after()), (ErrorSeverity::Transient, Some(2)));
    }
    assert_eq!(fault_of(first("/flaky 1").await).retry_after(), None);
    first("/flaky 0").await.outcome.unwrap();
}

#[tokio::test]
async fn a_second_attempt_diverges_after_a_common_beginning() {
    let (one, two) = (first("/diverge").await, attempt("/diverge", 2).await);
    let common = one.deltas().iter().zip(two.deltas()).take_while(|(a, b)| **a == *b).count();
    assert!(0 < common && common < one.deltas().len(), "{common}");
    assert_eq!(fault_of(one).severity(), ErrorSeverity::Transient);
    two.outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hanging_run_is_silent_until_it_is_stopped() {
    let (canceller, cancel) = Cancel::new(Default::default());
    let mut turn = Turn::new("/hang");
    turn.cancel = cancel;
    let hanging = tokio::spawn(async move { run(&Demo::new(), turn).await });
    tokio::time::advance(Duration::from_secs(86_400)).await;
    tokio::task::yield_now().await;
    assert!(!hanging.is_finished());
    canceller.cancel(CancelReason::Stopped);
    let attempt = hanging.await.unwrap();
    assert_eq!(attempt.outputs, []);
    attempt.outcome.unwrap_err();
}

#[tokio::test]
async fn a_panic_panics() {
    let panicking = tokio::spawn(async { first("/panic").await });
    let Err(error) = panicking.await else { panic!("it should have") };
    assert_eq!(
        Fault::from_panic(error.into_panic().as_ref()).kind(),
        FaultKind::AgentExecutionError
    );
}

#[tokio::test]
async fn an_agent_without_a_reader_stops() {
    let (mut writer, inbox) = channel(1);
    drop(inbox);
    Demo::new().run(Turn::new("/tokens 1000000 --delay 1s"), &mut writer).await.unwrap_err();
}

// ---- mistakes ----

#[tokio::test]
async fn a_wrong_command_is_an_invalid_request_and_says_why() {
    let attempt = first("/tokns 5").await;
    assert_eq!(attempt.outputs, []);
    let fault = fault_of(attempt);
    assert_eq!((fault.kind(), fault.severity()), (FaultKind::InvalidRequest, ErrorSeverity::Fatal));
    assert!(fault.message().contains("Did you mean `/tokens`?"), "{fault}");
}
