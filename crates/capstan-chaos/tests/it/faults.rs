//! Each fault alone, in the bytes that a client gets.

use std::io::ErrorKind;
use std::time::Duration;

use crate::common::{OPENING, PACKETS, Proxy, Upstream, body, proxy, stream};
use capstan_chaos::{
    After, At, Cut, Delay, Drip, End, Faults, Refuse, Repeat, Stall, Tally, Then, Throttle, When,
    With,
};
use tokio::time::Instant;

fn after(packets: u64) -> After {
    After::Packets(packets..=packets)
}

fn cut(after: After, at: At, with: With) -> Faults {
    Faults { cut: Cut { rate: 1.0, after, at, with }, ..Faults::none() }
}

fn seconds(seconds: u64) -> std::ops::RangeInclusive<Duration> {
    Duration::from_secs(seconds)..=Duration::from_secs(seconds)
}

#[tokio::test]
async fn without_faults_a_body_passes_unchanged() {
    let proxy = proxy(Faults::none()).await;
    let answer = proxy.get().await;
    assert_eq!(answer.text(), body());
    assert!(answer.head().starts_with("HTTP/1.1 200 OK\r\n"), "{}", answer.head());
    assert!(answer.head().contains("x-stream-id: s\r\n"));
    let tally = Tally { connections: 1, streams: 1, packets: 3, ..Tally::default() };
    assert_eq!(proxy.handle.tally(), tally);
}

#[tokio::test]
async fn a_cut_falls_right_behind_a_packet() {
    let answer = proxy(cut(after(2), At::Exact, With::Fin)).await.get().await;
    assert_eq!(answer.end, Ok(()));
    let expected = format!("{OPENING}{}{}", PACKETS[0], PACKETS[1]);
    assert_eq!(answer.dechunk(), (expected.into_bytes(), false));
}

#[tokio::test]
async fn a_cut_falls_after_an_exact_number_of_bytes() {
    for bytes in [0, 1, 20, 33] {
        let answer =
            proxy(cut(After::Bytes(bytes..=bytes), At::Exact, With::Fin)).await.get().await;
        assert_eq!(answer.dechunk(), (body().as_bytes()[..bytes as usize].to_vec(), false));
    }
}

#[tokio::test]
async fn a_cut_falls_inside_a_frame() {
    let answer = proxy(cut(after(1), At::Frame, With::Fin)).await.get().await;
    let (data, is_whole) = answer.dechunk();
    let whole = OPENING.len() + PACKETS[0].len();
    assert!(
        !is_whole && data.len() > whole && data.len() < whole + PACKETS[1].len(),
        "{}",
        data.len()
    );
    assert!(body().as_bytes().starts_with(&data));
}

#[tokio::test]
async fn a_cut_falls_inside_a_character() {
    let answer = proxy(cut(after(0), At::Character, With::Fin)).await.get().await;
    let (data, is_whole) = answer.dechunk();
    let error = std::str::from_utf8(&data).unwrap_err();
    assert_eq!((is_whole, error.error_len(), error.valid_up_to()), (false, None, data.len() - 1));
    assert!(body().as_bytes().starts_with(&data));
}

#[tokio::test]
async fn a_cut_falls_before_the_head() {
    let answer = proxy(cut(after(0), At::Head, With::Fin)).await.get().await;
    assert_eq!((answer.bytes.as_slice(), answer.end), (b"".as_slice(), Ok(())));
    let answer = proxy(cut(after(0), At::Head, With::Reset)).await.get().await;
    assert_eq!(
        (answer.bytes.as_slice(), answer.end),
        (b"".as_slice(), Err(ErrorKind::ConnectionReset))
    );
}

#[tokio::test]
async fn a_reset_is_seen_as_one() {
    let proxy = proxy(cut(after(1), At::Exact, With::Reset)).await;
    let answer = proxy.get().await;
    assert_eq!(answer.end, Err(ErrorKind::ConnectionReset));
    assert_eq!(proxy.handle.tally().cuts, 1);
}

