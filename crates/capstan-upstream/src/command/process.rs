//! The process. It has a process group of its own, so that a stop also ends the processes that it
//! started.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use capstan_agent::{Cancel, Clock, Timer, Turn};
use capstan_protocol::fault::Cause;
use capstan_protocol::{ErrorSeverity, Fault, FaultKind};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command as Program};
use tokio::sync::mpsc;

use super::Config;
use super::prompt::Prompt;
use super::stderr_tail::StderrTail;

/// The argument that the prompt replaces.
const PLACEHOLDER: &str = "{prompt}";
/// The variable from which programs read their trace context.
const TRACEPARENT: &str = "TRACEPARENT";
const TRACESTATE: &str = "TRACESTATE";
/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct Process {
    pub(super) output: ChildStdout,
    /// Sends further input. `None` if the input ends after the prompt.
    input: Option<mpsc::UnboundedSender<String>>,
    // Taken by the code that ends the process.
    child: Option<Child>,
    group: Option<Pid>,
    stderr: StderrTail,
    cancel: Cancel,
    clock: Clock,
}

impl Process {
    pub(super) fn start(
        config: &Config,
        turn: &Turn,
        prompt: Prompt,
        clock: &Clock,
    ) -> Result<Self, Fault> {
        let mut child =
            program(config, turn, &prompt).spawn().map_err(|error| unstarted(config, &error))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(output), Some(stderr)) = pipes else {
            return Err(Fault::new(FaultKind::AgentExecutionError));
        };
        // In a task of its own, because a process may write before it has read everything.
        let (input, written) = mpsc::unbounded_channel();
        tokio::spawn(feed(stdin, prompt.input, written));
        let input = prompt.stays_open.then_some(input);
        let stderr = StderrTail::of(stderr, &config.env);
        let (cancel, clock) = (turn.cancel.clone(), clock.clone());
        Ok(Self { output, input, child: Some(child), group, stderr, cancel, clock })
    }

    /// Answers a request of the process. Without this, the process would wait forever.
    pub(super) fn reply(&self, line: String) -> Result<(), Fault> {
        match &self.input {
            Some(input) => {
                // A process that no longer reads needs no answer.
                let _ = input.send(line);
                Ok(())
            }
            None => Err(Fault::new(FaultKind::UpstreamError)
                .with_message("The agent asked a question, but its input is closed.")
                .with_severity(ErrorSeverity::Fatal)
                .with_retryable(false)),
        }
    }

    /// Closes the input. A process that takes several prompts ends then.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// The reason why there is no result, from the exit status.
    pub(super) async fn failure(&mut self, had_result: bool) -> Fault {
        let status = match &mut self.child {
            Some(child) if !had_result => {
                self.clock.within(Timer::Grace, GRACE, child.wait()).await
            }
            _ => None,
        };
        match status.and_then(Result::ok) {
            Some(status) => ended(status),
            None => Fault::new(FaultKind::UpstreamTruncated),
        }
    }

    /// The last lines of standard error, for the log only.
    pub(super) async fn stderr_tail(&mut self) -> Option<String> {
        self.stderr.last_lines().await
    }

    /// After the answer: lets the process end in a background task, then ends the rest of its
    /// group.
    pub(super) fn end(mut self) {
        if let (Some(mut child), group) = (self.child.take(), self.group.take()) {
            let clock = self.clock.clone();
            self.cancel.outlive(async move {
                let _ = clock.within(Timer::Grace, GRACE, child.wait()).await;
                stop(&mut child, group, &clock).await;
            });
        }
    }
}

/// After a stop or a failure: sends SIGTERM to the group, and SIGKILL after the grace period.
impl Drop for Process {
    fn drop(&mut self) {
        let (Some(mut child), group) = (self.child.take(), self.group.take()) else { return };
        signal(group, Signal::TERM);
        let clock = self.clock.clone();
        match tokio::runtime::Handle::try_current() {
            // A drain waits for this, because a process that ignores SIGTERM would outlive the
            // gateway.
            Ok(_) => self.cancel.outlive(async move { stop(&mut child, group, &clock).await }),
            Err(_) => signal(group, Signal::KILL),
        }
    }
}

async fn stop(child: &mut Child, group: Option<Pid>, clock: &Clock) {
    if child.try_wait().ok().flatten().is_none() {
        signal(group, Signal::TERM);
        let _ = clock.within(Timer::Grace, GRACE, child.wait()).await;
    }
    // The process may have ignored SIGTERM, or left children.
    signal(group, Signal::KILL);
    let _ = child.wait().await;
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // A group that has ended needs no signal.
        let _ = kill_process_group(group, signal);
    }
}

