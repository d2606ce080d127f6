//! Tool calls over several attempts.
//!
//! A call is sent while it is written. A client may act on a complete call at once: it may move
//! money. So a complete call is never sent again, under any id, and never taken back. A later
//! attempt has to make the same calls, in any order. It may continue an incomplete call.

use capstan_protocol::{Event, RawObject};
use serde_json::Value;

use super::call_event::{CallStep, arguments, name_of, renamed};

/// A call that viewers have, complete or not.
struct SentCall {
    id: String,
    name: String,
    arguments: String,
    start: RawObject,
    end: Option<RawObject>,
    /// The first and the last packet of the call.
    began: u64,
    last: u64,
    /// The packet of its result.
    result: Option<u64>,
    /// The present attempt makes it again, or began it.
    is_repeated: bool,
}

/// A call of the present attempt.
struct OwnCall {
    id: String,
    name: String,
    /// All of its arguments so far, until it is matched with a sent call.
    arguments: String,
    /// Its native beginning, if that was not sent.
    before: Vec<RawObject>,
    start: RawObject,
    end: Option<RawObject>,
    /// Complete: no more arguments follow.
    is_whole: bool,
    /// Viewers have it from an earlier attempt, so none of it is sent.
    is_skipped: bool,
    /// The id under which viewers know it.
    known_as: Option<String>,
}

/// The result of comparing a call of the present attempt with the sent calls.
enum Verdict {
    /// Equal to a complete sent call.
    Equal(usize),
    /// Continues an incomplete sent call.
    Continues(usize),
    /// A call that earlier attempts did not make.
    New,
    /// Undecided until more arguments arrive.
    Open,
    /// Different from every sent call that is still missing.
    Different,
}

/// The next step for the calls of the present attempt.
pub(super) enum Next {
    /// Send these events.
    Send(Vec<RawObject>),
    /// Skip a call of this many bytes, because viewers have it.
    Skip(usize),
    /// A call is new although sent calls are missing.
    Differs,
    /// Wait for more events.
    Wait,
}

/// The sent calls, and the calls of the present attempt.
#[derive(Default)]
pub(super) struct CallDiff {
    sent: Vec<SentCall>,
    own: Vec<OwnCall>,
}

