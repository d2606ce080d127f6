//! The native lane: what CAP has no word for, as `NATIVE` events, and back into the next request.
//! [The decision](https://github.com/capstan-run/capstan/blob/main/docs/decisions/0027-the-native-lane.md)
//! has the reasons.

use capstan_agent::Output;
use capstan_protocol::{Dialect, NATIVE, NativeEvent, NativeOrigin, NativePart, RawJson};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use crate::http;
use crate::thoughts::make;

/// Who answers at an address.
pub(crate) fn origin(dialect: Dialect, url: &Url, model: &str) -> NativeOrigin {
    NativeOrigin { dialect, provider: http::host_of(url), model: model.to_owned() }
}

/// An event, or the rest of one, for viewers who speak the same dialect.
pub(crate) fn event(origin: &NativeOrigin, event: &impl Serialize) -> Option<Output> {
    let event = RawJson::from_serialize(event).ok();
    output(NativeEvent { origin: origin.clone(), event, part: None, text_at: None })
}

/// A part that the next turn must bring back. With `text_at`, the thoughts since the part before
/// are its text.
pub(crate) fn part(
    origin: &NativeOrigin,
    part: &impl Serialize,
    text_at: Option<&str>,
) -> Option<Output> {
    let (part, text_at) = (RawJson::from_serialize(part).ok(), text_at.map(str::to_owned));
    output(NativeEvent { origin: origin.clone(), event: None, part, text_at })
}

fn output(data: NativeEvent) -> Option<Output> {
    make(NATIVE, &data)
}

/// The part, if this upstream made it. Nobody else may see it, or could read it.
pub(crate) fn own(part: &NativePart, origin: &NativeOrigin) -> Option<Value> {
    (part.origin == *origin).then(|| part.to_value())
}
