//! `command`: a process that speaks stream-json on its standard output, such as an agent CLI.

mod decoder;
mod lines;
mod permission;
mod process;
mod prompt;
mod stderr_tail;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use capstan_agent::{About, Agent, Clock, Outcome, Timer, Turn, Work, Writer};
use capstan_protocol::Fault;
use capstan_protocol::fault::Upstream;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

pub use decoder::Decoder;
pub use lines::Lines;

use crate::attempt_writer::AttemptWriter;
use crate::callee::{Ask, Callee};
use crate::config::{ConfigError, read_keys};
use crate::decode::Step;
use crate::failed_call::FailedCall;
use crate::http::timed_out;
use crate::kind::{Build, Common, Kind};
use crate::retries::Retries;
use crate::timeouts::{CallTimeouts, left};
use process::Process;
use prompt::PromptBy;

/// The row of this kind.
pub(crate) const KIND: Kind = Kind {
    name: "command",
    what: "a process that speaks stream-json",
    retries: Retries::CAREFUL,
    timeouts: CallTimeouts::PROCESS,
    provider: None,
    build: Build::Adapter(|keys, common| build(read_keys(keys)?, common)),
};

/// The longest line, in bytes. A line may contain a whole file that a tool read.
pub const DEFAULT_MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// How long a process may run after its result. Some sessions have several results; some hang.
const AFTER_RESULT: Duration = Duration::from_secs(2);

/// The kind's own configuration keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    command: Vec<String>,
    #[serde(default)]
    prompt: PromptBy,
    #[serde(default = "yes")]
    history: bool,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Names of the gateway's variables that the program gets, besides the usual ones.
    #[serde(default)]
    inherit: Vec<String>,
    max_line_bytes: Option<usize>,
}

fn yes() -> bool {
    true
}

/// The result of a process that did not fail.
enum ProcessEnd {
    All,
    /// A question that only a person can answer.
    Question,
}

struct Command {
    config: Config,
    retries: Retries,
    times: CallTimeouts,
    clock: Clock,
}

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    if config.command.first().is_none_or(String::is_empty) {
        return Err(ConfigError::at("command", "needs a program and, after it, its arguments"));
    }
    let (retries, times, clock) = (common.retries, common.times, common.clock.clone());
    Ok(Box::new(Command { config, retries, times, clock }))
}

#[async_trait]
impl Agent for Command {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let mut writer = AttemptWriter::new(out);
        let attempt = turn.attempt;
        let called = self.start(&turn, &mut writer).await;
        called.map_err(|failed| {
            self.retries.verdict(failed.fault, attempt, writer.has_written()).into()
        })
    }

    fn max_attempts(&self) -> u32 {
        self.retries.attempts
    }

    fn about(&self) -> About {
        About::agent("command", Work::Local)
    }
}

#[async_trait]
impl Callee for Command {
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall> {
        self.start(ask.turn, out).await
    }

    fn is_repeatable(&self) -> bool {
        self.retries.is_repeatable
    }
}

impl Command {
    /// Runs one process. A process that cannot be started has had no effect.
    async fn start(&self, turn: &Turn, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall> {
        let prompt = prompt::make(turn, self.config.prompt, self.config.history)?;
        let started = Process::start(&self.config, turn, prompt, &self.clock);
        let mut process = started.map_err(|fault| FailedCall::from(fault).refused())?;
        let fault = match self.listen(&mut process, turn, out).await {
            Ok(ProcessEnd::All) => {
                process.end();
                return Ok(());
            }
            // The process waits for an answer, which a later process will get.
            Ok(ProcessEnd::Question) => return Ok(()),
            Err(fault) => fault,
        };
        let upstream = Upstream { stderr: process.stderr_tail().await, ..Upstream::default() };
        Err(fault.with_upstream(upstream).into())
    }

    async fn listen(
        &self,
        process: &mut Process,
        turn: &Turn,
        out: &mut AttemptWriter<'_>,
    ) -> Result<ProcessEnd, Fault> {
        let began = Instant::now();
        let mut lines = Lines::new(self.config.max_line_bytes.unwrap_or(DEFAULT_MAX_LINE_BYTES));
        let mut decoder = Decoder::with_answers(turn.all_answers().cloned().collect());
        let (mut outputs, mut last_output, mut ends_at) = (Vec::new(), None, None);
        let mut buffer = BytesMut::with_capacity(64 * 1024);
        loop {
            buffer.clear();
            let (limit, until) = self.deadline(began, last_output, ends_at);
            match self.clock.within(limit, left(until), process.output.read_buf(&mut buffer)).await
            {
                // The process has sent its result but does not exit: the run is over.
                None if ends_at.is_some() => break,
                None => return Err(timed_out(limit)),
                Some(Ok(0) | Err(_)) => break,
                Some(Ok(_)) => lines.push(&buffer),
            }
            let step = take(&mut lines, &mut decoder, &mut outputs);
            for reply in decoder.take_replies() {
                process.reply(reply)?;
            }
            let is_mute = outputs.is_empty();
            out.write(&mut outputs).await.map_err(Fault::from_error)?;
            if decoder.has_asked() {
                return Ok(ProcessEnd::Question);
            }
            match step? {
                Step::Quiet => {}
                Step::Heard => {
                    (last_output, ends_at) = (Some(Instant::now()), None);
                    if is_mute {
                        out.alive().map_err(Fault::from_error)?;
                    }
                }
                Step::Ending | Step::Done => {
                    process.close_input();
                    ends_at = Some(Instant::now() + AFTER_RESULT);
                }
            }
        }
        let ended = decoder.finish(&mut outputs);
        out.write(&mut outputs).await.map_err(Fault::from_error)?;
        match ended {
            Some(outcome) => outcome.map(|()| ProcessEnd::All),
            None => Err(process.failure(ends_at.is_some()).await),
        }
    }

    fn deadline(
        &self,
        began: Instant,
        last_output: Option<Instant>,
        ends_at: Option<Instant>,
    ) -> (Timer, Instant) {
        let (limit, until) = match (ends_at, last_output) {
            (Some(end), _) => (Timer::Grace, end),
            (None, Some(at)) => (Timer::Idle, at + self.times.idle),
            (None, None) => (Timer::FirstToken, began + self.times.first_token),
        };
        let total = began + self.times.total;
        if total < until { (Timer::Total, total) } else { (limit, until) }
    }
}

/// Decodes all complete lines. Returns the strongest step among them.
fn take(
    lines: &mut Lines,
    decoder: &mut Decoder,
    out: &mut Vec<capstan_agent::Output>,
) -> Result<Step, Fault> {
    let mut strongest = Step::Quiet;
    while let Some(line) = lines.next_line()? {
        match decoder.line(&line, out)? {
            Step::Quiet => {}
            step @ (Step::Heard | Step::Ending | Step::Done) => strongest = step,
        }
    }
    Ok(strongest)
}
