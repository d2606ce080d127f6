//! Viewers: any number of them attach to a stream by GET.

use capstan_protocol::{Cursor, StreamPacket, v2};
use uuid::Uuid;

use super::resume::same_tail;
use super::start::same;
use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::wire::{Ask, Exchange};

pub(crate) fn path(stream: Uuid) -> String {
    format!("/v1/streams/{stream}")
}

/// A server without this route gives another answer than for an unknown stream.
fn offered(exchange: &Exchange) -> Outcome {
    let is_absent = matches!(exchange.status, 404 | 405)
        && exchange.code().as_deref() != Some("stream_not_found");
    if is_absent {
        Err(NotPassed::skip("not offered: GET /v1/streams/{stream_id}"))
    } else {
        Ok(())
    }
}

pub(crate) async fn watch(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let exchange = lab.send(&Ask::get(path(run.stream()?))).await?;
    offered(&exchange)?;
    same(&exchange, run)
}

pub(crate) async fn end(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let (stream, last) = (run.stream()?, run.seqs()?.last().copied().unwrap_or_default());
    let exchange = lab.send(&Ask::get(path(stream)).after(Cursor::new(stream, last))).await?;
    exchange.expect(exchange.status == 204, "204, at which an EventSource stops")
}

pub(crate) async fn unknown(lab: &Lab) -> Outcome {
    lab.refused(&Ask::get(path(Uuid::now_v7())), 404, "stream_not_found").await
}

pub(crate) async fn unknown_stop(lab: &Lab) -> Outcome {
    lab.refused(&Ask::delete(path(Uuid::now_v7())), 404, "stream_not_found").await
}

pub(crate) async fn after(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let url = format!("{}?after=2", path(run.stream()?));
    same_tail(&lab.send(&Ask::get(url)).await?, run, 2)
}

/// An EventSource repeats its URL, so its header is newer.
pub(crate) async fn header_wins(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let stream = run.stream()?;
    let url = format!("{}?after=0", path(stream));
    // After the first packet: a short answer has no fourth.
    same_tail(&lab.send(&Ask::get(url).after(Cursor::new(stream, 1))).await?, run, 1)
}

/// The stream in profile v2: the same text, in packets with the same seq.
pub(crate) async fn profile(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let url = format!("{}?profile=v2", path(run.stream()?));
    let exchange = lab.send(&Ask::get(url)).await?;
    let text = read_v2(&exchange)?;
    let expected = run.transcript()?;
    if text == expected.text() {
        Ok(())
    } else {
        Err(exchange.broken(format!("the same text: {}", expected.text()), text))
    }
}

/// The text of a body in profile v2. Checks every packet.
pub(crate) fn read_v2(exchange: &Exchange) -> Result<String, NotPassed> {
    exchange.expect(exchange.is_stream(), "200 and a stream in profile v2")?;
    let (mut text, mut has_close) = (String::new(), false);
    for frame in exchange.frames().frames.iter().filter(|frame| frame.has_data()) {
        let wrong =
            |why: String| exchange.broken(format!("a packet of profile v2; {why}"), frame.data());
        let packet =
            v2::StreamPacket::decode(frame.data()).map_err(|error| wrong(error.to_string()))?;
        if StreamPacket::decode(frame.data()).is_ok()
            || packet.stream_id.is_none()
            || packet.seq.is_none()
            || packet.t.is_none()
        {
            return Err(wrong("with stream_id, seq and t".into()));
        }
        match packet.payload {
            capstan_protocol::Payload::Delta(delta) => text.push_str(&delta),
            capstan_protocol::Payload::Close(_) => has_close = true,
            capstan_protocol::Payload::Event(_) | capstan_protocol::Payload::Error(_) => {}
        }
    }
    exchange.expect(has_close, "a close at the end")?;
    Ok(text)
}