fn program(config: &Config, turn: &Turn, prompt: &Prompt) -> Program {
    let (name, arguments) =
        config.command.split_first().map_or(("", &[][..]), |(n, rest)| (n.as_str(), rest));
    let mut program = Program::new(name);
    let mut is_placed = false;
    for argument in arguments {
        match &prompt.argument {
            Some(text) if argument == PLACEHOLDER => {
                is_placed = true;
                program.arg(text);
            }
            _ => {
                program.arg(argument);
            }
        }
    }
    program.args(prompt.argument.iter().filter(|_| !is_placed));
    if let Some(folder) = &config.cwd {
        program.current_dir(folder);
    }
    // The gateway's environment has the providers' keys and other secrets, so the program gets a
    // chosen part of it.
    program.env_clear().envs(inherited(&config.inherit, std::env::vars_os()));
    program.env("CAPSTAN_RUN", turn.run.to_string()).env("CAPSTAN_SESSION", &turn.session);
    // The run's trace, not the trace of the gateway's own start.
    if let Some(trace) = &turn.trace {
        program.env(TRACEPARENT, trace.traceparent());
        program.envs(trace.tracestate().map(|state| (TRACESTATE, state)));
    }
    program.envs(&config.env);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program.process_group(0).kill_on_drop(true);
    program
}

/// Variables that every program needs to find its files, its language and its proxy. None is a
/// secret.
const USUAL: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NO_PROXY",
    "no_proxy",
    "LD_LIBRARY_PATH",
    "NODE_EXTRA_CA_CERTS",
];

/// The gateway's variables that a program gets: the usual ones, and those that the agent's
/// configuration lists.
fn inherited(
    listed: &[String],
    all: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    all.filter(move |(name, _)| {
        let Some(name) = name.to_str() else { return false };
        listed.iter().any(|listed| listed == name)
            || USUAL.contains(&name)
            || name.starts_with("LC_") && !name.contains("KEY")
    })
}

/// The program could not be started: an error in the configuration, which a retry does not fix.
fn unstarted(config: &Config, error: &std::io::Error) -> Fault {
    let program = config.command.first().map_or("", String::as_str);
    let chain = vec![format!("cannot start {program:?}"), error.to_string()];
    let cause = Cause { error_type: "io::Error".into(), chain };
    let fault =
        Fault::new(FaultKind::UpstreamUnreachable).with_message("The agent could not be started.");
    fault.with_severity(ErrorSeverity::Fatal).with_retryable(false).with_cause(cause)
}

/// The fault for an exit without a result.
fn ended(status: ExitStatus) -> Fault {
    use std::os::unix::process::ExitStatusExt as _;
    let chain = vec!["the process ended without a result".into(), status.to_string()];
    let cause = Cause { error_type: "Process".into(), chain };
    let truncated = Fault::new(FaultKind::UpstreamTruncated).with_cause(cause.clone());
    if let Some(signal) = status.signal() {
        return truncated.with_detail("signal", signal);
    }
    match status.code() {
        Some(0) | None => truncated.with_detail("exit_code", 0),
        // The program ended for a reason of its own, which a retry would probably meet again.
        Some(code) => Fault::new(FaultKind::UpstreamError)
            .with_severity(ErrorSeverity::Fatal)
            .with_retryable(false)
            .with_cause(cause)
            .with_detail("exit_code", code),
    }
}

/// Writes the input. A process may ignore it.
async fn feed(mut stdin: ChildStdin, input: String, mut more: mpsc::UnboundedReceiver<String>) {
    let _ = stdin.write_all(input.as_bytes()).await;
    while let Some(line) = more.recv().await {
        let _ = stdin.write_all(line.as_bytes()).await;
    }
    let _ = stdin.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_what_is_usual_and_what_is_listed_and_no_key() {
        let all = [
            "PATH",
            "LC_ALL",
            "OPENAI_API_KEY",
            "MY_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "EDITOR",
            "LC_API_KEY",
        ];
        let all = || all.iter().map(|name| (OsString::from(name), OsString::from("1")));
        let names = |listed: &[&str]| -> Vec<String> {
            let listed: Vec<_> = listed.iter().map(|name| (*name).to_owned()).collect();
            inherited(&listed, all()).map(|(name, _)| name.into_string().unwrap()).collect()
        };
        assert_eq!(names(&[]), ["PATH", "LC_ALL"]);
        assert_eq!(names(&["MY_KEY", "EDITOR"]), ["PATH", "LC_ALL", "MY_KEY", "EDITOR"]);
    }
}
