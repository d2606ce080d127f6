//! Tool calls as events, with AG-UI's names and members. The AG-UI face passes them on unchanged.
//!
//! A call is sent as it is written: its beginning as soon as its name is known, then its arguments
//! piece by piece, then its end.

use capstan_agent::Output;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::thoughts::make;

/// The open tool calls, in the order of their beginnings.
#[derive(Debug, Default)]
pub(crate) struct Tools(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Whether its arguments are free text instead of JSON.
    is_text: bool,
    /// Whether its beginning was sent.
    has_begun: bool,
    /// How many bytes of its arguments were sent.
    sent: usize,
}

/// A piece of a call. Upstreams name the call in different ways, or not at all.
#[derive(Debug, Default)]
pub(crate) struct CallPiece<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) arguments: &'a str,
    /// Whether the arguments are free text instead of JSON.
    pub(crate) is_text: bool,
}

impl Tools {
    /// Begins a call at an index of the answer.
    pub(crate) fn start(&mut self, index: u64, id: &str, name: &str, out: &mut Vec<Output>) {
        self.end(index, out);
        self.begin(Some(index), Some(id), name).send(out);
    }

    /// Records that the call at an index takes free text instead of JSON.
    pub(crate) fn takes_text(&mut self, index: u64) {
        if let Some(call) = self.0.iter_mut().rfind(|call| call.index == Some(index)) {
            call.is_text = true;
        }
    }

    /// Adds a piece to the arguments of the call at an index.
    pub(crate) fn arguments(&mut self, index: u64, piece: &str, out: &mut Vec<Output>) {
        if let Some(call) = self.0.iter_mut().rev().find(|call| call.index == Some(index)) {
            call.arguments.push_str(piece);
            call.send(out);
        }
    }

    pub(crate) fn is_open(&self, index: u64) -> bool {
        self.0.iter().any(|call| call.index == Some(index))
    }

    pub(crate) fn has_arguments(&self, index: u64) -> bool {
        self.0.iter().any(|call| call.index == Some(index) && !call.arguments.is_empty())
    }

    /// Takes a piece of a server that may number its calls, name them, or do neither. Returns the
    /// id of the call as it is sent.
    pub(crate) fn piece(&mut self, piece: &CallPiece<'_>, out: &mut Vec<Output>) -> Option<&str> {
        let call = match self.place(piece) {
            Some(at) => self.0.get_mut(at)?,
            None => self.begin(piece.index, piece.id, piece.name.unwrap_or_default()),
        };
        if call.name.is_empty() {
            call.name.push_str(piece.name.unwrap_or_default());
        }
        call.is_text |= piece.is_text;
        call.arguments.push_str(piece.arguments);
        call.send(out);
        Some(&call.id)
    }

    /// The id of the call that a piece continues.
    pub(crate) fn id_of(&self, piece: &CallPiece<'_>) -> Option<&str> {
        self.place(piece).and_then(|at| self.0.get(at)).map(|call| call.id.as_str())
    }

    /// Finds the call that a piece continues. None if it begins one.
    fn place(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let last = |is: &dyn Fn(&Call) -> bool| self.0.iter().rposition(is);
        let here = match piece.index {
            Some(index) => last(&|call| call.index == Some(index)),
            None => None,
        };
        match (piece.id, piece.name) {
            // An id decides. Some servers repeat it with each piece.
            (Some(id), _) => {
                let is_here = |at: &usize| self.0.get(*at).is_some_and(|call| call.id == id);
                here.filter(is_here).or_else(|| {
                    let is_free = |call: &Call| piece.index.is_none() || call.index.is_none();
                    last(&|call| call.id == id && is_free(call))
                })
            }
            // A name comes again before the call is complete: it is a repetition.
            (None, Some(name)) => here.filter(|at| {
                let is_open = |call: &Call| call.name == name && !is_whole(&call.arguments);
                self.0.get(*at).is_some_and(|call| call.name.is_empty() || is_open(call))
            }),
            (None, None) => here.or(self.0.len().checked_sub(1)),
        }
    }

