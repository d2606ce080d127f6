//! Finds the model that a request names, and its place in the body.

use std::ops::Range;

use axum::body::BodyDataStream;
use bytes::{Bytes, BytesMut};
use capstan_protocol::{Fault, FaultKind};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;

/// How far a form is searched for its model. Clients put short fields before files.
const BEGINNING: usize = 64 * 1024;

/// Whether a body is JSON.
pub(super) fn is_json(kind: &str) -> bool {
    essence(kind).eq_ignore_ascii_case("application/json")
}

fn essence(kind: &str) -> &str {
    kind.split(';').next().unwrap_or_default().trim()
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
}

type Found = (Option<String>, Option<Range<usize>>);

/// The model of a JSON object. Other members are not checked.
pub(super) fn in_json(body: &[u8]) -> Result<Found, Fault> {
    let refused = |what: &str| {
        Fault::new(FaultKind::InvalidRequest).with_message(format!("document: {what}"))
    };
    let wrong = |error: serde_json::Error| refused(&error.to_string());
    // serde would read a list as the members in their order.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(refused("expected an object, found an array"));
    }
    let named: Named<'_> = serde_json::from_slice(body).map_err(wrong)?;
    let Some(raw) = named.model.map(RawValue::get) else { return Ok((None, None)) };
    let Ok(model) = serde_json::from_str::<String>(raw) else { return Ok((None, None)) };
    // The value is a slice of the body.
    let start = (raw.as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
    Ok((Some(model), Some(start..start + raw.len())))
}

/// The boundary of a form.
pub(super) fn boundary(kind: &str) -> Option<String> {
    if !essence(kind).eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let (_, value) = kind
        .split(';')
        .skip(1)
        .filter_map(|parameter| parameter.trim().split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("boundary"))?;
    let value = value.trim_matches('"');
    (!value.is_empty()).then(|| value.to_owned())
}

/// The beginning of a form: up to its model, or up to the limit.
pub(super) async fn beginning(body: &mut BodyDataStream, boundary: &str) -> Result<Bytes, Fault> {
    let mut begun = BytesMut::new();
    while begun.len() < BEGINNING && in_form(&begun, boundary).is_none() {
        match body.next().await {
            Some(Ok(piece)) => begun.extend_from_slice(&piece),
            Some(Err(_)) => {
                let message = "document: the body broke off";
                return Err(Fault::new(FaultKind::InvalidRequest).with_message(message));
            }
            None => break,
        }
    }
    Ok(begun.freeze())
}

/// The model in the fields that were read, and its place.
pub(super) fn in_form(form: &[u8], boundary: &str) -> Option<(String, Range<usize>)> {
    let mark = format!("--{boundary}");
    let mut at = find(form, mark.as_bytes(), 0)?;
    loop {
        let head = at + mark.len();
        let value = find(form, b"\r\n\r\n", head)? + 4;
        at = find(form, format!("\r\n{mark}").as_bytes(), value)?;
        let fields = String::from_utf8_lossy(form.get(head..value)?).to_ascii_lowercase();
        let is_model = fields.contains("; name=\"model\"") && !fields.contains("filename=");
        if is_model {
            let text = std::str::from_utf8(form.get(value..at)?).ok()?;
            return Some((text.to_owned(), value..at));
        }
        at += 2;
    }
}

fn find(text: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let found = text.get(from..)?.windows(what.len()).position(|window| window == what)?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_at_its_place_in_json() {
        let body = br#"{"input": "a \"model\": 1", "model" : "m\u0031", "x": {"model": "no"}}"#;
        let (model, place) = in_json(body).unwrap();
        assert_eq!(model.as_deref(), Some("m1"));
        assert_eq!(&body[place.unwrap()], br#""m\u0031""#);
        assert_eq!(in_json(br#"{"model": 7}"#).unwrap(), (None, None));
        assert_eq!(in_json(b"{}").unwrap(), (None, None));
        for wrong in [&b"[1]"[..], b"{", b"", br#"{"model":"a","model":"b"}"#] {
            assert!(in_json(wrong).is_err(), "{wrong:?}");
        }
    }

    const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\n\
        name=\"model\"\r\n--b\r\ncontent-disposition: form-data; name=\"file\"; \
        filename=\"model\"\r\n\r\n\0\r\n--b\r\nContent-Disposition: form-data; \
        name=\"model\"\r\n\r\nwhisper\r\n--b--\r\n";

    #[test]
    fn a_model_is_found_among_the_fields_of_a_form() {
        let (model, place) = in_form(FORM.as_bytes(), "b").unwrap();
        assert_eq!((model.as_str(), &FORM[place]), ("whisper", "whisper"));
        for length in 0..FORM.len() - 8 {
            let found = in_form(&FORM.as_bytes()[..length], "b");
            assert!(found.is_none_or(|(model, _)| model == "whisper"), "{length}");
        }
        assert_eq!(in_form(b"--b\r\n\r\n", "b"), None);
        assert_eq!(in_form(FORM.as_bytes(), "c"), None);
    }

    #[test]
    fn a_boundary_may_be_quoted() {
        assert_eq!(boundary("multipart/form-data; boundary=b").as_deref(), Some("b"));
        assert_eq!(boundary("Multipart/Form-Data; a=1; Boundary=\"b c\"").as_deref(), Some("b c"));
        assert_eq!(boundary("multipart/form-data"), None);
        assert_eq!(boundary("text/plain; boundary=b"), None);
    }
}
