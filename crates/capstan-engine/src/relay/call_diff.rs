//! Tool calls over several attempts.
//!
//! A call that was sent as a whole may have been acted upon: money may have moved. So it is never
//! sent a second time, under whatever id, and a later attempt has to make the same calls. Until a
//! call is whole nobody sees any of it, so that an attempt that breaks off leaves none behind that
//! has a name and half of its arguments.

use std::collections::HashMap;

use capstan_protocol::{Event, RawObject};
use serde_json::Value;

/// What an event says of a tool call.
pub(super) enum Said {
    Start,
    Arguments(String),
    End,
    Result,
}

impl Said {
    /// Reads an event of a tool call: which one, and what of it.
    pub(super) fn of(event: &Event) -> Option<(String, Self)> {
        let text = |name: &str| event.data.get(name).and_then(Value::as_str).map(str::to_owned);
        let said = match event.kind.as_deref()? {
            "TOOL_CALL_START" => Self::Start,
            "TOOL_CALL_ARGS" => Self::Arguments(text("delta").unwrap_or_default()),
            "TOOL_CALL_END" => Self::End,
            "TOOL_CALL_RESULT" => Self::Result,
            _ => return None,
        };
        Some((text("toolCallId")?, said))
    }
}

/// A call with the events that told it.
#[derive(Debug, Default)]
pub(super) struct Call {
    id: String,
    name: String,
    arguments: String,
    events: Vec<RawObject>,
}

impl Call {
    pub(super) fn into_events(self) -> Vec<RawObject> {
        self.events
    }

    /// The same order to the same tool. How its arguments are spelled does not matter.
    fn is_same(&self, other: &Self) -> bool {
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        let is_equal = || match (value(&self.arguments), value(&other.arguments)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        };
        self.name == other.name && (self.arguments == other.arguments || is_equal())
    }
}

struct SentCall {
    call: Call,
    began: u64,
    ended: Option<u64>,
    /// Where its result was told.
    result: Option<u64>,
    /// The present attempt has made it again.
    met: bool,
}

/// How a call relates to those that were sent.
pub(super) enum MetCall {
    /// It was sent before.
    Equal,
    /// All that were sent have been made again; this is a further one.
    New(Call),
    /// It is none of those that were sent and are still missing.
    Different(Call),
}

/// Calls that were sent, and those that the present attempt is about to make.
#[derive(Default)]
pub(super) struct CallDiff {
    sent: Vec<SentCall>,
    /// Not whole yet, in the order of their beginning.
    held: Vec<Call>,
    /// The ids of the present attempt for calls that were sent under others.
    aliases: HashMap<String, String>,
}

impl CallDiff {
    /// Takes note of an event that was sent.
    pub(super) fn sent(&mut self, seq: u64, event: &Event, raw: &RawObject) {
        let Some((id, said)) = Said::of(event) else { return };
        if matches!(said, Said::Start) {
            let call =
                Call { name: name_of(event), events: vec![raw.clone()], id, ..Call::default() };
            return self.sent.push(SentCall {
                call,
                began: seq,
                ended: None,
                result: None,
                met: true,
            });
        }
        let Some(sent) = self.sent.iter_mut().rev().find(|sent| sent.call.id == id) else { return };
        match said {
            Said::Arguments(piece) => sent.call.arguments.push_str(&piece),
            Said::End => sent.ended = Some(seq),
            Said::Result => return sent.result = Some(seq),
            Said::Start => {}
        }
        sent.call.events.push(raw.clone());
    }

