//! Reads documents in one of three framings and writes a verdict for each.

use std::io::{self, BufRead, BufReader, Read, Write};

use capstan_protocol::assistant::{Frame, Line};
use capstan_protocol::model::{self, Model};
use capstan_protocol::sse::{self, Decoder};
use capstan_protocol::{DecodeError, DecodeErrorKind, Profile};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The framing of documents.
pub(super) enum Judge {
    /// JSON lines of one model.
    Model(&'static Model),
    /// An SSE body of packets.
    Sse(Profile),
    /// The lines of an agent CLI.
    StreamJson,
}

impl Judge {
    /// Judges all documents. Returns whether it refused any.
    pub(super) fn read(&self, input: impl Read, out: &mut impl Write) -> io::Result<bool> {
        match self {
            Self::Model(model) => {
                each_line(input, out, |line| model.canonical(line).map(|value| accepted(&value)))
            }
            Self::StreamJson => each_line(input, out, stream_json),
            Self::Sse(profile) => sse_body(*profile, input, out),
        }
    }
}

/// Lines end at LF only: U+2028 and similar characters may appear in JSON strings.
fn each_line(
    input: impl Read,
    out: &mut impl Write,
    judge: impl Fn(&str) -> Result<String, DecodeError>,
) -> io::Result<bool> {
    let mut input = BufReader::new(input);
    let (mut line, mut refused) = (Vec::new(), false);
    while input.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            line.pop();
        }
        let verdict = match std::str::from_utf8(&line) {
            Ok(text) => judge(text),
            Err(e) => Err(syntax(format!("not UTF-8 at byte {}", e.valid_up_to()))),
        };
        refused |= write_verdict(out, verdict)?;
        line.clear();
    }
    Ok(refused)
}

fn syntax(what: impl Into<String>) -> DecodeError {
    DecodeError::new(DecodeErrorKind::Syntax, "", what)
}

fn accepted(value: &str) -> String {
    format!(r#"{{"ok":true,"value":{value}}}"#)
}

fn write_verdict(out: &mut impl Write, verdict: Result<String, DecodeError>) -> io::Result<bool> {
    match verdict {
        Ok(line) => writeln!(out, "{line}").map(|()| false),
        Err(e) => {
            writeln!(out, "{}", json!({ "ok": false, "error": e.to_string() })).map(|()| true)
        }
    }
}

/// Judges a frame of an agent CLI. It ignores other lines between frames, as readers do.
fn stream_json(line: &str) -> Result<String, DecodeError> {
    let object = match Line::decode(line)? {
        Line::Object(object) => object,
        Line::Noise => return noise(line),
    };
    let frame = Frame::from_object(&object)?;
    let (error, text) = match &frame {
        Frame::Assistant(message) => {
            (message.error.as_ref().map(|e| e.as_str().to_owned()), Some(message.text()))
        }
        Frame::Unknown(kind) => {
            return Ok(
                json!({ "ok": true, "type": null, "error": null, "text": null, "ignored": kind })
                    .to_string(),
            );
        }
        Frame::User(_)
        | Frame::System(_)
        | Frame::Result(_)
        | Frame::StreamEvent(_)
        | Frame::RateLimit(_)
        | Frame::ConversationReset => (None, None),
    };
    Ok(json!({ "ok": true, "type": frame.class(), "error": error, "text": text }).to_string())
}

/// A JSON value that is not an object is no frame; any other line is a log line.
fn noise(line: &str) -> Result<String, DecodeError> {
    match serde_json::from_str::<Value>(line.trim()) {
        Ok(_) => Err(DecodeError::value("", "expected an object with a type")),
        Err(_) => {
            Ok(json!({ "ok": true, "type": null, "error": null, "text": null, "ignored": "noise" })
                .to_string())
        }
    }
}

fn sse_body(profile: Profile, mut input: impl Read, out: &mut impl Write) -> io::Result<bool> {
    let model =
        model::find(profile, "StreamPacket").ok_or_else(|| io::Error::other("no packet model"))?;
    let mut decoder = Decoder::new();
    let (mut chunk, mut frames, mut refused) = (vec![0; 64 * 1024], 0, false);
    loop {
        while let Some(frame) = decoder.next_frame() {
            frames += 1;
            let verdict = match frame {
                Ok(frame) => packet(model, &frame),
                Err(e) => {
                    write_verdict(
                        out,
                        Err(syntax(e.to_string())).map_err(|e| in_frame(e, frames)),
                    )?;
                    return Ok(true);
                }
            };
            refused |= write_verdict(out, verdict.map_err(|e| in_frame(e, frames)))?;
        }
        let read = input.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        decoder.push(chunk.get(..read).unwrap_or_default());
    }
    if decoder.is_mid_frame() {
        refused |= write_verdict(
            out,
            Err(in_frame(syntax("cut off by the end of the body"), frames + 1)),
        )?;
    }
    Ok(refused)
}

/// It shows the data of events other than packets unchanged.
fn packet(model: &Model, frame: &sse::Frame<'_>) -> Result<String, DecodeError> {
    if frame.event != sse::EVENT_NAME && frame.event != "message" {
        return Ok(json!({ "ok": true, "event": frame.event, "ignored": "not a stream.packet" })
            .to_string());
    }
    let value = model.canonical(&frame.data)?;
    // The canonical text is valid JSON; a raw value keeps its bytes.
    let raw = RawValue::from_string(value).map_err(|e| syntax(e.to_string()))?;
    Ok(accepted(raw.get()))
}

fn in_frame(error: DecodeError, number: usize) -> DecodeError {
    error.inside(&format!("frame[{number}]"))
}
