//! Frames and packets of one stream.

use capstan_protocol::{StreamPacket, Timestamp};

use crate::frames::Frame;
use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::recording::Recording;
use crate::wire::End;

/// Fails at the first packet that does not fulfil the condition.
fn each(run: &Recording, expected: &str, is_so: impl Fn(&Frame) -> bool) -> Outcome {
    match run.packets().into_iter().find(|frame| !is_so(frame)) {
        None => Ok(()),
        Some(frame) => Err(run.exchange.broken(expected, &frame.raw)),
    }
}

pub(crate) async fn lines(lab: &Lab) -> Outcome {
    let run = &lab.plain().await?.exchange;
    match run.body.iter().position(|byte| *byte == b'\r') {
        None => Ok(()),
        Some(at) => {
            let near = run.body.get(at.saturating_sub(80)..=at).unwrap_or_default();
            Err(run.broken("lines that end in LF alone", String::from_utf8_lossy(near)))
        }
    }
}

pub(crate) async fn frames(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    each(run, "event, id and one data line, in this order", |frame| {
        frame.fields.iter().map(|(name, _)| name.as_str()).eq(["event", "id", "data"])
    })
}

pub(crate) async fn event_name(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    each(run, "event: stream.packet", |frame| frame.field("event") == Some("stream.packet"))
}

pub(crate) async fn ids(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    each(run, "id: <stream_id>:<seq>, as the packet has them", |frame| {
        let json = frame.json();
        let (stream, seq) = (
            json.get("stream_id").and_then(|s| s.as_str()),
            json.get("seq").and_then(|s| s.as_u64()),
        );
        let (Some(stream), Some(seq)) = (stream, seq) else { return true };
        frame.field("id") == Some(&format!("{stream}:{seq}"))
    })
}

/// Characters at which some readers split lines.
const SEPARATORS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

pub(crate) async fn separators(lab: &Lab) -> Outcome {
    judge_separators(lab.plain().await?)
}

pub(crate) fn judge_separators(run: &Recording) -> Outcome {
    each(run, "U+0085, U+2028 and U+2029 escaped", |frame| !frame.raw.contains(SEPARATORS))?;
    let has_separators =
        run.packets().iter().any(|frame| frame.json().to_string().contains(SEPARATORS));
    if has_separators {
        Ok(())
    } else {
        Err(NotPassed::skip(
            "the agent repeated none of them; use --query with some that it \
            repeats",
        ))
    }
}

pub(crate) async fn packets(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    if run.packets().is_empty() {
        return Err(run.exchange.broken("packets", run.exchange.summary()));
    }
    for frame in run.packets() {
        if let Err(error) = StreamPacket::decode_strict(frame.data()) {
            return Err(run
                .exchange
                .broken(format!("a strict packet of profile v1; {error}"), frame.data()));
        }
    }
    Ok(())
}

pub(crate) async fn one_stream(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let stream = run.stream()?.to_string();
    each(run, &format!("stream_id {stream} in every packet"), |frame| {
        frame.text("stream_id").as_ref() == Some(&stream)
    })
}

pub(crate) async fn seq(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let seqs = run.seqs()?;
    if seqs.iter().copied().eq(1..=seqs.len() as u64) {
        Ok(())
    } else {
        Err(run.exchange.broken("seq from 1 without gaps", format!("seq {seqs:?}")))
    }
}

/// RFC 3339 in UTC, six digits of fraction or none.
pub(crate) async fn time(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    each(run, "t in RFC 3339 with six digits of fraction or none, and Z", |frame| {
        let Some(t) = frame.text("t") else { return true };
        let fraction = t.split_once('.').map(|(_, fraction)| fraction.len());
        Timestamp::parse(&t).is_some() && t.ends_with('Z') && matches!(fraction, None | Some(7))
    })
}

pub(crate) async fn close(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let ops: Vec<String> =
        run.packets().iter().map(|frame| frame.text("op").unwrap_or_default()).collect();
    let closes = ops.iter().filter(|op| *op == "CLOSE").count();
    let is_so = closes == 1 && ops.last().is_some_and(|op| op == "CLOSE");
    if is_so {
        Ok(())
    } else {
        Err(run.exchange.broken("exactly one CLOSE, and nothing after it", ops.join(" ")))
    }
}

pub(crate) async fn end(lab: &Lab) -> Outcome {
    judge_end(lab.plain().await?)
}

pub(crate) fn judge_end(run: &Recording) -> Outcome {
    if run.exchange.end != End::Clean {
        return Err(run.exchange.broken("a body that ends", &run.exchange.end));
    }
    let is_so = run.rest.is_empty();
    if is_so {
        Ok(())
    } else {
        Err(run.exchange.broken("a body that ends at a frame's end", &run.rest))
    }
}