    fn begin(&mut self, index: Option<u64>, id: Option<&str>, name: &str) -> &mut Call {
        let id = id.filter(|id| !id.is_empty());
        // Unique, because a conversation may have many calls from servers that send no ids.
        let id = id.map_or_else(|| format!("call_{}", Uuid::now_v7().simple()), str::to_owned);
        self.0.push_mut(Call { index, id, name: name.to_owned(), ..Call::default() })
    }

    /// Ends the call at an index.
    pub(crate) fn end(&mut self, index: u64, out: &mut Vec<Output>) {
        if let Some(at) = self.0.iter().position(|call| call.index == Some(index)) {
            self.0.remove(at).end(out);
        }
    }

    /// Ends all calls.
    pub(crate) fn end_all(&mut self, out: &mut Vec<Output>) {
        self.0.drain(..).for_each(|call| call.end(out));
    }

    /// Ends the calls of an answer that was cut short. A call without its whole arguments gets no
    /// end.
    pub(crate) fn end_whole(&mut self, out: &mut Vec<Output>) {
        self.0.retain(|call| is_whole(&call.arguments));
        self.end_all(out);
    }
}

impl Call {
    /// Sends the rest, once the name is known.
    fn send(&mut self, out: &mut Vec<Output>) {
        if !self.name.is_empty() {
            self.send_all(out);
        }
    }

    fn send_all(&mut self, out: &mut Vec<Output>) {
        if !self.has_begun {
            self.has_begun = true;
            let data = json!({ "toolCallId": self.id, "toolCallName": self.name });
            out.extend(make("TOOL_CALL_START", &data));
        }
        let rest = self.arguments.get(self.sent..).filter(|rest| !rest.is_empty());
        if let Some(rest) = rest {
            out.extend(make("TOOL_CALL_ARGS", &json!({ "toolCallId": self.id, "delta": rest })));
            self.sent = self.arguments.len();
        }
    }

    /// Sends the end. A call without arguments gets an empty object, because clients parse the
    /// arguments as JSON.
    fn end(mut self, out: &mut Vec<Output>) {
        if self.arguments.is_empty() && !self.is_text {
            self.arguments.push_str("{}");
        }
        self.send_all(out);
        out.extend(make("TOOL_CALL_END", &json!({ "toolCallId": self.id })));
    }
}

fn is_whole(arguments: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}

/// Sends a whole call.
pub(crate) fn whole(id: &str, name: &str, input: &Value, out: &mut Vec<Output>) {
    let mut tools = Tools::default();
    tools.start(0, id, name, out);
    tools.arguments(0, &input.to_string(), out);
    tools.end(0, out);
}

/// Sends the result of a call.
pub(crate) fn result(id: &str, content: &Value, is_error: bool, out: &mut Vec<Output>) {
    let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
    let mut data =
        json!({ "messageId": format!("{id}:result"), "toolCallId": id, "content": text });
    if let (true, Some(members)) = (is_error, data.as_object_mut()) {
        members.insert("isError".into(), true.into());
    }
    out.extend(make("TOOL_CALL_RESULT", &data));
}

#[cfg(test)]
mod tests {
    use super::*;

