//! `capstan fake-provider`: a model provider that misbehaves on purpose, to rehearse an outage
//! with.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use capstan_fake_provider::{Call, Ending, FAULTS, FakeProvider, PLACES, Rule, Script};
use owo_colors::OwoColorize as _;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Failure;

/// How fast a healthy answer comes, unless a script says otherwise.
const TOKEN_INTERVAL: Duration = Duration::from_millis(15);

/// Pretend to be a model provider, and misbehave: rehearse an outage
///
/// Speaks OpenAI's Chat Completions and Responses and Anthropic's Messages, needs no key, and gives
/// the same answer to everything, unless a script has replies or a fault strikes. Each call goes to
/// standard output as a line of JSON, and a sum to standard error in the end. GET /fake/calls has
/// every request with its headers, PUT /fake/faults changes what goes wrong.
///
/// A fault is written NAME:PLACE@WHEN; place and time may be left out. --list has the names and
/// places. A number in the place of PLACE is a number of tokens. WHEN counts the calls of a model
/// that the fault is for: 3, 2-5, 2-, 30% of them, or all within 60s. So
/// close-mid-stream:mid-arguments@1 breaks the first stream that calls a tool, in the middle of the
/// tool's arguments.
///
/// A script is a TOML file: answer, replies (an answer for calls by model, by the user's last
/// message, by an offered tool, by the number of tool results), unique_ids, models, token_interval,
/// seed and faults. docs/failover.md has examples.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8790")]
    listen: String,

    /// What goes wrong, where in the stream, and in which calls of a model: 3, 2-5, 2-, 30%, 60s
    #[arg(long = "fault", value_name = "NAME[:PLACE][@WHEN]")]
    faults: Vec<Rule>,

    /// A fault in the middle strikes after so many tokens
    #[arg(long, value_name = "TOKENS", requires = "faults")]
    after: Option<usize>,

    /// How long a fault takes that takes time
    #[arg(long, value_name = "SECONDS", requires = "faults", value_parser = seconds)]
    seconds: Option<Duration>,

    /// What refusals say in Retry-After
    #[arg(long, value_name = "SECONDS", requires = "faults")]
    retry_after: Option<u64>,

    /// What decides which calls NAME@30% strikes
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// A script: answer, pace and faults, in TOML
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,

    /// List the faults and the places, and leave
    #[arg(long)]
    list: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.list {
            return list();
        }
        let listen = self.listen.clone();
        let script = self.script()?;
        tokio::runtime::Runtime::new()?.block_on(run(&listen, script))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The flags' faults come before the file's.
    fn script(self) -> Result<Script, Failure> {
        let mut script = match &self.script {
            None => Script { token_interval: TOKEN_INTERVAL, ..Script::default() },
            Some(path) => {
                let wrong = |error: String| Failure::usage(format!("{}: {error}", path.display()));
                let text =
                    std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
                Script::parse(&text).map_err(|error| wrong(error.to_string()))?
            }
        };
        let given = |rule: Rule| Rule {
            after: self.after.or(rule.after),
            seconds: self.seconds,
            retry_after: self.retry_after,
            ..rule
        };
        let flags: Vec<Rule> = self.faults.into_iter().map(given).collect();
        script.faults.splice(0..0, flags);
        script.seed = self.seed.unwrap_or(script.seed);
        Ok(script)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, such as 2 or 0.5".to_owned())
}

fn list() -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    for row in FAULTS {
        writeln!(out, "{:24} {}", row.name, row.what)?;
    }
    writeln!(out, "{:24} any other status from 300 to 599", "status-…")?;
    let places = PLACES.map(|(_, name)| name).join(", ");
    writeln!(out, "\nplaces, for what strikes `after` some tokens: {places}")?;
    Ok(ExitCode::SUCCESS)
}

async fn run(listen: &str, script: Script) -> Result<(), Failure> {
    let terminated = super::serve::terminated()?;
    let (seed, is_healthy) = (script.seed, script.faults.is_empty());
    let started = FakeProvider::start(listen, script).await;
    let provider = started.map_err(|error| super::chaos::refused(listen, &error))?;
    // Before anybody knows where to call: what ends earlier would not be told.
    let ended = provider.follow();
    let url = provider.url();
    anstream::eprintln!(
        "fake provider listening on {url}, for openai url = \"{url}/v1\", for anthropic url \
         = \"{url}\"; seed {seed}"
    );
    if is_healthy {
        anstream::eprintln!(
            "no fault is chosen: --list names them, PUT {url}/fake/faults or a model called like \
             one brings them"
        );
    }
    tokio::select! {
        () = terminated => {}
        printed = print(ended) => printed?,
    }
    sum_up(&provider.calls());
    Ok(())
}

/// A line for each call that has ended.
async fn print(mut ended: Receiver<Call>) -> io::Result<()> {
    loop {
        match ended.recv().await {
            Ok(call) => {
                let mut line = serde_json::to_value(&call)?;
                // Of interest seldom, and long; GET /fake/calls has them.
                line.as_object_mut().and_then(|line| line.remove("headers"));
                writeln!(io::stdout().lock(), "{line}")?;
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// Sums up the calls of models; what else was asked for is counted alone.
fn sum_up(calls: &[Call]) {
    let (calls, others): (Vec<&Call>, Vec<&Call>) = calls.iter().partition(|call| call.nth > 0);
    let tokens: usize = calls.iter().map(|call| call.tokens).sum();
    let ended = |ending| calls.iter().filter(|call| call.ending == Some(ending)).count();
    let (complete, broken, hung_up) =
        (ended(Ending::Complete), ended(Ending::Broken), ended(Ending::HungUp));
    let title = "fake provider".bold().to_string();
    anstream::eprintln!(
        "{title} calls {}: {complete} complete, {broken} broken off, {hung_up} hung up by the \
         caller; tokens {tokens}; other requests {}",
        calls.len(),
        others.len()
    );
    let mut kinds = BTreeMap::<(&str, &str), usize>::new();
    for call in calls {
        *kinds.entry((&call.model, call.fault.as_deref().unwrap_or("healthy"))).or_default() += 1;
    }
    for ((model, fault), count) in kinds {
        anstream::eprintln!("  {model}: {fault} {count}");
    }
}
