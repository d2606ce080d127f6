//! One script per rule of the contract's section on clients.

use std::time::Duration;

use capstan_client::protocol::ErrorSeverity::{Fatal, Transient, Warning};
use capstan_client::protocol::Profile;

use super::script::In::{Bytes, End, Fail, Head, Open, Pass, Refuse};
use super::script::{
    In, OTHER, STREAM, Script, bare, bytes, close, delta, error, event, frame, opening, script,
};

pub(crate) fn all() -> Vec<Script> {
    [
        plain_runs(),
        resumes(),
        budgets(),
        refusals(),
        errors(),
        repeats(),
        foreign_servers(),
        framing(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn plain_runs() -> Vec<Script> {
    vec![
        script(
            "a run from start to end",
            vec![
                Open,
                bytes(&[opening(0)]),
                bytes(&[frame(&delta(1, "Hel")), frame(&delta(2, "lo"))]),
                bytes(&[frame(&event(3, r#"{"type":"X","data":{}}"#)), frame(&close(4))]),
            ],
        ),
        script("a run in single bytes", {
            let all = format!("{}{}{}", opening(0), frame(&delta(1, "naïve ☃")), frame(&close(2)));
            let mut steps = vec![Open];
            steps.extend(all.chars().map(|c| Bytes(c.to_string())));
            steps
        }),
        script(
            "heartbeats are nothing",
            vec![Open, Bytes(":\n:\n".into()), bytes(&[frame(&delta(1, "a"))])],
        ),
    ]
}

fn resumes() -> Vec<Script> {
    let again = |seq| vec![Pass(500), Open, bytes(&[opening(seq)])];
    let mut steps = vec![Open, bytes(&[opening(0)]), End];
    steps.extend(again(0));
    steps.push(bytes(&[frame(&delta(1, "a")), frame(&delta(2, "b"))]));
    steps.push(Fail("reset"));
    steps.extend(again(2));
    steps.push(bytes(&[frame(&close(3))]));
    vec![
        script("a cut before the first packet and one after the second", steps),
        script(
            "a frame that the end cuts off comes again",
            vec![
                Open,
                bytes(&[frame(&delta(1, "a")), frame(&delta(2, "b"))[..40].to_owned()]),
                End,
                Pass(500),
                Open,
                bytes(&[opening(1), frame(&delta(2, "b")), frame(&close(3))]),
            ],
        ),
        script(
            "a wait is not cut short",
            vec![Fail("refused"), Pass(499), Pass(1), Fail("refused"), Pass(999), Pass(1), Open],
        ),
        script(
            "a viewer attaches after a cursor",
            vec![Open, bytes(&[opening(2), frame(&close(3))])],
        )
        .attached_at("7c9e6679-7425-40de-944b-e07fc1f90ae7:2"),
        script("a viewer of a stream that is over", vec![Head { status: 204, content_type: "" }])
            .attached_at("7c9e6679-7425-40de-944b-e07fc1f90ae7:3"),
    ]
}

fn budgets() -> Vec<Script> {
    let fail = |wait| vec![Fail("refused"), Pass(wait)];
    let four: Vec<In> = [fail(500), fail(1000), fail(2000), fail(0)].concat();
    let progress = |seq| vec![Open, bytes(&[frame(&delta(seq, "a"))]), End, Pass(500)];
    let empty = || vec![Open, Bytes("retry: 0\n\n".into()), End, Pass(60_000)];
    vec![
        script("four failures are one too many", four),
        script("a new packet renews the budget", (1..6).flat_map(progress).collect()),
        script(
            "bodies that end at once use the budget up, retry: 0 or not",
            (0..4).flat_map(|_| empty()).collect(),
        ),
        script("retry: is a floor and stays", {
            let mut steps = vec![Open, Bytes("retry: 3000\n\n".into()), End, Pass(2999), Pass(1)];
            steps.extend([Fail("refused"), Pass(3000), Open]);
            steps
        }),
        script(
            "retry: is clamped to the longest wait",
            vec![Open, Bytes("retry: 999999999\n\n".into()), End],
        ),
        script("patience goes on while a deploy takes its time", {
            let mut steps = vec![Open, bytes(&[frame(&delta(1, "a"))]), End];
            steps.extend((0..6).flat_map(|_| [Pass(2000), Fail("refused")]));
            steps
        })
        .policy(|p| {
            p.resume_patience = Duration::from_secs(9);
            p.backoff.max = Duration::from_secs(2);
        }),
    ]
}

fn refuse(status: u16, retry_after: Option<&'static str>, body: &str) -> In {
    Refuse { status, retry_after, body: body.into() }
}

fn refusals() -> Vec<Script> {
    let problem = r#"{"type":"/errors/rate-limited","title":"Too many requests","status":429,"code":"rate_limit_exceeded","severity":"TRANSIENT","domain":"client","retryable":true,"retry_after":7}"#;
    let resumed = |status, retry_after| {
        vec![
            Open,
            bytes(&[frame(&delta(1, "a"))]),
            End,
            Pass(500),
            refuse(status, retry_after, ""),
            Pass(30_000),
        ]
    };
    vec![
        script("a refusal on the first connection is final", vec![refuse(429, Some("7"), problem)]),
        script("a refusal without a problem", vec![refuse(503, None, "<html>")]),
        script(
            "a refusal after a failed connection is still the first",
            vec![Fail("refused"), Pass(500), refuse(502, None, "")],
        ),
        script("a deploy in mid-stream is an interruption", resumed(503, Some("2"))),
        script("a bad gateway in mid-stream is an interruption", resumed(502, None)),
        script("a wait beyond the longest is not slept through", resumed(503, Some("31"))),
        script("a stream that is gone is final", resumed(410, None)),
        script("another content type", vec![Head { status: 200, content_type: "text/html" }]),
        script("a success without a stream", vec![Head { status: 204, content_type: "" }]),
        script(
            "a content type with parameters",
            vec![Head { status: 200, content_type: "Text/Event-Stream; charset=utf-8" }],
        ),
    ]
}

fn errors() -> Vec<Script> {
    let waits = |seq, retry_after| frame(&error(seq, "upstream_error", Transient, retry_after));
    let warning = |seq| frame(&error(seq, "upstream_error", Warning, None));
    let effective = |seq| vec![Open, bytes(&[waits(seq, None)]), End, Pass(500)];
    vec![
        script(
            "FATAL ends the call",
            vec![
                Open,
                bytes(&[
                    frame(&delta(1, "a")),
                    frame(&error(2, "content_refused", Fatal, None)),
                    frame(&close(3)),
                ]),
            ],
        ),
        script(
            "WARNING is told and handed out",
            vec![Open, bytes(&[warning(1), frame(&close(2))])],
        ),
        script(
            "a repeated WARNING is told once",
            vec![
                Open,
                bytes(&[warning(1)]),
                End,
                Pass(500),
                Open,
                bytes(&[warning(1), frame(&close(2))]),
            ],
        ),
        script(
            "a WARNING after a gap comes after the gap's notice",
            vec![Open, bytes(&[frame(&delta(1, "a")), warning(3), frame(&close(4))])],
        ),
        script(
            "a WARNING makes a TRANSIENT history",
            vec![Open, bytes(&[waits(1, None), warning(2), frame(&close(3))])],
        ),
        script(
            "TRANSIENT at the end of the body waits and comes back",
            vec![
                Open,
                bytes(&[waits(1, Some(2.0))]),
                End,
                Pass(1999),
                Pass(1),
                Open,
                bytes(&[opening(1), frame(&delta(2, "a")), frame(&close(3))]),
            ],
        ),
        script(
            "TRANSIENT that something follows is history",
            vec![Open, bytes(&[waits(1, Some(100.0)), frame(&delta(2, "a")), frame(&close(3))])],
        ),
        script(
            "TRANSIENT then CLOSE fails",
            vec![Open, bytes(&[waits(1, None), frame(&close(2))])],
        ),
        script(
            "TRANSIENT with a wait beyond the longest fails at once",
            vec![Open, bytes(&[waits(1, Some(100.0))]), End],
        ),
        script(
            "the fourth TRANSIENT that takes effect fails",
            (1..5).flat_map(effective).collect(),
        ),
        script(
            "a repeated TRANSIENT takes no effect",
            vec![
                Open,
                bytes(&[waits(1, None)]),
                End,
                Pass(500),
                Open,
                bytes(&[waits(1, None)]),
                End,
                Pass(500),
            ],
        ),
        script("malformed JSON", vec![Open, Bytes("data: {\n\n".into())]),
        script(
            "an unknown op",
            vec![Open, bytes(&[frame(&delta(1, "a")).replace("DELTA", "SHOUT")])],
        ),
        script(
            "an error that is a string",
            vec![Open, bytes(&[frame(&delta(1, "a")).replace("DELTA", "ERROR")])],
        ),
        script(
            "a negative seq",
            vec![Open, bytes(&[bare(&delta(1, "a")).replace("\"seq\":1", "\"seq\":-1")])],
        ),
    ]
}

fn repeats() -> Vec<Script> {
    let both = [frame(&delta(1, "a")), frame(&delta(2, "b"))];
    let gap =
        || vec![Open, bytes(&[frame(&delta(1, "a")), frame(&delta(4, "b")), frame(&close(5))])];
    let lost = error(3 + (1 << 20), "stream_lost", Fatal, None);
    vec![
        script(
            "repeats are dropped",
            vec![
                Open,
                bytes(&both),
                End,
                Pass(500),
                Open,
                bytes(&both),
                bytes(&[frame(&close(3))]),
            ],
        ),
        script(
            "a repeated CLOSE ends the call",
            vec![Open, bytes(&[frame(&close(3)), frame(&close(3))])],
        ),
        script(
            "CLOSE again after a cut",
            vec![
                Open,
                bytes(&[frame(&delta(1, "a"))]),
                End,
                Pass(500),
                Open,
                bytes(&[frame(&delta(1, "a")), frame(&close(2))]),
            ],
        ),
        script("a gap is a notice", gap()),
        script("a gap is an error in strict mode", gap()).policy(|p| p.is_strict = true),
        script(
            "the jump before stream_lost is none",
            vec![Open, bytes(&[frame(&delta(1, "a")), frame(&delta(2, "b")), frame(&lost)])],
        )
        .policy(|p| p.is_strict = true),
        script(
            "each stream has its own count",
            vec![
                Open,
                bytes(&[
                    frame(&delta(1, "a")),
                    frame(&delta(1, "b")).replace(STREAM, OTHER),
                    frame(&delta(2, "c")),
                    frame(&delta(1, "d")).replace(STREAM, OTHER),
                ]),
            ],
        ),
    ]
}

fn foreign_servers() -> Vec<Script> {
    let v2 = |text: &str| format!("data: {text}\n\n");
    let hello = v2(r#"{"op":"delta","p":"Hi","t":"2026-02-03T10:15:37Z"}"#);
    vec![
        script(
            "a server without ids is resumed by its stream",
            vec![
                Open,
                bytes(&[bare(&delta(1, "a"))]),
                End,
                Pass(500),
                Open,
                bytes(&[bare(&delta(1, "a")), bare(&close(2))]),
            ],
        ),
        script(
            "a server whose ids are bare",
            vec![
                Open,
                bytes(&[format!("id: {STREAM}\n{}", bare(&delta(1, "a")))]),
                Fail("reset"),
                Pass(500),
            ],
        ),
        script(
            "v2 without any place cannot be resumed",
            vec![Open, bytes(std::slice::from_ref(&hello)), End],
        )
        .policy(|p| p.profile = Profile::V2),
        script("v2 before its first packet can be tried again", vec![Open, End, Pass(500)])
            .policy(|p| p.profile = Profile::V2),
        script(
            "v2 with ids that carry a place can",
            vec![
                Open,
                bytes(&[format!("id: {STREAM}:1\n{hello}")]),
                End,
                Pass(500),
                Open,
                bytes(&[
                    format!("id: {STREAM}:1\n{hello}"),
                    format!(
                        "id: {STREAM}:2\n{}",
                        v2(r#"{"op":"close","t":"2026-02-03T10:15:37Z"}"#)
                    ),
                ]),
            ],
        )
        .policy(|p| p.profile = Profile::V2),
    ]
}

fn framing() -> Vec<Script> {
    let a = frame(&delta(1, "a"));
    vec![
        script(
            "a byte order mark and CRLF",
            vec![Open, bytes(&[format!("\u{feff}{}", a.replace('\n', "\r\n"))])],
        ),
        script(
            "frames of other names are skipped",
            vec![Open, Bytes("event: ping\ndata: {}\n\n".into()), bytes(std::slice::from_ref(&a))],
        ),
        script(
            "frames without data are skipped",
            vec![Open, Bytes("event: stream.packet\n\n".into()), bytes(&[a])],
        ),
    ]
}
