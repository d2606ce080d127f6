//! The blocks of an answer. Clients expect one at a time, from its start to its stop, while an
//! agent may write several calls at once: the first that is open is sent as it grows, and what
//! follows waits.

use std::collections::VecDeque;

use serde_json::Value;

use super::event::{Event, Piece, Sink};

/// What a block holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
    /// A call, by its id.
    Call(String),
    Other,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    start: Value,
    /// What waits to be sent.
    pieces: Vec<Piece<'static>>,
    has_begun: bool,
    is_done: bool,
}

/// What the client has seen of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    #[default]
    Nothing,
    Thinking,
    More,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    queue: VecDeque<Block>,
    /// How many are over.
    over: usize,
    /// The number of the next, as the client counts.
    index: usize,
    /// So many the client has.
    behind: usize,
    shown: Shown,
    has_calls: bool,
}

impl Blocks {
    /// Those behind the first ones, which the client has. Thoughts among them are told again: what
    /// follows counts as a message of its own, and a provider wants it to begin with them.
    pub(super) fn behind(behind: usize) -> Self {
        let shown = if behind > 0 { Shown::More } else { Shown::Nothing };
        Self { behind, shown, ..Self::default() }
    }

    /// The number of the first in the queue, as the client counts; none if it has that one.
    fn index(&self) -> Option<usize> {
        let is_thinking = self.queue.front().is_some_and(Block::is_thinking);
        (is_thinking || self.over >= self.behind).then_some(self.index)
    }

    pub(super) fn shown(&self) -> Shown {
        self.shown
    }

    /// Whether there are calls for the client to answer.
    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    pub(super) fn is_empty(&self) -> bool {
        self.over == 0 && self.queue.is_empty()
    }

    /// Whether the last block is of this kind and goes on.
    pub(super) fn is_open(&self, kind: &Kind) -> bool {
        self.queue.back().is_some_and(|block| block.kind == *kind && !block.is_done)
    }

    /// Begins a block. All before it are over, but for calls, which say so themselves.
    pub(super) fn open(&mut self, kind: Kind, start: Value, sink: &mut impl Sink) {
        for block in self.queue.iter_mut().filter(|block| !matches!(block.kind, Kind::Call(_))) {
            block.is_done = true;
        }
        self.has_calls |= start.get("type").is_some_and(|kind| kind == "tool_use");
        let (pieces, has_begun, is_done) = (Vec::new(), false, false);
        self.queue.push_back(Block { kind, start, pieces, has_begun, is_done });
        self.send(sink);
    }

    /// Adds to the last block; false if there is none that goes on.
    pub(super) fn add(&mut self, piece: Piece<'_>, sink: &mut impl Sink) -> bool {
        let last = self.queue.len().checked_sub(1);
        last.is_some_and(|at| self.add_at(at, piece, sink))
    }

    /// Adds to a call; false if there is no such call that goes on.
    pub(super) fn add_to_call(&mut self, id: &str, piece: Piece<'_>, sink: &mut impl Sink) -> bool {
        self.call(id).is_some_and(|at| self.add_at(at, piece, sink))
    }

    fn call(&self, id: &str) -> Option<usize> {
        self.queue.iter().rposition(|block| matches!(&block.kind, Kind::Call(own) if own == id))
    }

    fn add_at(&mut self, at: usize, piece: Piece<'_>, sink: &mut impl Sink) -> bool {
        let index = self.index();
        let Some(block) = self.queue.get_mut(at).filter(|block| !block.is_done) else {
            return false;
        };
        match index {
            Some(index) if at == 0 => {
                sink.take(Event::ContentBlockDelta { index, delta: &piece });
            }
            None if at == 0 => {}
            _ => block.pieces.push(piece.into_owned()),
        }
        true
    }

    /// Ends the last block.
    pub(super) fn end(&mut self, sink: &mut impl Sink) {
        if let Some(block) = self.queue.back_mut() {
            block.is_done = true;
        }
        self.send(sink);
    }

    /// Ends a call; false if there is no such call.
    pub(super) fn end_call(&mut self, id: &str, sink: &mut impl Sink) -> bool {
        let at = self.call(id);
        if let Some(block) = at.and_then(|at| self.queue.get_mut(at)) {
            block.is_done = true;
        }
        self.send(sink);
        at.is_some()
    }

    /// Ends all.
    pub(super) fn end_all(&mut self, sink: &mut impl Sink) {
        self.queue.iter_mut().for_each(|block| block.is_done = true);
        self.send(sink);
    }

    /// Sends what is due.
    fn send(&mut self, sink: &mut impl Sink) {
        loop {
            let index = self.index();
            let Some(block) = self.queue.front_mut() else { return };
            if let Some(index) = index {
                self.shown = self.shown.max(block.send(index, sink));
            }
            if !block.is_done {
                return;
            }
            self.queue.pop_front();
            self.over += 1;
            self.index += usize::from(index.is_some());
        }
    }
}

impl Block {
    /// Sends what is due; says what the client sees by it.
    fn send(&mut self, index: usize, sink: &mut impl Sink) -> Shown {
        if !self.has_begun {
            self.has_begun = true;
            sink.take(Event::ContentBlockStart { index, content_block: &self.start });
        }
        for delta in self.pieces.drain(..) {
            sink.take(Event::ContentBlockDelta { index, delta: &delta });
        }
        if self.is_done {
            sink.take(Event::ContentBlockStop { index });
        }
        if self.is_thinking() { Shown::Thinking } else { Shown::More }
    }

    fn is_thinking(&self) -> bool {
        is_thought(&self.start)
    }
}

/// Whether a block holds what the model thought, readable or not.
pub(super) fn is_thought(block: &Value) -> bool {
    let kind = block.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.ends_with("thinking"))
}
