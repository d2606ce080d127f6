//! Tool calls over several attempts.
//!
//! A call is sent as it is written. One that was sent as a whole may have been acted upon: money
//! may have moved. So it is never sent a second time, under whatever id, and never taken back; a
//! later attempt has to make the same calls, in any order. One that broke off is continued.

use capstan_protocol::{Event, RawObject};
use serde_json::Value;

use super::call_event::{Said, arguments, name_of, renamed};

/// A call that viewers have, all of it or a beginning.
struct SentCall {
    id: String,
    name: String,
    arguments: String,
    start: RawObject,
    end: Option<RawObject>,
    /// The first and the last packet that tell of it.
    began: u64,
    last: u64,
    /// Where its result was told.
    result: Option<u64>,
    /// The present attempt makes it again, or began it.
    met: bool,
}

/// A call of the present attempt.
struct OwnCall {
    id: String,
    name: String,
    /// All of it so far, as long as nobody knows which call it is.
    arguments: String,
    start: RawObject,
    end: Option<RawObject>,
    /// No more of it comes.
    is_whole: bool,
    /// It was sent before; nothing of it is sent.
    is_skipped: bool,
    /// The id under which viewers know it.
    known_as: Option<String>,
}

/// What a call of the present attempt turns out to be.
enum Verdict {
    /// A complete one that was sent.
    Equal(usize),
    /// One that broke off.
    Continues(usize),
    /// A further one.
    New,
    /// Too early to say.
    Open,
    /// None of those that were sent and are still missing.
    Different,
}

/// What is to be done about the calls of the present attempt.
pub(super) enum Next {
    /// These events are to be sent.
    Send(Vec<RawObject>),
    /// A call of so many bytes was sent before.
    Skip(usize),
    /// One of them was not sent before, although others are missing.
    Differs,
    /// To wait for more.
    Wait,
}

/// Calls that were sent, and those that the present attempt makes.
#[derive(Default)]
pub(super) struct CallDiff {
    sent: Vec<SentCall>,
    own: Vec<OwnCall>,
}

