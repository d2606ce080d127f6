//! What a whole stream may say: every packet follows from the scripts and from what has happened.

use capstan_protocol::{
    ErrorSeverity, Event, EventView, Payload, RawObject, StreamError, StreamPacket,
};

use crate::model::run::Run;
use crate::model::script::{End, Script};
use crate::model::world::World;

/// The only gap there may be.
pub(crate) const LOST_TAIL_GAP: u64 = 1 << 20;

/// A stream as its viewers have it, resets applied.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) text: String,
    marks: Vec<(u64, usize)>,
    /// Seq and number of each event.
    events: Vec<(u64, usize)>,
    resets: usize,
    fatal: Option<String>,
    close: Option<String>,
}

impl Told {
    pub(crate) fn take(&mut self, packet: &StreamPacket) {
        match &packet.payload {
            Payload::Delta(text) => {
                self.text.push_str(text);
                self.marks.push((packet.seq, self.text.len()));
            }
            Payload::Event(raw) => self.event(packet.seq, raw),
            Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
                self.fatal = Some(error.code.clone());
            }
            Payload::Error(_) => {}
            Payload::Close(close) => self.close = Some(close.reason()),
        }
    }

    fn event(&mut self, seq: u64, raw: &RawObject) {
        let event = Event::of(raw);
        let EventView::Reset(reset) = event.view() else {
            let number = event.data.get("number").and_then(|n| n.as_u64()).unwrap_or_default();
            self.events.push((seq, number as usize));
            return;
        };
        self.resets += 1;
        self.marks.retain(|(seq, _)| *seq <= reset.after_seq);
        self.events.retain(|(seq, _)| *seq <= reset.after_seq);
        self.text.truncate(self.marks.last().map_or(0, |(_, end)| *end));
    }

    fn shows(&self, event: usize) -> usize {
        self.events.iter().filter(|(_, number)| *number == event).count()
    }
}

/// A run's scripts and history, against which its stream is read.
pub(crate) struct Expected<'a> {
    run: &'a Run,
    world: &'a World,
    scripts: Vec<Script>,
}

impl<'a> Expected<'a> {
    pub(crate) fn new(world: &'a World, run: &'a Run) -> Self {
        Self { run, world, scripts: run.scripts(world.seed) }
    }

    /// Checks a stream that is closed.
    pub(crate) fn check(&self, packets: &[StreamPacket]) -> Result<Told, String> {
        let mut told = Told::default();
        let mut last = 0;
        for packet in packets {
            self.check_packet(&told, packet, last)?;
            told.take(packet);
            last = packet.seq;
            if !self.scripts.iter().any(|script| script.text().starts_with(&told.text)) {
                return Err(format!("no attempt says {:?} (at seq {last})", told.text));
            }
        }
        self.check_end(&told)?;
        Ok(told)
    }

    fn check_packet(&self, told: &Told, packet: &StreamPacket, last: u64) -> Result<(), String> {
        let seq = packet.seq;
        if told.close.is_some() {
            return Err(format!("seq {seq} follows CLOSE"));
        }
        if told.fatal.is_some() && !matches!(packet.payload, Payload::Close(_)) {
            return Err(format!("seq {seq} follows a FATAL error and is not CLOSE"));
        }
        let is_lost =
            matches!(&packet.payload, Payload::Error(error) if error.code == "stream_lost");
        if seq != last + if is_lost { LOST_TAIL_GAP } else { 1 } {
            return Err(format!("seq {seq} follows {last}"));
        }
        match &packet.payload {
            Payload::Error(error) if !self.may_err(error) => {
                Err(format!("seq {seq}: {} {} has no cause", error.severity, error.code))
            }
            Payload::Delta(_) | Payload::Event(_) | Payload::Error(_) | Payload::Close(_) => Ok(()),
        }
    }

    fn may_err(&self, error: &StreamError) -> bool {
        let ends = |wanted: fn(End) -> bool| {
            self.scripts.iter().any(|s| s.end.code() == Some(&error.code) && wanted(s.end))
        };
        let was_interrupted = error.code == "run_interrupted" && self.world.interruptions > 0;
        let is_attempt =
            error.details.as_ref().is_some_and(|details| details.contains_key("attempt"));
        match error.severity {
            ErrorSeverity::Warning if is_attempt => {
                ends(|end| matches!(end, End::Short(_) | End::Hang))
            }
            ErrorSeverity::Warning => error.code == "upstream_error",
            ErrorSeverity::Transient => {
                was_interrupted || ends(|end| matches!(end, End::Long(_) | End::Last))
            }
            ErrorSeverity::Fatal => {
                was_interrupted
                    || ends(|_| true)
                    || (error.code == "stream_lost" && self.world.power_cuts > 0)
                    || (error.code == "attempt_diverged" && !self.run.accepts_reset)
            }
        }
    }

    fn check_end(&self, told: &Told) -> Result<(), String> {
        if told.resets > 0 && !self.run.accepts_reset {
            return Err("a reset was sent to a client that cannot take one".into());
        }
        match (told.close.as_deref(), &told.fatal) {
            (Some("completed"), None) => self.check_completed(told),
            (Some("cancelled"), None) if self.run.stops > 0 => Ok(()),
            (Some("error"), Some(_)) => Ok(()),
            (close, fatal) => {
                Err(format!("a stream ended with {close:?} after the fault {fatal:?}"))
            }
        }
    }

    /// The text is the last attempt's, and so are the events, whatever earlier ones left of theirs.
    fn check_completed(&self, told: &Told) -> Result<(), String> {
        let index = (self.run.last_attempt as usize)
            .checked_sub(1)
            .ok_or("completed without an attempt")?;
        let script = &self.scripts[index];
        if script.end != End::Complete || script.text() != told.text {
            return Err(format!(
                "attempt {} says {:?}, but the stream says {:?}",
                index + 1,
                script.text(),
                told.text
            ));
        }
        for (_, event) in &told.events {
            let most = self.scripts.iter().map(|script| script.shows(*event)).max().unwrap_or(0);
            if told.shows(*event) > most {
                return Err(format!("event {event} was repeated"));
            }
        }
        let says = script.says.iter();
        let shown = says.filter_map(|say| {
            if let crate::model::script::Say::Event(n) = say { Some(*n) } else { None }
        });
        match shown.into_iter().find(|event| told.shows(*event) < script.shows(*event)) {
            Some(event) => Err(format!("event {event} is missing")),
            None => Ok(()),
        }
    }

    /// What kind of stream it was, for the tally.
    pub(crate) fn outcome(told: &Told) -> &'static str {
        match told.close.as_deref() {
            Some("completed") if told.resets > 0 => "completed after a reset",
            Some("completed") => "completed",
            Some("cancelled") => "cancelled",
            Some(_) | None => "failed",
        }
    }
}
