//! What the model knows of one key: its bodies, its run, how often its agent was called and why.

use bytes::Bytes;
use capstan_protocol::{AgentRequest, ServiceRequest, SessionContext, UserContext};
use tokio::time::Instant;
use uuid::Uuid;

use crate::model::script::{End, MAX_ATTEMPTS, Script};

/// How far a key has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody has heard of a run under it; one may have begun.
    Fresh,
    /// Its run is known.
    Known,
    /// Retention took the run's stream, the claim is left.
    Retired,
}

/// How an attempt came to its end.
#[derive(Debug, Clone, Copy)]
struct Ended {
    attempt: u32,
    life: u32,
    end: End,
    at: Instant,
    /// POSTs that had their answer by then: they cannot have asked for the next attempt.
    answered: u32,
}

pub(crate) struct Run {
    pub(crate) name: usize,
    pub(crate) key: Uuid,
    /// Two requests with the same key. The first to be claimed wins, the other is a conflict for
    /// good.
    pub(crate) bodies: [Bytes; 2],
    pub(crate) accepts_reset: bool,
    pub(crate) phase: Phase,
    pub(crate) stream: Option<Uuid>,
    pub(crate) winner: Option<usize>,
    /// Streams under this key whose claims are gone, too.
    pub(crate) past: Vec<Uuid>,
    pub(crate) posts: u32,
    pub(crate) answered: u32,
    pub(crate) posts_in_life: u32,
    pub(crate) stops: u32,
    /// A stop was asked for and had not come to its end when its client was answered.
    pub(crate) is_stop_owed: bool,
    pub(crate) last_attempt: u32,
    ended: Option<Ended>,
    /// Several gateways work on it, each with a clock of its own: nobody knows how long it has
    /// waited.
    pub(crate) is_anybodys: bool,
}

impl Run {
    pub(crate) fn new(name: usize, accepts_reset: bool) -> Self {
        let (key, session) = (Uuid::now_v7(), Uuid::now_v7());
        Self {
            name,
            key,
            bodies: [0, 1].map(|variant| body(key, session, &message(name, variant))),
            accepts_reset,
            phase: Phase::Fresh,
            stream: None,
            winner: None,
            past: Vec::new(),
            posts: 0,
            answered: 0,
            posts_in_life: 0,
            stops: 0,
            is_stop_owed: false,
            last_attempt: 0,
            ended: None,
            is_anybodys: false,
        }
    }

    /// The scripts of all attempts of the body that won.
    pub(crate) fn scripts(&self, seed: u64) -> Vec<Script> {
        let message = message(self.name, self.winner.unwrap_or(0));
        (1..=MAX_ATTEMPTS).map(|attempt| Script::of(seed, &message, attempt)).collect()
    }

    /// The claim is gone: the key may start anew.
    pub(crate) fn forget(&mut self) {
        self.past.extend(self.stream.take());
        self.phase = Phase::Fresh;
        (self.winner, self.ended) = (None, None);
        (self.stops, self.last_attempt) = (0, 0);
    }

    /// A process died: who was not answered never will be.
    pub(crate) fn begin_life(&mut self) {
        self.answered = self.posts;
        self.posts_in_life = 0;
    }

    /// This body has the key.
    pub(crate) fn won(&mut self, variant: usize) -> Result<(), String> {
        if *self.winner.get_or_insert(variant) == variant {
            return Ok(());
        }
        Err(format!("run {}: both bodies were accepted under one key", self.name))
    }

    /// A response named this stream.
    pub(crate) fn attached(&mut self, stream: Uuid) -> Result<(), String> {
        self.phase = Phase::Known;
        let known = *self.stream.get_or_insert(stream);
        if known == stream {
            return Ok(());
        }
        Err(format!("run {}: two streams under one key, {known} and {stream}", self.name))
    }

    /// The agent was called: only once for an attempt, and only because somebody asked.
    pub(crate) fn start(&mut self, variant: usize, attempt: u32, life: u32) -> Result<(), String> {
        self.won(variant)?;
        let is_new = self.last_attempt < attempt;
        self.last_attempt = attempt;
        if !is_new || attempt > MAX_ATTEMPTS {
            return Err(format!(
                "run {}: attempt {attempt} was started when it must not be",
                self.name
            ));
        }
        if self.posts_in_life == 0 {
            return Err(format!(
                "run {}: the agent was called in a life in which nobody asked",
                self.name
            ));
        }
        match self.ended.filter(|_| !self.is_anybodys) {
            Some(ended) if ended.attempt + 1 == attempt && ended.life == life => {
                self.check_pause(ended)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_pause(&self, ended: Ended) -> Result<(), String> {
        let wait = match ended.end {
            End::Long(wait) => wait,
            End::Last => 0,
            End::Complete | End::Short(_) | End::Fatal | End::Hang => return Ok(()),
        };
        if self.posts <= ended.answered {
            return Err(format!(
                "run {}: it waited, and went on without a client asking",
                self.name
            ));
        }
        // Half of it: the moment is kept by the wall clock, the wait by the virtual one.
        if ended.at.elapsed().as_secs() < wait / 2 {
            return Err(format!("run {}: the next attempt began before its time", self.name));
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, attempt: u32, life: u32, end: End) {
        self.ended =
            Some(Ended { attempt, life, end, at: Instant::now(), answered: self.answered });
    }
}

/// What the user says; the agent's script and its record hang on it.
pub(crate) fn message(name: usize, variant: usize) -> String {
    format!("{name}/{variant}")
}

/// Name and variant of a message.
pub(crate) fn parse(message: &str) -> Option<(usize, usize)> {
    let (name, variant) = message.split_once('/')?;
    Some((name.parse().ok()?, variant.parse().ok()?))
}

fn body(key: Uuid, session: Uuid, text: &str) -> Bytes {
    let context = SessionContext::new(session, UserContext::new("u"));
    let mut request = ServiceRequest::new(context, AgentRequest::query(session, text));
    request.request_id = key;
    serde_json::to_vec(&request).unwrap().into()
}
