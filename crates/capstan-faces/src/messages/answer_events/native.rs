//! The native lane of an answer: what its provider wrote and CAP does not have is put back where it
//! was.

use capstan_agent::sealed;
use capstan_protocol::{Dialect, NativeEvent, RawJson};
use serde_json::{Value, json};

use super::super::blocks::{Kind, Start};
use super::super::event::{Event, Members, Piece, Sink};
use super::{AnswerEvents, put, type_of};

/// For each kind of piece, the member that CAP has.
const CONTENT: [(&str, &str); 4] = [
    ("text_delta", "text"),
    ("thinking_delta", "thinking"),
    ("input_json_delta", "partial_json"),
    ("signature_delta", "signature"),
];

/// What the provider wrote of events that come as CAP packets.
#[derive(Default)]
pub(super) struct Native {
    /// Whether the agent's provider speaks this protocol.
    pub(super) is_own: bool,
    /// The beginning of the next block.
    template: Option<Start>,
    /// Members of the next piece.
    members: Option<PieceMembers>,
    /// Members of the end of the next block that ends.
    stop: Members,
    /// The end of the message, and its packet.
    ending: Option<(u64, Value)>,
    /// Members of the last event, and their packet.
    message_stop: Option<(u64, Members)>,
}

struct PieceMembers {
    /// The type of the piece.
    kind: String,
    own: Members,
    beside: Members,
}

impl Native {
    /// Takes the members of a call or of a result that begins next. If the client has it already,
    /// no template waits for them.
    fn begin_tool(&mut self, block: Value) {
        let template = self.template.as_mut().map(|start| &mut start.block);
        if let Some(start) = template.filter(|start| type_of(start) == type_of(&block)) {
            *start = block;
        }
    }

    /// Takes the members of a piece of this type, and those beside it.
    pub(super) fn members_of(&mut self, kind: &str) -> (Members, Members) {
        let members = self.members.take_if(|members| members.kind == kind);
        members.map(|members| (members.own, members.beside)).unwrap_or_default()
    }

    /// Takes the members of the end of a block.
    pub(super) fn stop(&mut self) -> Members {
        std::mem::take(&mut self.stop)
    }

    /// Takes the end of the message.
    pub(super) fn ending(&mut self) -> Option<Value> {
        self.ending.take().map(|(_, ending)| ending)
    }

    /// Takes the members of the last event.
    pub(super) fn message_stop(&mut self) -> Members {
        self.message_stop.take().map(|(_, members)| members).unwrap_or_default()
    }

    /// Drops what came after a packet.
    pub(super) fn reset(&mut self, after: u64) {
        self.ending.take_if(|(seq, _)| *seq > after);
        self.message_stop.take_if(|(seq, _)| *seq > after);
    }

    /// Takes the events that end the message. Returns true if it is one of them.
    pub(super) fn take_end(&mut self, seq: u64, event: &Value) -> bool {
        let has_reason = event.pointer("/delta/stop_reason").is_some_and(Value::is_string);
        match type_of(event) {
            "message_delta" if has_reason => self.ending = Some((seq, event.clone())),
            "message_stop" => self.message_stop = Some((seq, without(event, &["type"]))),
            _ => return false,
        }
        true
    }
}

impl AnswerEvents {
    pub(super) fn native(&mut self, seq: u64, data: Value, sink: &mut impl Sink) {
        let Ok(native) = serde_json::from_value::<NativeEvent>(data) else { return };
        let is_own = native.origin.dialect == Dialect::AnthropicMessages;
        self.native.is_own |= is_own;
        if let Some(part) = native.part.as_ref().filter(|part| is_own && sealed::is_of_tool(part)) {
            return self.native.begin_tool(part.to_value());
        }
        if native.part.is_some() && self.sealer.seals(&native.origin) {
            self.sealed(seq, native, sink);
        } else if let Some(part) = native.part.filter(|_| is_own) {
            self.sealer.skip();
            self.part(seq, &part.to_value(), native.text_at.is_none(), sink);
        } else if let Some(event) = native.event.filter(|_| is_own) {
            self.native_event(seq, &event.to_value(), sink);
        }
    }

