//! `capstan fake-provider`: a model provider that fails on purpose, to rehearse an outage.

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

/// The pace of a healthy answer, unless a script changes it.
const TOKEN_INTERVAL: Duration = Duration::from_millis(15);

/// Imitate a model provider that fails on purpose: rehearse an outage
///
/// Speaks OpenAI's Chat Completions and Responses and Anthropic's Messages, and needs no key. It
/// gives the same answer to every call, unless a script has replies or a fault strikes. It prints
/// each call as a line of JSON on standard output, and the totals on standard error. GET
/// /fake/calls has every request with its headers; PUT /fake/faults changes the faults.
///
/// A fault is NAME:PLACE@WHEN; PLACE and WHEN are optional. --list prints names and places. A
/// number as PLACE is a number of tokens. WHEN counts the calls of a model: 3, 2-5, 2-, 30% of
/// them, or all within 60s. So close-mid-stream:mid-arguments@1 breaks the first stream that calls
/// a tool, in the middle of the tool's arguments.
///
/// A script is a TOML file: answer, replies (answers for calls by model, by the user's last
/// message, by an offered tool, by the number of tool results), unique_ids, models, token_interval,
/// seed and faults. docs/failover.md has examples.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8790")]
    listen: String,

    /// The fault, its place in the stream, and its calls of a model: 3, 2-5, 2-, 30%, 60s
    #[arg(long = "fault", value_name = "NAME[:PLACE][@WHEN]")]
    faults: Vec<Rule>,

    /// The number of tokens before a fault in the middle
    #[arg(long, value_name = "TOKENS", requires = "faults")]
    after: Option<usize>,

    /// How long a slow fault takes
    #[arg(long, value_name = "SECONDS", requires = "faults", value_parser = seconds)]
    seconds: Option<Duration>,

    /// The Retry-After of refusals, in seconds
    #[arg(long, value_name = "SECONDS", requires = "faults")]
    retry_after: Option<u64>,

    /// The seed that decides which calls NAME@30% strikes
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// A script: answer, pace and faults, in TOML
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,

    /// List the faults and the places, and exit
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

    /// Joins the flags' faults and the script's; the flags' faults come first.
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
    // Before the address is printed: a call that ends earlier would be missing.
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

/// Prints a line for each call that has ended.
async fn print(mut ended: Receiver<Call>) -> io::Result<()> {
    loop {
        match ended.recv().await {
            Ok(call) => {
                let mut line = serde_json::to_value(&call)?;
                // Headers are long and seldom needed; GET /fake/calls has them.
                line.as_object_mut().and_then(|line| line.remove("headers"));
                writeln!(io::stdout().lock(), "{line}")?;
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// Prints the totals: calls of models, and other requests separately.
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
