//! The head of a streamed response, and what its body opens with.

use crate::lab::Lab;
use crate::outcome::Outcome;

pub(crate) async fn answer(lab: &Lab) -> Outcome {
    let run = &lab.plain().await?.exchange;
    run.expect(run.is_stream(), "200 and a body of text/event-stream")
}

pub(crate) async fn cache_control(lab: &Lab) -> Outcome {
    let run = &lab.plain().await?.exchange;
    let value = run.header("cache-control").unwrap_or("none");
    let lists = |word: &str| value.split(',').any(|item| item.trim().eq_ignore_ascii_case(word));
    let is_so = lists("no-store") && lists("no-transform");
    if is_so {
        Ok(())
    } else {
        Err(run.broken("Cache-Control: no-store, no-transform", format!("Cache-Control: {value}")))
    }
}

pub(crate) async fn buffering(lab: &Lab) -> Outcome {
    let run = &lab.plain().await?.exchange;
    let value = run.header("x-accel-buffering").unwrap_or("none");
    if value == "no" {
        Ok(())
    } else {
        Err(run.broken("X-Accel-Buffering: no", format!("X-Accel-Buffering: {value}")))
    }
}

pub(crate) async fn compression(lab: &Lab) -> Outcome {
    let run = &lab.plain().await?.exchange;
    match run.header("content-encoding") {
        None | Some("identity") => Ok(()),
        Some(value) => {
            Err(run.broken("no Content-Encoding: server-sent events are never compressed", value))
        }
    }
}

/// The id of this request is plain and short, so the server must return it.
pub(crate) async fn request_id(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let ours = run
        .ask
        .headers
        .iter()
        .find(|(name, _)| *name == "x-request-id")
        .map_or("", |(_, id)| id.as_str());
    let came = run.exchange.header("x-request-id").unwrap_or("none");
    if came == ours {
        Ok(())
    } else {
        Err(run.exchange.broken(format!("X-Request-ID: {ours}"), format!("X-Request-ID: {came}")))
    }
}

pub(crate) async fn stream_id(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let expected =
        run.packets().first().and_then(|frame| frame.text("stream_id")).unwrap_or_default();
    let came = run.exchange.header("x-stream-id").unwrap_or("none");
    if came == expected {
        Ok(())
    } else {
        Err(run.exchange.broken(format!("X-Stream-ID: {expected}"), format!("X-Stream-ID: {came}")))
    }
}

pub(crate) async fn opening(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let id = format!("{}:0", run.stream()?);
    let Some(first) = run.frames.first() else {
        return Err(run.exchange.broken("a frame", run.exchange.summary()));
    };
    let is_so =
        !first.has_data() && first.field("retry") == Some("500") && first.field("id") == Some(&id);
    let expected = format!("at first `retry: 500` and a frame that is only `id: {id}`");
    if is_so { Ok(()) } else { Err(run.exchange.broken(expected, &first.raw)) }
}