    /// A part that another agent could get in the next turn. The thoughts that are being shown are
    /// its text; one without any becomes a block that nobody reads.
    fn sealed(&mut self, seq: u64, native: NativeEvent, sink: &mut impl Sink) {
        let is_thinking = match native.origin.dialect {
            Dialect::AnthropicMessages => {
                let part = native.part.as_ref().map(RawJson::to_value);
                part.is_some_and(|part| type_of(&part) == "thinking")
            }
            Dialect::OpenaiChat | Dialect::OpenaiResponses => self.blocks.is_open(&Kind::Thinking),
        };
        let is_chats = native.origin.dialect == Dialect::OpenaiChat;
        let Some(sealed) = self.sealer.seal(native) else { return };
        if is_chats && self.ends_with_text() {
            return;
        }
        let part = match is_thinking {
            true => json!({ "type": "thinking", "signature": sealed }),
            false => json!({ "type": "redacted_thinking", "data": sealed }),
        };
        // A sealed part holds its text itself.
        self.part(seq, &part, false, sink);
    }

    /// Whether the answer is a text without calls. A chat tells at its end what its server needs
    /// back. That is too late here: Claude Code prints the last block, so none may follow the text.
    /// A server of Chat needs its reasoning back with calls.
    fn ends_with_text(&self) -> bool {
        self.blocks.is_open(&Kind::Text) && !self.blocks.has_calls() && self.held.is_empty()
    }

    fn native_event(&mut self, seq: u64, event: &Value, sink: &mut impl Sink) {
        if self.native.take_end(seq, event) {
            return;
        }
        match type_of(event) {
            // A later attempt is a new message for the provider, but not for the client.
            "message_start" if self.has_begun => {}
            "message_start" => {
                self.begin(event.get("message"), &without(event, &["type", "message"]), sink);
            }
            "content_block_start" => self.native_block(seq, event, sink),
            "content_block_delta" => self.native_delta(seq, event, sink),
            "content_block_stop" => self.native_stop(event, sink),
            "ping" => sink.take(Event::Raw(event)),
            "error" => {}
            _ => {
                self.shows_other(seq, sink);
                sink.take(Event::Raw(event));
            }
        }
    }

    /// A piece that CAP does not have, or the members of one that it has.
    fn native_delta(&mut self, seq: u64, event: &Value, sink: &mut impl Sink) {
        let delta = event.get("delta").cloned().unwrap_or_default();
        let beside = without(event, &["type", "index", "delta"]);
        let kind = type_of(&delta);
        let content = CONTENT.iter().find(|(known, _)| *known == kind);
        if content.is_some_and(|(_, member)| delta.get(member).is_none()) {
            return self.add_members(kind, without(&delta, &["type"]), beside, sink);
        }
        // Progress of a hidden thought. Attempts are not compared by it.
        if kind == "thinking_delta" {
            if self.blocks.is_open(&Kind::Thinking) {
                self.blocks.add(Piece::Raw(delta), beside, sink);
            }
            return;
        }
        self.spend_native(sink);
        if self.blocks.add(Piece::Raw(delta), beside, sink) {
            (self.last, self.last_other) = (seq, seq);
        }
    }

    /// Stores the members of the next piece. A signature comes in several pieces, but is sent in
    /// one.
    fn add_members(&mut self, kind: &str, own: Members, beside: Members, sink: &mut impl Sink) {
        let is_more = |members: &PieceMembers| members.kind == kind && kind == "signature_delta";
        if let Some(members) = self.native.members.as_mut().filter(|members| is_more(members)) {
            members.own.extend(own);
            members.beside.extend(beside);
            return;
        }
        self.spend_members(sink);
        self.native.members = Some(PieceMembers { kind: kind.to_owned(), own, beside });
    }

    /// The end of a block. Text and blocks that CAP does not have end by it; for others, an end of
    /// CAP follows.
    fn native_stop(&mut self, event: &Value, sink: &mut impl Sink) {
        // The signature of a thought follows.
        if !self.blocks.is_open(&Kind::Thinking) {
            self.spend_members(sink);
        }
        let stop = without(event, &["type", "index"]);
        match self.blocks.open_kind() {
            Some(Kind::Text | Kind::Other) if self.has_block(event) => {
                self.blocks.end(stop, sink);
            }
            None if self.has_block(event) => {}
            Some(_) | None => self.native.stop = stop,
        }
    }

    /// Whether the block that an event is about has begun.
    fn has_block(&self, event: &Value) -> bool {
        let index = event.get("index").and_then(Value::as_u64);
        index.is_some_and(|index| index < self.blocks.count() as u64)
    }