#[tokio::test]
async fn a_clean_end_is_a_well_formed_body_without_the_rest() {
    let end = End { rate: 1.0, after: after(2) };
    let proxy = proxy(Faults { end, ..Faults::none() }).await;
    assert_eq!(proxy.get().await.text(), format!("{OPENING}{}{}", PACKETS[0], PACKETS[1]));
    assert_eq!(proxy.handle.tally().ends, 1);
}

#[tokio::test]
async fn a_clean_end_waits_for_a_frame_boundary() {
    let end = End { rate: 1.0, after: After::Bytes(30..=30) };
    let answer = proxy(Faults { end, ..Faults::none() }).await.get().await;
    assert_eq!(answer.text(), format!("{OPENING}{}", PACKETS[0]));
}

#[tokio::test]
async fn a_refusal_says_when_to_come_back_and_is_not_forwarded() {
    let upstream = Upstream::start(stream(&body())).await;
    let refuse = Refuse { rate: 1.0, statuses: vec![503], retry_after: Some(7), when: When::Any };
    let proxy = Proxy::start(upstream.address, Faults { refuse, ..Faults::none() }).await;
    // The body is larger than what is read with the head: it must not turn the answer into a reset.
    let post = format!("POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n{}", "x".repeat(100_000));
    let answer = proxy.send(&post).await;
    assert_eq!(answer.end, Ok(()));
    assert!(answer.head().starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{}", answer.head());
    assert!(answer.head().contains("retry-after: 7\r\n"));
    assert_eq!(upstream.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_first_connect_can_be_spared_from_refusals() {
    let refuse = Refuse { rate: 1.0, statuses: vec![502], retry_after: None, when: When::Resuming };
    let proxy = proxy(Faults { refuse, ..Faults::none() }).await;
    assert_eq!(proxy.get().await.text(), body());
    assert!(proxy.resume("s:1").await.head().starts_with("HTTP/1.1 502 Bad Gateway\r\n"));
}

#[tokio::test]
async fn repeats_are_exact_copies_of_what_the_client_has_seen() {
    let repeat = Repeat { rate: 1.0, packets: 2 };
    let faults = Faults { repeat, budget: Some(3), ..cut(after(2), At::Frame, With::Fin) };
    let proxy = proxy(faults).await;
    assert!(!proxy.get().await.dechunk().1);
    // The client has seen both packets, or only one. The proxy never repeats one that it has not
    // seen.
    let again = format!("{}{}{OPENING}{}{}", PACKETS[0], PACKETS[1], PACKETS[0], PACKETS[1]);
    let (data, is_whole) = proxy.resume("s:2").await.dechunk();
    assert!(data.starts_with(again.as_bytes()) && !is_whole);
    assert_eq!(proxy.handle.tally().repeats, 1);
    assert_eq!(proxy.resume("s:1").await.text(), body(), "the budget is spent");
}

#[tokio::test]
async fn nothing_is_repeated_beyond_the_cursor_or_to_a_stranger() {
    let repeat = Repeat { rate: 1.0, packets: 9 };
    let faults = Faults { repeat, ..cut(after(2), At::Exact, With::Fin) };
    let proxy = proxy(faults).await;
    let cut_body = format!("{OPENING}{}{}", PACKETS[0], PACKETS[1]);
    let data =
        async |cursor: &str| String::from_utf8(proxy.resume(cursor).await.dechunk().0).unwrap();
    assert_eq!(data("s:2").await, cut_body, "nothing has passed before");
    assert_eq!(data("s:1").await, format!("{}{cut_body}", PACKETS[0]));
    assert_eq!(data("s").await, cut_body);
    assert_eq!(data("other:1").await, cut_body);
}

#[tokio::test]
async fn single_bytes_arrive_whole() {
    let proxy = proxy(Faults { drip: Drip { rate: 1.0 }, ..Faults::none() }).await;
    assert_eq!(proxy.get().await.text(), body());
    assert_eq!(proxy.handle.tally().drips, 1);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_body_takes_its_time_and_arrives_whole() {
    let throttle = Throttle { rate: 1.0, bytes_per_second: 10 };
    let proxy = proxy(Faults { throttle, ..Faults::none() }).await;
    let start = Instant::now();
    let answer = proxy.get().await;
    assert_eq!(answer.text(), body());
    // The first pieces go out at once, so that the last ones' wait may not be seen.
    assert!(
        start.elapsed().as_secs() >= answer.bytes.len() as u64 / 10 - 1,
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_delayed_response_comes_late_and_whole() {
    let delay = Delay { rate: 1.0, time: seconds(3600) };
    let proxy = proxy(Faults { delay, ..Faults::none() }).await;
    let start = Instant::now();
    assert_eq!(proxy.get().await.text(), body());
    assert!(start.elapsed() >= Duration::from_secs(3600));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_goes_on_after_a_while() {
    let stall = Stall {
        rate: 1.0,
        after: After::Bytes(30..=30),
        time: seconds(3600),
        then: Then::Continue,
    };
    let proxy = proxy(Faults { stall, ..Faults::none() }).await;
    let start = Instant::now();
    assert_eq!(proxy.get().await.text(), body());
    assert!(start.elapsed() >= Duration::from_secs(3600));
    assert_eq!(proxy.handle.tally().stalls, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_can_be_cut_thereafter() {
    let stall = Stall { rate: 1.0, after: after(1), time: seconds(3600), then: Then::Cut };
    let proxy = proxy(Faults { stall, ..Faults::none() }).await;
    let start = Instant::now();
    let answer = proxy.get().await;
    assert_eq!(answer.end, Err(ErrorKind::ConnectionReset));
    assert!(start.elapsed() >= Duration::from_secs(3600));
    assert_eq!((proxy.handle.tally().stalls, proxy.handle.tally().faults()), (1, 1));
}

#[tokio::test]
async fn the_same_seed_breaks_in_the_same_way() {
    let faults = Faults {
        cut: Cut { rate: 0.5, after: After::Bytes(0..=100), at: At::Any, with: With::Any },
        end: End { rate: 0.5, after: After::Packets(0..=2) },
        refuse: Refuse { rate: 0.2, ..Faults::none().refuse },
        ..Faults::none()
    };
    let run = async || {
        let proxy = proxy(faults.clone()).await;
        let mut answers = Vec::new();
        for _ in 0..20 {
            answers.push(proxy.get().await);
        }
        (answers, proxy.handle.tally())
    };
    let (answers, tally) = run().await;
    assert!(tally.cuts > 0 && tally.ends > 0 && tally.refusals > 0, "{tally:?}");
    let (again, tally_again) = run().await;
    assert_eq!(tally, tally_again);
    for (one, other) in answers.iter().zip(&again) {
        assert_eq!((one.end, one.bytes.is_empty()), (other.end, other.bytes.is_empty()));
        if one.bytes.starts_with(b"HTTP/1.1 200") {
            assert_eq!(one.dechunk(), other.dechunk());
        }
    }
}

#[tokio::test]
async fn a_spent_budget_ends_the_faults() {
    let proxy = proxy(Faults { budget: Some(2), ..cut(after(1), At::Exact, With::Fin) }).await;
    let mut whole = Vec::new();
    for _ in 0..4 {
        whole.push(proxy.get().await.dechunk().1);
    }
    assert_eq!(whole, [false, false, true, true]);
    assert_eq!(proxy.handle.tally().faults(), 2);
}

#[tokio::test]
async fn the_first_streams_can_be_spared() {
    let proxy = proxy(Faults { spare: 1, ..cut(after(1), At::Exact, With::Fin) }).await;
    assert_eq!((proxy.get().await.dechunk().1, proxy.get().await.dechunk().1), (true, false));
}