impl CallDiff {
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.sent.iter().map(|call| call.arguments.len() + call.start.get().len()).sum()
    }

    /// Records an event that was sent.
    pub(super) fn sent(&mut self, seq: u64, event: &Event, raw: &RawObject) {
        let Some((id, step)) = CallStep::of(event) else { return };
        if matches!(step, CallStep::Start) {
            return self.sent.push(SentCall {
                id,
                name: name_of(event),
                arguments: String::new(),
                start: raw.clone(),
                end: None,
                began: seq,
                last: seq,
                result: None,
                is_repeated: true,
            });
        }
        let Some(call) = self.sent.iter_mut().rev().find(|call| call.id == id) else { return };
        match step {
            CallStep::Arguments(piece) => call.arguments.push_str(&piece),
            CallStep::End => call.end = Some(raw.clone()),
            CallStep::Result => return call.result = Some(seq),
            CallStep::Start => {}
        }
        call.last = seq;
    }

    /// Removes everything after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.sent.retain(|call| call.began <= after_seq);
        for call in &mut self.sent {
            call.result = call.result.filter(|seq| *seq <= after_seq);
        }
    }

    /// Begins a new attempt, in which no call is repeated yet.
    pub(super) fn rewind(&mut self) {
        self.sent.iter_mut().for_each(|call| call.is_repeated = false);
        self.own.clear();
    }

    /// Marks complete calls after a packet as missing.
    pub(super) fn rewind_after(&mut self, seq: u64) {
        let complete = |call: &&mut SentCall| call.began > seq && call.is_complete();
        self.sent.iter_mut().filter(complete).for_each(|call| call.is_repeated = false);
    }

    /// Begins a call of the present attempt. `before` is its native beginning, if that was not
    /// sent.
    pub(super) fn start(
        &mut self,
        id: &str,
        event: &Event,
        raw: RawObject,
        before: Vec<RawObject>,
    ) {
        let (id, name) = (id.to_owned(), name_of(event));
        let (arguments, start, end) = (String::new(), raw, None);
        let (is_whole, is_skipped, known_as) = (false, false, None);
        let call =
            OwnCall { id, name, arguments, before, start, end, is_whole, is_skipped, known_as };
        self.own.push(call);
    }

    /// Takes a later event of a call of the present attempt. Returns it with the id that viewers
    /// know if it can be sent now: its call is matched already, or it belongs to no call of this
    /// attempt.
    pub(super) fn take(&mut self, id: &str, step: &CallStep, raw: RawObject) -> Option<RawObject> {
        let Some(call) = self.own.iter_mut().rev().find(|call| call.id == id) else {
            return Some(raw);
        };
        if let Some(known_as) = &call.known_as {
            return Some(renamed(&raw, id, known_as)).filter(|_| !call.is_skipped);
        }
        match step {
            CallStep::Arguments(piece) => call.arguments.push_str(piece),
            CallStep::End => (call.end, call.is_whole) = (Some(raw), true),
            CallStep::Start | CallStep::Result => {}
        }
        None
    }

    /// Marks a call as complete, or all calls if no id is given.
    pub(super) fn complete(&mut self, id: Option<&str>) {
        let is_meant = |call: &&mut OwnCall| id.is_none_or(|id| call.id == id);
        let open = self.own.iter_mut().filter(|call| call.known_as.is_none()).filter(is_meant);
        open.for_each(|call| call.is_whole = true);
    }

    /// The id under which viewers know a call of the present attempt; `None` if they do not know
    /// the call.
    pub(super) fn known_as(&self, id: &str) -> Option<&str> {
        match self.own.iter().rev().find(|call| call.id == id) {
            Some(call) => call.known_as.as_deref(),
            None => self.sent.iter().rev().find(|call| call.id == id).map(|call| call.id.as_str()),
        }
    }

    /// Whether viewers do not know this call of the present attempt yet.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        let own = self.own.iter().rev().find(|call| call.id == id);
        own.is_some_and(|call| call.known_as.is_none())
    }

    /// Decides the next step.
    pub(super) fn next(&mut self) -> Next {
        let mut differs = false;
        for at in 0..self.own.len() {
            let Some(call) = self.own.get(at).filter(|call| call.known_as.is_none()) else {
                continue;
            };
            match self.judge(call) {
                Verdict::Equal(sent) => return self.skip(at, sent),
                Verdict::Continues(sent) => return self.continue_call(at, sent),
                Verdict::New => return self.begin(at),
                Verdict::Different => differs = true,
                Verdict::Open => {}
            }
        }
        if differs { Next::Differs } else { Next::Wait }
    }

    /// Compares a call with all missing ones, because parallel calls have no order.
    fn judge(&self, own: &OwnCall) -> Verdict {
        let missing = || self.sent.iter().enumerate().filter(|(_, sent)| !sent.is_repeated);
        if missing().next().is_none() {
            return Verdict::New;
        }
        if !own.is_whole && missing().any(|(_, sent)| sent.is_complete()) {
            return Verdict::Open;
        }
        let of_tool = || missing().filter(|(_, sent)| sent.name == own.name);
        let equal = || of_tool().filter(|(_, sent)| is_same(&sent.arguments, &own.arguments));
        let complete = equal().find(|(_, sent)| own.is_whole && sent.is_complete());
        if let Some((at, _)) = complete {
            return Verdict::Equal(at);
        }
        let halves = || of_tool().filter(|(_, sent)| !sent.is_complete());
        let mut through = halves().filter(|(_, half)| half.has_all(&own.arguments));
        if let Some((at, _)) = through.next() {
            return Verdict::Continues(at);
        }
        if !own.is_whole && halves().any(|(_, half)| half.may_become(&own.arguments)) {
            return Verdict::Open;
        }
        // Prefer the longest beginning: a shorter one also fits whatever a longer one fits.
        let begun = halves().filter(|(_, half)| own.arguments.starts_with(&half.arguments));
        let begun = begun.max_by_key(|(at, half)| (half.arguments.len(), usize::MAX - at));
        let equal_open = || equal().find(|(_, sent)| own.is_whole && !sent.is_complete());
        begun.or_else(equal_open).map_or(Verdict::Different, |(at, _)| Verdict::Continues(at))
    }

    fn skip(&mut self, at: usize, sent: usize) -> Next {
        let id = self.mark_repeated(sent);
        let Some(own) = self.own.get_mut(at) else { return Next::Wait };
        (own.known_as, own.is_skipped) = (id, true);
        Next::Skip(std::mem::take(&mut own.arguments).len())
    }

    fn continue_call(&mut self, at: usize, sent: usize) -> Next {
        let id = self.mark_repeated(sent);
        let (Some(own), Some(id)) = (self.own.get_mut(at), id) else { return Next::Wait };
        let (written, begun) = (std::mem::take(&mut own.arguments), self.sent.get(sent));
        // If the complete arguments were sent in another spelling, there is no rest to send.
        let rest = begun.and_then(|begun| written.strip_prefix(begun.arguments.as_str()));
        let rest = arguments(&id, rest.unwrap_or_default());
        let end = own.end.as_ref().map(|end| renamed(end, &own.id, &id));
        own.known_as = Some(id);
        Next::Send(rest.into_iter().chain(end).collect())
    }

    /// Begins a new call. If its id is in use, it gets another: some servers number their calls
    /// anew in each answer.
    fn begin(&mut self, at: usize) -> Next {
        let Some(own) = self.own.get(at) else { return Next::Wait };
        let is_taken = |id: &String| self.sent.iter().any(|sent| sent.id == *id);
        let others = (2..=u32::MAX).map(|n| format!("{}-{n}", own.id));
        let mut names = std::iter::once(own.id.clone()).chain(others);
        let id = names.find(|id| !is_taken(id)).unwrap_or_default();
        let start = renamed(&own.start, &own.id, &id);
        let end = own.end.as_ref().map(|end| renamed(end, &own.id, &id));
        let Some(own) = self.own.get_mut(at) else { return Next::Wait };
        let written = arguments(&id, &std::mem::take(&mut own.arguments));
        own.known_as = Some(id);
        let before = std::mem::take(&mut own.before).into_iter();
        Next::Send(before.chain([start]).chain(written).chain(end).collect())
    }

    fn mark_repeated(&mut self, sent: usize) -> Option<String> {
        let sent = self.sent.get_mut(sent)?;
        sent.is_repeated = true;
        Some(sent.id.clone())
    }

    /// The packet before the first sent call that the present attempt has not repeated.
    pub(super) fn first_missing(&self) -> Option<u64> {
        let missing = self.sent.iter().filter(|sent| !sent.is_repeated);
        missing.map(|sent| sent.began.saturating_sub(1)).min()
    }

    /// Whether the present attempt has calls of which viewers know nothing yet.
    pub(super) fn has_undecided(&self) -> bool {
        self.own.iter().any(|own| own.known_as.is_none())
    }

    /// The first packet of the sent calls that the present attempt has yet to make. Its calls that
    /// are undecided count as sent ones, in their order.
    pub(super) fn next_missing(&self) -> Option<u64> {
        let undecided = self.own.iter().filter(|own| own.known_as.is_none()).count();
        let missing = self.sent.iter().filter(|sent| !sent.is_repeated);
        missing.map(|sent| sent.began).nth(undecided)
    }

    /// The last packet of a complete call. Nothing up to it can be taken back.
    pub(super) fn last_whole(&self) -> u64 {
        self.sent.iter().filter_map(SentCall::ended).max().unwrap_or(0)
    }

    /// The last packet before `seq` that completes a repeated call.
    pub(super) fn last_repeated_before(&self, seq: u64) -> u64 {
        let repeated = self.sent.iter().filter(|sent| sent.is_repeated).filter_map(SentCall::ended);
        repeated.filter(|ended| *ended < seq).max().unwrap_or(0)
    }

    /// The last packet up to `seq` at which no call is open.
    pub(super) fn outside(&self, seq: u64) -> u64 {
        let around = |sent: &&SentCall| sent.began <= seq && seq < sent.last;
        match self.sent.iter().filter(around).map(|sent| sent.began.saturating_sub(1)).min() {
            Some(before) => self.outside(before),
            None => seq,
        }
    }

    /// The repeated calls after a packet, which must be sent again after a reset.
    pub(super) fn repeated_after(&self, seq: u64) -> Vec<(u64, RawObject)> {
        let repeated = self.sent.iter().filter(|sent| sent.is_repeated && sent.began > seq);
        repeated
            .flat_map(|sent| {
                let parts = std::iter::once(sent.start.clone());
                let parts =
                    parts.chain(arguments(&sent.id, &sent.arguments)).chain(sent.end.clone());
                parts.map(|part| (sent.began, part))
            })
            .collect()
    }

    /// Gives a result the id that viewers know. Also returns the packet of an earlier result of
    /// this call.
    pub(super) fn result(&self, id: &str, raw: &RawObject) -> (RawObject, Option<u64>) {
        let own = self.own.iter().rev().find(|call| call.id == id);
        let Some(known_as) = own.and_then(|call| call.known_as.as_deref()) else {
            return (raw.clone(), None);
        };
        let sent = self.sent.iter().rev().find(|call| call.id == known_as);
        (renamed(raw, id, known_as), sent.and_then(|call| call.result))
    }
}

impl SentCall {
    /// Whether a client may have acted on it. Some agents send a result without an end.
    fn is_complete(&self) -> bool {
        self.end.is_some() || self.result.is_some()
    }

    /// The packet that completed it.
    fn ended(&self) -> Option<u64> {
        self.is_complete().then_some(self.last)
    }

    /// Whether these are its complete arguments: nothing can follow a complete object.
    fn has_all(&self, arguments: &str) -> bool {
        self.arguments == arguments && arguments.ends_with('}') && is_json(arguments)
    }

    /// Whether incomplete arguments may still become equal to these.
    fn may_become(&self, arguments: &str) -> bool {
        let is_spelled_otherwise =
            || !arguments.starts_with(&self.arguments) && is_json(&self.arguments);
        self.arguments.starts_with(arguments) || is_spelled_otherwise()
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Compares arguments as JSON values, so that their spelling does not matter.
fn is_same(a: &str, b: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    a == b || value(a).is_some_and(|a| value(b) == Some(a))
}