    type Piece = (Option<u64>, Option<&'static str>, Option<&'static str>, &'static str);

    fn calls_of(pieces: &[Piece]) -> Vec<(String, String)> {
        let mut tools = Tools::default();
        for (index, id, name, arguments) in pieces {
            let piece =
                CallPiece { index: *index, id: *id, name: *name, arguments, is_text: false };
            tools.piece(&piece, &mut Vec::new());
        }
        tools.0.into_iter().map(|call| (call.name, call.arguments)).collect()
    }

    fn calls(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()))
            .collect()
    }

    #[test]
    fn calls_are_distinguished_by_index_by_id_or_by_order() {
        let two = calls(&[("f", r#"{"a":1}"#), ("g", "{}")]);
        let (f, g) = (Some("f"), Some("g"));
        // The form of the protocol, with the pieces in any order.
        let by_index = [
            (Some(0), Some("1"), f, ""),
            (Some(1), Some("2"), g, "{"),
            (Some(0), None, None, r#"{"a":1}"#),
            (Some(1), None, None, "}"),
        ];
        assert_eq!(calls_of(&by_index), two);
        let one_index = [
            (Some(0), Some("1"), f, ""),
            (Some(0), None, None, r#"{"a":1}"#),
            (Some(0), Some("2"), g, ""),
            (Some(0), None, None, "{}"),
        ];
        assert_eq!(calls_of(&one_index), two, "the same index");
        assert_eq!(
            calls_of(&[(None, Some("1"), f, r#"{"a":1}"#), (None, Some("2"), g, "{}")]),
            two,
            "no index"
        );
        assert_eq!(
            calls_of(&[(None, None, f, r#"{"a":1}"#), (None, None, g, "{}")]),
            two,
            "neither index nor id"
        );
        assert_eq!(
            calls_of(&[(Some(0), None, f, r#"{"a":1}"#), (Some(0), None, g, "{}")]),
            two,
            "no id and the same index"
        );
        let again = [
            (Some(0), Some("1"), f, r#"{"a""#),
            (Some(0), Some("1"), f, ":1}"),
            (Some(1), Some("2"), g, "{"),
            (Some(1), Some("2"), g, "}"),
        ];
        assert_eq!(calls_of(&again), two, "id and name with each piece");
        let same = [(Some(0), None, f, r#"{"a":1}"#), (Some(0), None, f, r#"{"a":2}"#)];
        assert_eq!(
            calls_of(&same),
            calls(&[("f", r#"{"a":1}"#), ("f", r#"{"a":2}"#)]),
            "the same tool twice"
        );
        let one_id = [(Some(0), Some("x"), f, r#"{"a":1}"#), (Some(1), Some("x"), g, "{}")];
        assert_eq!(calls_of(&one_id), two, "one id for both");
    }

    #[test]
    fn call_without_arguments_gets_an_empty_object() {
        let sent = |is_text: bool| {
            let (mut tools, mut out) = (Tools::default(), Vec::new());
            let name = Some("f");
            tools.piece(&CallPiece { name, is_text, ..CallPiece::default() }, &mut out);
            tools.end_all(&mut out);
            sent(&out).contains(&"TOOL_CALL_ARGS")
        };
        assert_eq!((sent(false), sent(true)), (true, false));
    }

    fn piece<'a>(
        index: u64,
        id: &'a str,
        name: Option<&'a str>,
        arguments: &'a str,
    ) -> CallPiece<'a> {
        CallPiece { index: Some(index), id: Some(id), name, arguments, is_text: false }
    }

    fn sent(out: &[Output]) -> Vec<&str> {
        fn kind(output: &Output) -> &str {
            let Output::Event { kind, .. } = output else { panic!("{output:?}") };
            kind
        }
        out.iter().map(kind).collect()
    }

    #[test]
    fn a_call_is_sent_as_it_is_written() {
        let (mut tools, mut out) = (Tools::default(), Vec::new());
        let nameless = piece(0, "1", None, "{");
        tools.piece(&nameless, &mut out);
        assert_eq!(out, [], "nobody can show a call without a name");
        let named = CallPiece { index: Some(0), name: Some("f"), ..CallPiece::default() };
        tools.piece(&named, &mut out);
        tools
            .piece(&CallPiece { index: Some(0), arguments: "}", ..CallPiece::default() }, &mut out);
        tools.end_all(&mut out);
        let expected = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "TOOL_CALL_END"];
        assert_eq!(sent(&out), expected);
    }

    #[test]
    fn an_answer_that_is_cut_short_ends_complete_calls_only() {
        let (mut tools, mut out) = (Tools::default(), Vec::new());
        let whole = piece(0, "1", Some("f"), "{}");
        tools.piece(&whole, &mut out);
        let half = piece(1, "2", Some("g"), "{\"a\":");
        tools.piece(&half, &mut out);
        tools.end_whole(&mut out);
        let ends = sent(&out).iter().filter(|kind| **kind == "TOOL_CALL_END").count();
        assert_eq!((ends, out.len()), (1, 5), "{out:?}");
    }
}