impl CallDiff {
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.sent.iter().map(|call| call.arguments.len() + call.start.get().len()).sum()
    }

    /// Takes note of an event that was sent.
    pub(super) fn sent(&mut self, seq: u64, event: &Event, raw: &RawObject) {
        let Some((id, said)) = Said::of(event) else { return };
        if matches!(said, Said::Start) {
            return self.sent.push(SentCall {
                id,
                name: name_of(event),
                arguments: String::new(),
                start: raw.clone(),
                end: None,
                began: seq,
                last: seq,
                result: None,
                met: true,
            });
        }
        let Some(call) = self.sent.iter_mut().rev().find(|call| call.id == id) else { return };
        match said {
            Said::Arguments(piece) => call.arguments.push_str(&piece),
            Said::End => call.end = Some(raw.clone()),
            Said::Result => return call.result = Some(seq),
            Said::Start => {}
        }
        call.last = seq;
    }

    /// Forgets what stands after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.sent.retain(|call| call.began <= after_seq);
        for call in &mut self.sent {
            call.result = call.result.filter(|seq| *seq <= after_seq);
        }
    }

    /// A new attempt begins: nothing was made again yet.
    pub(super) fn rewind(&mut self) {
        self.sent.iter_mut().for_each(|call| call.met = false);
        self.own.clear();
    }

    /// Complete calls after a packet are to be made again.
    pub(super) fn rewind_after(&mut self, seq: u64) {
        let complete = |call: &&mut SentCall| call.began > seq && call.is_complete();
        self.sent.iter_mut().filter(complete).for_each(|call| call.met = false);
    }

    /// Takes a part of a call of the present attempt. It comes back under the id that viewers know,
    /// if they know the call, or if it belongs to none.
    pub(super) fn take(
        &mut self,
        id: &str,
        said: &Said,
        event: &Event,
        raw: RawObject,
    ) -> Option<RawObject> {
        if matches!(said, Said::Start) {
            let (id, name) = (id.to_owned(), name_of(event));
            let (arguments, start, end) = (String::new(), raw, None);
            let (is_whole, is_skipped, known_as) = (false, false, None);
            let call = OwnCall { id, name, arguments, start, end, is_whole, is_skipped, known_as };
            self.own.push(call);
            return None;
        }
        let Some(call) = self.own.iter_mut().rev().find(|call| call.id == id) else {
            return Some(raw);
        };
        if let Some(known_as) = &call.known_as {
            return Some(renamed(&raw, id, known_as)).filter(|_| !call.is_skipped);
        }
        match said {
            Said::Arguments(piece) => call.arguments.push_str(piece),
            Said::End => (call.end, call.is_whole) = (Some(raw), true),
            Said::Start | Said::Result => {}
        }
        None
    }

    /// Nothing more comes of a call; of any, if none is named.
    pub(super) fn complete(&mut self, id: Option<&str>) {
        let is_meant = |call: &&mut OwnCall| id.is_none_or(|id| call.id == id);
        let open = self.own.iter_mut().filter(|call| call.known_as.is_none()).filter(is_meant);
        open.for_each(|call| call.is_whole = true);
    }

    /// The id under which viewers know a call of the present attempt. None if they do not know it.
    pub(super) fn known_as(&self, id: &str) -> Option<&str> {
        match self.own.iter().rev().find(|call| call.id == id) {
            Some(call) => call.known_as.as_deref(),
            None => self.sent.iter().rev().find(|call| call.id == id).map(|call| call.id.as_str()),
        }
    }

    /// It is one that viewers do not know yet.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        let own = self.own.iter().rev().find(|call| call.id == id);
        own.is_some_and(|call| call.known_as.is_none())
    }

    /// What is to be done next.
    pub(super) fn next(&mut self) -> Next {
        let mut differs = false;
        for at in 0..self.own.len() {
            let Some(call) = self.own.get(at).filter(|call| call.known_as.is_none()) else {
                continue;
            };
            match self.judge(call) {
                Verdict::Equal(sent) => return self.skip(at, sent),
                Verdict::Continues(sent) => return self.go_on(at, sent),
                Verdict::New => return self.begin(at),
                Verdict::Different => differs = true,
                Verdict::Open => {}
            }
        }
        if differs { Next::Differs } else { Next::Wait }
    }

    /// Calls at once have no order, so any that is missing may be it.
    fn judge(&self, own: &OwnCall) -> Verdict {
        let missing = || self.sent.iter().enumerate().filter(|(_, sent)| !sent.met);
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
        // The longest beginning: a shorter one fits whatever a longer one fits.
        let begun = halves().filter(|(_, half)| own.arguments.starts_with(&half.arguments));
        let begun = begun.max_by_key(|(at, half)| (half.arguments.len(), usize::MAX - at));
        let spelled = || equal().find(|(_, sent)| own.is_whole && !sent.is_complete());
        begun.or_else(spelled).map_or(Verdict::Different, |(at, _)| Verdict::Continues(at))
    }

    fn skip(&mut self, at: usize, sent: usize) -> Next {
        let id = self.meet(sent);
        let Some(own) = self.own.get_mut(at) else { return Next::Wait };
        (own.known_as, own.is_skipped) = (id, true);
        Next::Skip(std::mem::take(&mut own.arguments).len())
    }

    fn go_on(&mut self, at: usize, sent: usize) -> Next {
        let id = self.meet(sent);
        let (Some(own), Some(id)) = (self.own.get_mut(at), id) else { return Next::Wait };
        let (said, begun) = (std::mem::take(&mut own.arguments), self.sent.get(sent));
        // Arguments that were all sent and are spelled otherwise now have no rest.
        let rest = begun.and_then(|begun| said.strip_prefix(begun.arguments.as_str()));
        let rest = arguments(&id, rest.unwrap_or_default());
        let end = own.end.as_ref().map(|end| renamed(end, &own.id, &id));
        own.known_as = Some(id);
        Next::Send(rest.into_iter().chain(end).collect())
    }

    /// A further call. Its id may be that of another one: some servers count anew in each answer.
    fn begin(&mut self, at: usize) -> Next {
        let Some(own) = self.own.get(at) else { return Next::Wait };
        let is_taken = |id: &String| self.sent.iter().any(|sent| sent.id == *id);
        let others = (2..=u32::MAX).map(|n| format!("{}-{n}", own.id));
        let mut names = std::iter::once(own.id.clone()).chain(others);
        let id = names.find(|id| !is_taken(id)).unwrap_or_default();
        let start = renamed(&own.start, &own.id, &id);
        let end = own.end.as_ref().map(|end| renamed(end, &own.id, &id));
        let Some(own) = self.own.get_mut(at) else { return Next::Wait };
        let said = arguments(&id, &std::mem::take(&mut own.arguments));
        own.known_as = Some(id);
        Next::Send(std::iter::once(start).chain(said).chain(end).collect())
    }

    fn meet(&mut self, sent: usize) -> Option<String> {
        let sent = self.sent.get_mut(sent)?;
        sent.met = true;
        Some(sent.id.clone())
    }

    /// The place just before the first call that the present attempt has not made again.
    pub(super) fn first_missing(&self) -> Option<u64> {
        let missing = self.sent.iter().filter(|sent| !sent.met);
        missing.map(|sent| sent.began.saturating_sub(1)).min()
    }

    /// The last place up to which whole calls were sent: nothing before it can be taken back.
    pub(super) fn last_whole(&self) -> u64 {
        self.sent.iter().filter_map(SentCall::ended).max().unwrap_or(0)
    }

    /// The last whole call before a packet that the present attempt has made again.
    pub(super) fn last_met_before(&self, seq: u64) -> u64 {
        let met = self.sent.iter().filter(|sent| sent.met).filter_map(SentCall::ended);
        met.filter(|ended| *ended < seq).max().unwrap_or(0)
    }

    /// The last place up to another at which no call is open.
    pub(super) fn outside(&self, seq: u64) -> u64 {
        let around = |sent: &&SentCall| sent.began <= seq && seq < sent.last;
        match self.sent.iter().filter(around).map(|sent| sent.began.saturating_sub(1)).min() {
            Some(before) => self.outside(before),
            None => seq,
        }
    }

    /// What the present attempt has made again after a packet, to be told anew behind a reset.
    pub(super) fn met_after(&self, seq: u64) -> Vec<(u64, RawObject)> {
        let met = self.sent.iter().filter(|sent| sent.met && sent.began > seq);
        met.flat_map(|sent| {
            let parts = std::iter::once(sent.start.clone());
            let parts = parts.chain(arguments(&sent.id, &sent.arguments)).chain(sent.end.clone());
            parts.map(|part| (sent.began, part))
        })
        .collect()
    }

    /// A result under the id that viewers know, and where the result of that call was told before.
    pub(super) fn result(&self, id: &str, raw: &RawObject) -> (RawObject, Option<u64>) {
        let own = self.own.iter().rev().find(|call| call.id == id);
        let Some(known_as) = own.and_then(|call| call.known_as.as_deref()) else {
            return (raw.clone(), None);
        };
        let told = self.sent.iter().rev().find(|call| call.id == known_as);
        (renamed(raw, id, known_as), told.and_then(|call| call.result))
    }
}

impl SentCall {
    /// Somebody may have acted upon it. Some agents tell no end of a call but its result.
    fn is_complete(&self) -> bool {
        self.end.is_some() || self.result.is_some()
    }

    /// The packet with which it was complete.
    fn ended(&self) -> Option<u64> {
        self.is_complete().then_some(self.last)
    }

    /// Whether these are all of its arguments: nothing can follow a whole object.
    fn has_all(&self, arguments: &str) -> bool {
        self.arguments == arguments && arguments.ends_with('}') && is_json(arguments)
    }

    /// Whether arguments that are still written may turn out to be these.
    fn may_become(&self, arguments: &str) -> bool {
        let is_spelled_otherwise =
            || !arguments.starts_with(&self.arguments) && is_json(&self.arguments);
        self.arguments.starts_with(arguments) || is_spelled_otherwise()
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// How arguments are spelled does not matter.
fn is_same(a: &str, b: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    a == b || value(a).is_some_and(|a| value(b) == Some(a))
}
