//! Reading a response frame by frame, and what must hold for every single body.

use std::time::Duration;

use axum::body::Body;
use capstan_journal::RunState;
use capstan_protocol::{ErrorSeverity, Payload, StreamPacket};
use fastrand::Rng;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use uuid::Uuid;

use crate::model::run::Phase;
use crate::model::stream::LOST_TAIL_GAP;
use crate::model::truth::Truth;
use crate::model::world::Shared;

/// Nobody in a schedule is slower than this: who has heard nothing for so long asks the store
/// whether that is right.
const PATIENCE: Duration = Duration::from_secs(60);
/// What was stored this moment may still be on its way.
const GRACE: Duration = Duration::from_secs(5);
/// Where several processes share the store, and the clock steps by seconds.
const SHARED_GRACE: Duration = Duration::from_secs(40);

/// One open response.
pub(crate) struct Reading {
    pub(crate) world: Shared,
    pub(crate) truth: Truth,
    pub(crate) run: usize,
    pub(crate) stream: Uuid,
    /// By POST: the body ends when the run waits.
    pub(crate) is_post: bool,
    pub(crate) cursor: u64,
    /// The last packet of this body.
    pub(crate) last: Option<StreamPacket>,
    pub(crate) is_open: bool,
    pub(crate) rng: Rng,
    /// Others write to the store as well.
    pub(crate) is_shared: bool,
}

impl Reading {
    /// Reads to the end, or `frames` frames.
    pub(crate) async fn read(mut self, mut body: Body, frames: Option<usize>) {
        let mut left = frames.unwrap_or(usize::MAX);
        while left > 0 {
            match self.step(&mut body).await {
                Ok(true) => left -= 1,
                Ok(false) => return,
                Err(why) => {
                    let name =
                        format!("a reader of run {} at seq {}: {why}", self.run, self.cursor);
                    return self.world.lock().fail(name);
                }
            }
            self.dawdle().await;
        }
    }

    /// Some readers are slow.
    async fn dawdle(&mut self) {
        match self.rng.u32(0..20) {
            0 => tokio::time::sleep(Duration::from_millis(self.rng.u64(1..3000))).await,
            1..4 => tokio::task::yield_now().await,
            _ => {}
        }
    }

    async fn step(&mut self, body: &mut Body) -> Result<bool, String> {
        let Ok(next) = timeout(PATIENCE, body.frame()).await else {
            return self.insist(body).await;
        };
        let goes_on = self.take(next)?;
        if self.is_shared && self.last.is_some() {
            self.check_stored().await?;
        }
        Ok(goes_on)
    }

    /// What is shown is stored, whoever stored it; but for what a server that crashed has lost,
    /// until it is written again.
    async fn check_stored(&self) -> Result<(), String> {
        let stored = self.truth.read(self.stream, self.cursor - 1, 1).await?;
        if stored.is_empty() && self.world.lock().power_cuts == 0 {
            return Err("it was shown what is not stored".into());
        }
        Ok(())
    }

    fn take(
        &mut self,
        next: Option<Result<hyper::body::Frame<bytes::Bytes>, axum::Error>>,
    ) -> Result<bool, String> {
        match next {
            Some(Ok(frame)) => self.chunk(frame.data_ref().map_or(&[], |data| data)).map(|()| true),
            Some(Err(_)) if self.may_be_cut() => Ok(false),
            Some(Err(error)) => Err(format!("the body was cut: {error}")),
            None => self.end().map(|()| false),
        }
    }

    /// Retention takes streams from under their readers.
    fn may_be_cut(&self) -> bool {
        let world = self.world.lock();
        let run = &world.runs[self.run];
        run.phase != Phase::Known || run.stream != Some(self.stream) || world.is_expiring
    }

    /// Silence is right only if there is nothing to read.
    async fn insist(&mut self, body: &mut Body) -> Result<bool, String> {
        let Some(run) = self.truth.run(self.stream).await? else {
            return Ok(true);
        };
        let is_over = match run.state {
            RunState::Running => false,
            RunState::Waiting => self.is_post,
            RunState::Closed => true,
        };
        if !is_over && run.last_seq <= self.cursor {
            return Ok(true);
        }
        let grace = if self.is_shared { SHARED_GRACE } else { GRACE };
        let Ok(next) = timeout(grace, body.frame()).await else {
            return Err(format!(
                "it sleeps, but the run is {:?} at seq {}",
                run.state, run.last_seq
            ));
        };
        self.take(next)
    }

    fn chunk(&mut self, chunk: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(chunk).map_err(|_| "a chunk is torn within a character")?;
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix(":\n") {
                rest = after;
                continue;
            }
            let end = rest.find("\n\n").ok_or_else(|| format!("a frame is torn: {rest:?}"))? + 2;
            let (frame, after) = rest.split_at(end);
            self.frame(frame)?;
            rest = after;
        }
        Ok(())
    }

    fn frame(&mut self, frame: &str) -> Result<(), String> {
        if !self.is_open {
            self.is_open = true;
            let expected = format!("retry: 500\nid: {}:{}\n\n", self.stream, self.cursor);
            return if frame == expected {
                Ok(())
            } else {
                Err(format!("it opens with {frame:?}"))
            };
        }
        let head = format!("event: stream.packet\nid: {}:", self.stream);
        let rest =
            frame.strip_prefix(&head).ok_or_else(|| format!("a strange frame: {frame:?}"))?;
        let (seq, data) = rest.split_once("\ndata: ").ok_or("a frame without data")?;
        let packet = StreamPacket::decode(data.trim_end()).map_err(|e| e.to_string())?;
        if seq.parse() != Ok(packet.seq) || packet.stream_id != self.stream {
            return Err(format!("id and packet disagree: {frame:?}"));
        }
        self.packet(packet, frame)
    }

    fn packet(&mut self, packet: StreamPacket, frame: &str) -> Result<(), String> {
        let is_lost = matches!(&packet.payload, Payload::Error(e) if e.code == "stream_lost");
        let is_close = matches!(packet.payload, Payload::Close(_));
        // A POST that has seen the end gets it again, so that it knows.
        let is_repeat =
            is_close && self.is_post && self.last.is_none() && packet.seq == self.cursor;
        let next = self.cursor + if is_lost { LOST_TAIL_GAP } else { 1 };
        if packet.seq != next && !is_repeat {
            return Err(format!("seq {} follows {}", packet.seq, self.cursor));
        }
        if self.is_closed() {
            return Err(format!("seq {} follows CLOSE", packet.seq));
        }
        self.world.lock().see(self.stream, packet.seq, frame.as_bytes());
        self.cursor = packet.seq;
        self.last = Some(packet);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.last.as_ref().is_some_and(|packet| matches!(packet.payload, Payload::Close(_)))
    }

    /// A body ends cleanly after CLOSE; one by POST also when the run waits.
    fn end(&self) -> Result<(), String> {
        let is_waiting = self.last.as_ref().is_some_and(|packet| {
            matches!(&packet.payload,
            Payload::Error(e) if e.severity == ErrorSeverity::Transient)
        });
        if self.is_closed() || (self.is_post && is_waiting) || self.world.lock().is_draining {
            return Ok(());
        }
        Err(format!("the body ends after {:?}", self.last))
    }
}