    /// Stores the beginning of a block whose content comes as CAP events. Only those are sent once
    /// over all attempts.
    fn native_block(&mut self, seq: u64, event: &Value, sink: &mut impl Sink) {
        let Some(block) = event.get("content_block") else { return };
        self.spend_native(sink);
        let beside = without(event, &["type", "index", "content_block"]);
        let mut start = Start { block: block.clone(), beside };
        let kind = type_of(block);
        // A thought may stay hidden for minutes, so the client sees its beginning at once.
        if kind == "thinking" {
            self.shows(seq, sink);
            put(&mut start.block, "thinking", "".into());
            put(&mut start.block, "signature", "".into());
            return self.blocks.open(Kind::Thinking, start, sink);
        }
        let waits = kind == "redacted_thinking"
            || kind.ends_with("tool_use")
            || kind.ends_with("_tool_result") && block.get("content").is_none();
        if waits {
            self.native.template = Some(start);
            return;
        }
        if kind == "text" {
            self.shows(seq, sink);
            return self.blocks.open(Kind::Text, start, sink);
        }
        self.shows_other(seq, sink);
        self.blocks.open(Kind::Other, start, sink);
    }

    /// Ends a thinking block with its signature. Its text came before, unless it has a text of its
    /// own: then it belongs to other thoughts than those before it, which stay without signature.
    fn part(&mut self, seq: u64, part: &Value, has_text: bool, sink: &mut impl Sink) {
        let kind = type_of(part);
        let is_open = kind == "thinking" && self.blocks.is_open(&Kind::Thinking);
        self.shows(seq, sink);
        if kind != "thinking" {
            let template = self.template_of(|of| of == kind, sink);
            let beside = template.map(|start| start.beside).unwrap_or_default();
            self.blocks.open(Kind::Other, Start { block: part.clone(), beside }, sink);
            self.blocks.end(self.native.stop(), sink);
            return;
        }
        let (own, beside) = self.native.members_of("signature_delta");
        if !is_open {
            self.spend_native(sink);
            let mut start = Start::from(part.clone());
            put(&mut start.block, "thinking", "".into());
            put(&mut start.block, "signature", "".into());
            self.blocks.open(Kind::Thinking, start, sink);
        }
        self.spend_members(sink);
        let signature = part.get("signature").and_then(Value::as_str);
        if let Some(signature) = signature.filter(|_| !(is_open && has_text)) {
            self.blocks.add(Piece::signature(signature).with(own), beside, sink);
        }
        self.blocks.end(self.native.stop(), sink);
    }

    /// Takes the template if it is of this kind. A template of another kind is a block of its own.
    pub(super) fn template_of(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        sink: &mut impl Sink,
    ) -> Option<Start> {
        let is_wanted = |start: &mut Start| is_wanted(type_of(&start.block));
        let template = self.native.template.take_if(is_wanted);
        if template.is_none() {
            self.spend_native(sink);
        }
        template
    }

    /// Sends what nothing followed: members as a piece, and the template as a block.
    pub(super) fn spend_native(&mut self, sink: &mut impl Sink) {
        self.spend_members(sink);
        if let Some(start) = self.native.template.take() {
            self.begin(None, &Members::new(), sink);
            self.blocks.open(Kind::Other, start, sink);
            self.blocks.end(self.native.stop(), sink);
        }
    }

    /// Sends members of a piece without content as a piece of their own.
    pub(super) fn spend_members(&mut self, sink: &mut impl Sink) {
        let Some(PieceMembers { kind, mut own, beside }) = self.native.members.take() else {
            return;
        };
        if kind == "text_delta" {
            self.open_text(sink);
        }
        // An empty signature would replace the one before it.
        let content = CONTENT.iter().find(|(known, _)| *known == kind && kind != "signature_delta");
        own.extend(content.map(|(_, member)| ((*member).to_owned(), "".into())));
        own.insert("type".into(), kind.into());
        self.blocks.add(Piece::Raw(own.into()), beside, sink);
    }
}

/// The members of an object without these.
fn without(object: &Value, names: &[&str]) -> Members {
    let members = object.as_object().into_iter().flatten();
    let others = members.filter(|(name, _)| !names.contains(&name.as_str()));
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}
