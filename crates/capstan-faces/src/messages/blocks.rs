//! Sends the blocks of an answer one at a time, as clients expect them. An agent may write several
//! calls at once: the first open block is sent as it grows, and the others wait in a queue.

use std::collections::VecDeque;

use serde_json::Value;

use super::event::{Event, Members, Piece, Sink};

/// The content of a block.
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
    start: Start,
    /// The pieces that wait to be sent, each with the members beside it.
    pieces: Vec<(Piece<'static>, Members)>,
    /// The members of its end.
    stop: Members,
    has_begun: bool,
    is_done: bool,
}

/// The beginning of a block.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    pub(super) block: Value,
    /// The members beside the block.
    pub(super) beside: Members,
}

impl From<Value> for Start {
    fn from(block: Value) -> Self {
        Self { block, beside: Members::new() }
    }
}

/// The part of an answer that the client has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    #[default]
    Nothing,
    Thinking,
    More,
}

/// The blocks of an answer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    queue: VecDeque<Block>,
    /// How many blocks have ended.
    over: usize,
    /// The client's index of the next block.
    index: usize,
    /// How many blocks the client has already.
    behind: usize,
    shown: Shown,
    has_calls: bool,
}

impl Blocks {
    /// Leaves out the first blocks, which the client has. Thoughts among them are sent again,
    /// because the rest is a message of its own, and a provider wants it to begin with its
    /// thoughts.
    pub(super) fn behind(behind: usize) -> Self {
        let shown = if behind > 0 { Shown::More } else { Shown::Nothing };
        Self { behind, shown, ..Self::default() }
    }

    /// The client's index of the first block in the queue; `None` if the client has this block.
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

    /// How many blocks have begun.
    pub(super) fn count(&self) -> usize {
        self.over + self.queue.len()
    }

    /// The last block, if it goes on.
    pub(super) fn open_kind(&self) -> Option<&Kind> {
        self.queue.back().filter(|block| !block.is_done).map(|block| &block.kind)
    }

    /// Whether the last block is of this kind and goes on.
    pub(super) fn is_open(&self, kind: &Kind) -> bool {
        self.open_kind() == Some(kind)
    }

    /// Begins a block. It ends all earlier ones except calls, which have ends of their own.
    pub(super) fn open(&mut self, kind: Kind, start: impl Into<Start>, sink: &mut impl Sink) {
        let start = start.into();
        for block in self.queue.iter_mut().filter(|block| !matches!(block.kind, Kind::Call(_))) {
            block.is_done = true;
        }
        self.has_calls |= start.block.get("type").is_some_and(|kind| kind == "tool_use");
        let (pieces, stop, has_begun, is_done) = (Vec::new(), Members::new(), false, false);
        self.queue.push_back(Block { kind, start, pieces, stop, has_begun, is_done });
        self.send(sink);
    }

    /// Adds to the last block. False if no block is open.
    pub(super) fn add(&mut self, piece: Piece<'_>, beside: Members, sink: &mut impl Sink) -> bool {
        let last = self.queue.len().checked_sub(1);
        last.is_some_and(|at| self.add_at(at, piece, beside, sink))
    }

    /// Adds to a call. False if this call is not open.
    pub(super) fn add_to_call(
        &mut self,
        id: &str,
        piece: Piece<'_>,
        beside: Members,
        sink: &mut impl Sink,
    ) -> bool {
        self.call(id).is_some_and(|at| self.add_at(at, piece, beside, sink))
    }

    fn call(&self, id: &str) -> Option<usize> {
        self.queue.iter().rposition(|block| matches!(&block.kind, Kind::Call(own) if own == id))
    }

    fn add_at(
        &mut self,
        at: usize,
        piece: Piece<'_>,
        beside: Members,
        sink: &mut impl Sink,
    ) -> bool {
        let index = self.index();
        let Some(block) = self.queue.get_mut(at).filter(|block| !block.is_done) else {
            return false;
        };
        match index {
            Some(index) if at == 0 => {
                sink.take(Event::ContentBlockDelta { index, delta: &piece, beside: &beside });
            }
            None if at == 0 => {}
            _ => block.pieces.push((piece.into_owned(), beside)),
        }
        true
    }

    /// Ends the last block, with these members of its end.
    pub(super) fn end(&mut self, stop: Members, sink: &mut impl Sink) {
        if let Some(block) = self.queue.back_mut() {
            (block.is_done, block.stop) = (true, stop);
        }
        self.send(sink);
    }

    /// Ends a call.
    pub(super) fn end_call(&mut self, id: &str, stop: Members, sink: &mut impl Sink) {
        let at = self.call(id);
        if let Some(block) = at.and_then(|at| self.queue.get_mut(at)) {
            (block.is_done, block.stop) = (true, stop);
        }
        self.send(sink);
    }

    /// Ends all.
    pub(super) fn end_all(&mut self, sink: &mut impl Sink) {
        self.queue.iter_mut().for_each(|block| block.is_done = true);
        self.send(sink);
    }

    /// Sends the events that are due.
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
    /// Sends the events that are due. Returns what the client sees by them.
    fn send(&mut self, index: usize, sink: &mut impl Sink) -> Shown {
        if !self.has_begun {
            self.has_begun = true;
            let Start { block: content_block, beside } = &self.start;
            sink.take(Event::ContentBlockStart { index, content_block, beside });
        }
        for (delta, beside) in self.pieces.drain(..) {
            sink.take(Event::ContentBlockDelta { index, delta: &delta, beside: &beside });
        }
        if self.is_done {
            sink.take(Event::ContentBlockStop { index, beside: &self.stop });
        }
        if self.is_thinking() { Shown::Thinking } else { Shown::More }
    }

    fn is_thinking(&self) -> bool {
        is_thought(&self.start.block)
    }
}

/// Whether a block is a thought, readable or not.
pub(super) fn is_thought(block: &Value) -> bool {
    let kind = block.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.ends_with("thinking"))
}