    /// Forgets what stands after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.sent.retain(|sent| sent.began <= after_seq);
        for sent in &mut self.sent {
            sent.result = sent.result.filter(|seq| *seq <= after_seq);
        }
    }

    /// A new attempt begins: nothing was made again yet.
    pub(super) fn rewind(&mut self) {
        self.rewind_after(0);
        self.held.clear();
        self.aliases.clear();
    }

    /// What stands after a packet is to be made again.
    pub(super) fn rewind_after(&mut self, seq: u64) {
        self.sent.iter_mut().filter(|sent| sent.began > seq).for_each(|sent| sent.met = false);
    }

    /// Keeps back a part of a call. False if it belongs to none that has begun.
    pub(super) fn hold(&mut self, id: &str, said: &Said, event: &Event, raw: &RawObject) -> bool {
        if matches!(said, Said::Start) {
            let call = Call { id: id.to_owned(), name: name_of(event), ..Call::default() };
            self.held.push(call);
        }
        let Some(call) = self.held.iter_mut().rev().find(|call| call.id == id) else {
            return false;
        };
        if let Said::Arguments(piece) = said {
            call.arguments.push_str(piece);
        }
        call.events.push(raw.clone());
        true
    }

    /// The call that is whole now, if it was kept back.
    pub(super) fn whole(&mut self, id: &str) -> Option<Call> {
        let at = self.held.iter().position(|call| call.id == id)?;
        Some(self.held.remove(at))
    }

    /// What was kept back and never said to be whole.
    pub(super) fn rest(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.held)
    }

    /// Compares a whole call with those that were sent. Calls at once have no order, so any that is
    /// missing may be it.
    pub(super) fn meet(&mut self, call: Call) -> MetCall {
        let mut missing = self.sent.iter_mut().filter(|sent| !sent.met).peekable();
        if missing.peek().is_none() {
            return MetCall::New(call);
        }
        match missing.find(|sent| sent.call.is_same(&call)) {
            Some(sent) => {
                sent.met = true;
                self.aliases.insert(call.id, sent.call.id.clone());
                MetCall::Equal
            }
            None => MetCall::Different(call),
        }
    }

    /// The place just before the first call that the present attempt has not made again.
    pub(super) fn first_missing(&self) -> Option<u64> {
        let missing = self.sent.iter().filter(|sent| !sent.met);
        missing.map(|sent| sent.began.saturating_sub(1)).min()
    }

    /// The last place up to which whole calls were sent: nothing before it can be taken back.
    pub(super) fn last_whole(&self) -> u64 {
        self.sent.iter().filter_map(|sent| sent.ended).max().unwrap_or(0)
    }

    /// The last whole call before a packet that the present attempt has made again.
    pub(super) fn last_met_before(&self, seq: u64) -> u64 {
        let met = self.sent.iter().filter(|sent| sent.met).filter_map(|sent| sent.ended);
        met.filter(|ended| *ended < seq).max().unwrap_or(0)
    }

    /// What the present attempt has made again after a packet, to be told anew behind a reset.
    pub(super) fn met_after(&self, seq: u64) -> Vec<RawObject> {
        let met = self.sent.iter().filter(|sent| sent.met && sent.began > seq);
        met.flat_map(|sent| sent.call.events.clone()).collect()
    }

    /// A result under the id of the call that was sent, and where the result of that call was told
    /// before.
    pub(super) fn result(&self, id: &str, raw: &RawObject) -> (RawObject, Option<u64>) {
        let Some(own) = self.aliases.get(id) else { return (raw.clone(), None) };
        let told = self.sent.iter().find(|sent| sent.call.id == *own).and_then(|sent| sent.result);
        (renamed(raw, id, own), told)
    }
}

fn name_of(event: &Event) -> String {
    event.data.get("toolCallName").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A result's event with another call's id; ids that were made of it change with it.
fn renamed(raw: &RawObject, from: &str, to: &str) -> RawObject {
    let mut event = raw.to_map();
    if let Some(Value::Object(data)) = event.get_mut("data") {
        for name in ["toolCallId", "messageId"] {
            if let Some(Value::String(id)) = data.get_mut(name)
                && let Some(rest) = id.strip_prefix(from)
            {
                *id = format!("{to}{rest}");
            }
        }
    }
    RawObject::from_serialize(&event).unwrap_or_else(|_| raw.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(kind: &str, data: &Value) -> RawObject {
        RawObject::from_serialize(&json!({ "type": kind, "data": data })).unwrap()
    }

    fn parts(id: &str, arguments: &str) -> [RawObject; 3] {
        [
            raw("TOOL_CALL_START", &json!({ "toolCallId": id, "toolCallName": "pay" })),
            raw("TOOL_CALL_ARGS", &json!({ "toolCallId": id, "delta": arguments })),
            raw("TOOL_CALL_END", &json!({ "toolCallId": id })),
        ]
    }

    fn sent(calls: &[(&str, &str)]) -> CallDiff {
        let mut diff = CallDiff::default();
        let events = calls.iter().flat_map(|(id, arguments)| parts(id, arguments));
        (1..).zip(events).for_each(|(seq, raw)| diff.sent(seq, &Event::of(&raw), &raw));
        diff.rewind();
        diff
    }

    fn made(diff: &mut CallDiff, id: &str, arguments: &str) -> MetCall {
        for raw in parts(id, arguments) {
            let event = Event::of(&raw);
            let (id, said) = Said::of(&event).unwrap();
            assert!(diff.hold(&id, &said, &event, &raw));
        }
        let call = diff.whole(id).unwrap();
        diff.meet(call)
    }

    #[test]
    fn a_call_under_another_id_is_the_same_call_in_any_order_and_spelling() {
        let mut diff = sent(&[("a", r#"{"to":"x"}"#), ("b", r#"{"to":"y","n":1}"#)]);
        assert!(matches!(made(&mut diff, "c", r#"{ "n": 1, "to": "y" }"#), MetCall::Equal));
        assert_eq!((diff.last_met_before(9), diff.first_missing()), (6, Some(0)));
        assert!(matches!(made(&mut diff, "d", r#"{"to":"x"}"#), MetCall::Equal));
        assert!(matches!(made(&mut diff, "e", "{}"), MetCall::New(_)), "a further one");
    }

    #[test]
    fn another_call_while_one_is_missing_differs() {
        let mut diff = sent(&[("a", r#"{"to":"x"}"#)]);
        assert!(matches!(made(&mut diff, "b", r#"{"to":"y"}"#), MetCall::Different(_)));
    }

    #[test]
    fn a_result_is_told_under_the_id_that_was_sent() {
        let mut diff = sent(&[("a", "{}")]);
        assert!(matches!(made(&mut diff, "b", "{}"), MetCall::Equal));
        let data = json!({ "toolCallId": "b", "messageId": "b:result", "content": "ok" });
        let (told, before) = diff.result("b", &raw("TOOL_CALL_RESULT", &data));
        assert_eq!(
            told.to_map()["data"],
            json!({ "toolCallId": "a", "messageId": "a:result", "content": "ok" })
        );
        assert_eq!(before, None);
    }
}
