//! Resuming a run of AG-UI.

use super::stream::is_terminal;
use crate::cap::resume::spread;
use crate::cap::start::compare;
use crate::cap::watch;
use crate::frames::Frame;
use crate::lab::{Lab, share};
use crate::outcome::{NotPassed, Outcome};
use crate::recording::AguiResumed;
use crate::wire::{Ask, Exchange};

async fn resumed(lab: &Lab) -> Result<&Vec<AguiResumed>, NotPassed> {
    let make = Box::pin(async {
        let run = lab.agui_plain().await?;
        let packets = run.packets();
        let mut all = Vec::new();
        for at in spread(packets.len()) {
            let Some(id) = packets.get(at).and_then(|frame| frame.field("id")) else { continue };
            all.push(AguiResumed {
                had: at + 1,
                exchange: lab.send(&lab.ask_agui(&run.question).after(id)).await?,
            });
        }
        Ok(all)
    });
    share(&lab.agui_resumed, make).await
}

fn events(exchange: &Exchange) -> Vec<Frame> {
    exchange.frames().frames.into_iter().filter(Frame::has_data).collect()
}

fn same(exchange: &Exchange, expected: &[&str]) -> Outcome {
    exchange.expect(exchange.is_stream(), "200 and a stream")?;
    let events = events(exchange);
    compare(exchange, expected, &events.iter().map(|frame| frame.raw.as_str()).collect::<Vec<_>>())
}

pub(crate) async fn resume(lab: &Lab) -> Outcome {
    let all = lab.agui_plain().await?.raw();
    resumed(lab)
        .await?
        .iter()
        .try_for_each(|one| same(&one.exchange, all.get(one.had..).unwrap_or_default()))
}

/// The terminal event comes again without an id, because ids do not repeat.
pub(crate) async fn past_end(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let packets = run.packets();
    let Some((last, id)) = packets.last().and_then(|frame| Some((*frame, frame.field("id")?)))
    else {
        return Ok(());
    };
    let exchange = lab.send(&lab.ask_agui(&run.question).after(id)).await?;
    let came = events(&exchange);
    let is_so = matches!(came.as_slice(),
    [only] if only.field("id").is_none() && only.json() == last.json());
    exchange.expect(is_so, format!("the terminal event again, without an id: {}", last.data()))
}

/// Without a cursor the same request attaches, and its stream ends like the run.
pub(crate) async fn attach(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let exchange = lab.send(&lab.ask_agui(&run.question)).await?;
    let (first, again) = (run.exchange.header("x-stream-id"), exchange.header("x-stream-id"));
    let came = format!("X-Stream-ID: {}", again.unwrap_or("none"));
    if first != again {
        return Err(exchange
            .broken(format!("the same run, X-Stream-ID: {}", first.unwrap_or("none")), came));
    }
    exchange.expect(events(&exchange).last().is_some_and(is_terminal), "a terminal event at last")
}

/// Joining a run as TanStack does.
pub(crate) async fn join(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let exchange =
        lab.send(&Ask::get(format!("{}?runId={}&offset=-1", lab.agui, run.question.id))).await?;
    same(&exchange, &run.raw())
}

/// A stream that was started in CAP, watched in AG-UI: the text is the same.
pub(crate) async fn other_face(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let cursor = format!("{}:0", run.stream()?);
    let exchange = lab
        .send(&Ask::get(format!("{}?face=ag-ui", watch::path(run.stream()?))).after(cursor))
        .await?;
    exchange.expect(exchange.is_stream(), "200 and a stream of events")?;
    let text: String = events(&exchange).iter().filter_map(|frame| frame.text("delta")).collect();
    let expected = run.transcript()?;
    if text == expected.text() {
        Ok(())
    } else {
        Err(exchange.broken(format!("the same text: {}", expected.text()), text))
    }
}
