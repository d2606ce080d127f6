//! The WHATWG rules for server-sent events, told as plainly as they can be: whole text in, no
//! thought of speed.

use std::time::Duration;

/// What a reader has when the body ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Name, data, and the last id at the moment of each event.
    pub events: Vec<(String, String, Option<String>)>,
    pub id: Option<String>,
    pub retry: Option<Duration>,
}

pub(crate) fn read(bytes: &[u8]) -> Reading {
    let text = String::from_utf8_lossy(bytes);
    let text =
        text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    // What follows the last line end, and the last blank line, is cut off.
    let (lines, _) = text.rsplit_once('\n').unwrap_or_default();
    let (mut reading, mut name, mut data, mut id) = (Reading::default(), "", String::new(), None);
    for line in lines.split('\n') {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() => {
                reading.id = id.clone();
                if let Some(data) = data.strip_suffix('\n') {
                    let name = if name.is_empty() { "message" } else { name };
                    reading.events.push((name.to_owned(), data.to_owned(), id.clone()));
                }
                (name, data) = ("", String::new());
            }
            "event" => name = value,
            "data" => data += &format!("{value}\n"),
            "id" if !value.contains('\0') => id = Some(value.to_owned()),
            "retry" if value.bytes().all(|b| b.is_ascii_digit()) => {
                reading.retry = value.parse().ok().map(Duration::from_millis).or(reading.retry);
            }
            _ => {}
        }
    }
    reading
}
