//! A run that fails: its error in the stream and in JSON mode.

use capstan_protocol::{ErrorSeverity, FaultKind, StreamError, decode};

use crate::frames::Frame;
use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::recording::Recording;

/// The last ERROR of the run, and what follows it.
fn last_error(run: &Recording) -> Result<(&Frame, Vec<&Frame>), NotPassed> {
    let packets = run.packets();
    let is_error = |frame: &&Frame| frame.text("op").as_deref() == Some("ERROR");
    let at = packets
        .iter()
        .rposition(is_error)
        .ok_or_else(|| NotPassed::skip("the fault query did not fail"))?;
    let (before, after) = packets.split_at_checked(at + 1).unwrap_or((&packets, &[]));
    let error =
        before.last().copied().ok_or_else(|| NotPassed::skip("the fault query did not fail"))?;
    Ok((error, after.to_vec()))
}

fn typed(frame: &Frame) -> Result<StreamError, String> {
    let p = frame.json().get("p").cloned().unwrap_or_default();
    decode::from_value(&p).map_err(|error| error.to_string())
}

fn error_of(frame: &Frame) -> Result<StreamError, NotPassed> {
    typed(frame).map_err(|_| NotPassed::skip("needs cap.error"))
}

pub(crate) async fn error(lab: &Lab) -> Outcome {
    let run = lab.fault().await?;
    let (error, _) = last_error(run)?;
    match typed(error) {
        Ok(_) => Ok(()),
        Err(why) => {
            Err(run.exchange.broken(format!("a StreamError object; p.{why}"), error.data()))
        }
    }
}

pub(crate) async fn code(lab: &Lab) -> Outcome {
    let run = lab.fault().await?;
    let (frame, _) = last_error(run)?;
    let code = error_of(frame)?.code;
    let is_so = code.starts_with(|c: char| c.is_ascii_lowercase())
        && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_so { Ok(()) } else { Err(run.exchange.broken("a code in snake_case", code)) }
}

pub(crate) async fn close(lab: &Lab) -> Outcome {
    let run = lab.fault().await?;
    let (frame, after) = last_error(run)?;
    if error_of(frame)?.severity != ErrorSeverity::Fatal {
        return Err(NotPassed::skip("the fault query did not fail for good"));
    }
    let ops: Vec<String> = after.iter().map(|frame| frame.text("op").unwrap_or_default()).collect();
    if ops == ["CLOSE"] {
        Ok(())
    } else {
        Err(run
            .exchange
            .broken("CLOSE after an ERROR that is FATAL", format!("after it: {}", ops.join(" "))))
    }
}

/// The same fault in JSON mode.
pub(crate) async fn problem(lab: &Lab) -> Outcome {
    let run = lab.fault().await?;
    let error = error_of(last_error(run)?.0)?;
    let known = FaultKind::parse(&error.code).filter(|kind| kind.entry().code == error.code);
    let exchange = lab.send(&lab.ask(&run.question).header("accept", "application/json")).await?;
    let is_status =
        known.map_or(exchange.status >= 400, |kind| exchange.status == kind.entry().status);
    let status =
        known.map_or_else(|| "an error's status".into(), |kind| kind.entry().status.to_string());
    let is_so = is_status && exchange.code().as_ref() == Some(&error.code);
    exchange.expect(is_so, format!("{status} and a problem with the code {}", error.code))?;
    lab.note_refusal(exchange);
    Ok(())
}
