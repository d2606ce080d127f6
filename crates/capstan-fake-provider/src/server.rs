//! The server: accepts, finds out which fault strikes, does it, and keeps the record.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::asked::Asked;
use crate::connection::{Connection, Request};
use crate::control;
use crate::fault::Fault;
use crate::record::{Call, Ending};
use crate::response;
use crate::rule::{Rule, When};
use crate::script::Script;
use crate::shape::Shape;

/// Ended calls that a slow follower may be behind.
const FOLLOWED: usize = 1024;

/// A running provider. Dropping it stops it, and breaks off what is under way.
#[derive(Debug)]
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    script: Mutex<Script>,
    state: Mutex<State>,
    changes: watch::Sender<()>,
    ended: broadcast::Sender<Call>,
}

#[derive(Debug)]
struct State {
    calls: Vec<Call>,
    /// How often each model was called since the faults were set.
    nth: HashMap<String, usize>,
    began: Instant,
    /// When the faults were set.
    set: Instant,
    /// How often the port was closed since then.
    refusals: usize,
}

impl FakeProvider {
    /// Listens and serves in the background. Port 0 takes a free one.
    pub async fn start(listen: &str, script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(script));
        let task = tokio::spawn(serve(listener, address, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// Where it is, without a path: `/v1` is Anthropic's and OpenAI's alike.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All calls so far, those that go on included.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls()
    }

    /// Returns when the calls are as wanted; a test waits by this.
    pub async fn until(&self, is_so: impl Fn(&[Call]) -> bool) -> Vec<Call> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            let calls = self.calls();
            // The sender lives as long as this.
            if is_so(&calls) || changes.changed().await.is_err() {
                return calls;
            }
        }
    }

    /// Each call when it has ended.
    pub fn follow(&self) -> broadcast::Receiver<Call> {
        self.shared.ended.subscribe()
    }

    /// What goes wrong from now on; calls are counted anew.
    pub fn set_faults(&self, faults: Vec<Rule>) {
        self.shared.set_faults(faults);
    }
}

/// How a kept answer that is read on stands on record.
const RESUMED: &str = "responses-resumed";

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn new(script: Script) -> Self {
        let now = Instant::now();
        let state =
            State { calls: Vec::new(), nth: HashMap::new(), began: now, set: now, refusals: 0 };
        let (changes, ended) = (watch::Sender::new(()), broadcast::Sender::new(FOLLOWED));
        Self { script: Mutex::new(script), state: Mutex::new(state), changes, ended }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    pub(crate) fn faults(&self) -> Vec<Rule> {
        self.script().faults.clone()
    }

    pub(crate) fn set_faults(&self, faults: Vec<Rule>) {
        self.script().faults = faults;
        let mut state = self.state();
        state.nth.clear();
        state.refusals = 0;
        state.set = Instant::now();
        drop(state);
        self.changes.send_replace(());
    }

    /// Whether the port is closed before the next call, and for how long.
    fn refusal(&self) -> Option<Option<Duration>> {
        let faults = self.faults();
        let rule = faults.iter().find(|rule| rule.fault == Fault::RefuseConnection)?;
        let state = self.state();
        let next = state.nth.values().sum::<usize>() + state.refusals + 1;
        let is_due = match rule.when {
            When::Always => state.refusals == 0 || rule.seconds.is_none(),
            When::Calls(first, last) => (first..=last).contains(&next),
            When::Share(_) => false,
            When::Within(time) => state.set.elapsed() < time,
        };
        let time = match rule.when {
            When::Within(time) => Some(time.saturating_sub(state.set.elapsed())),
            When::Always | When::Calls(..) | When::Share(_) => rule.seconds,
        };
        is_due.then_some(time)
    }

    /// Notes a call, and what is to happen to it.
    fn begin(&self, shape: Shape, asked: &Asked, request: &Request) -> (usize, Option<Rule>) {
        let (faults, seed) = {
            let script = self.script();
            (script.faults.clone(), script.seed)
        };
        let mut state = self.state();
        let nth = state.nth.entry(asked.model.clone()).or_default();
        *nth += 1;
        let (nth, since) = (*nth, state.set.elapsed());
        let named = named(&asked.model);
        let mut rules =
            faults.into_iter().filter(|rule| rule.fault != Fault::RefuseConnection).chain(named);
        let rule = rules.find(|rule| rule.strikes(&asked.model, nth, seed, since));
        let number = state.calls.len() + 1;
        let at = state.began.elapsed().as_secs_f64();
        state.calls.push(Call {
            number,
            nth,
            at,
            api: shape.name(),
            model: asked.model.clone(),
            fault: rule.as_ref().map(|rule| rule.fault.to_string()),
            tokens: 0,
            ending: None,
            headers: request.headers.clone(),
            body: request.json(),
        });
        drop(state);
        self.changes.send_replace(());
        (number, rule)
    }

    /// An answer that was kept is read on: no call of a model, but on record.
    fn note_resume(&self, request: &Request) {
        let mut state = self.state();
        let (number, at) = (state.calls.len() + 1, state.began.elapsed().as_secs_f64());
        state.calls.push(Call {
            number,
            nth: 0,
            at,
            api: RESUMED,
            model: String::new(),
            fault: None,
            tokens: 0,
            ending: None,
            headers: request.headers.clone(),
            body: format!("{}?{}", request.path, request.query).into(),
        });
        drop(state);
        self.changes.send_replace(());
    }

    fn update(&self, number: usize, change: impl FnOnce(&mut Call)) -> Option<Call> {
        let mut state = self.state();
        let call = state.calls.get_mut(number.checked_sub(1)?)?;
        change(call);
        let call = call.clone();
        drop(state);
        self.changes.send_replace(());
        Some(call)
    }
}

/// The event after which a kept answer is asked for: `GET …/responses/{id}?starting_after=…`.
fn kept(request: &Request) -> Option<usize> {
    let is_kept = request.method == "GET" && request.path.contains("/responses/");
    let after = request.query.split('&').find_map(|pair| pair.strip_prefix("starting_after="));
    after.filter(|_| is_kept)?.parse().ok()
}

/// A model that is called like a fault has it: `status-503`, `some/truncated@1`.
fn named(model: &str) -> Option<Rule> {
    model.rsplit('/').next()?.parse().ok()
}

async fn serve(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    let mut changes = shared.changes.subscribe();
    let mut listener = Some(listener);
    loop {
        if let Some(time) = shared.refusal() {
            drop(listener.take());
            closed(address, time, &shared).await;
            continue;
        }
        let open = match listener.take() {
            Some(open) => open,
            None => match listen(address) {
                Ok(open) => open,
                Err(_) => return,
            },
        };
        tokio::select! {
            accepted = open.accept() => if let Ok((socket, _)) = accepted {
                connections.spawn(attend(Connection::new(socket), Arc::clone(&shared)));
            },
            // The next call may be one that nobody listens for.
            _ = changes.changed() => {}
            Some(_) = connections.join_next() => {}
        }
        listener = Some(open);
    }
}

/// The port is held, so that nobody else gets it, but not listened on.
async fn closed(address: SocketAddr, time: Option<Duration>, shared: &Shared) {
    let held = bind(address);
    let mut changes = shared.changes.subscribe();
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => {
            let _ = changes.changed().await;
        }
    }
    shared.state().refusals += 1;
    drop(held);
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(1024)
}

async fn attend(mut connection: Connection, shared: Arc<Shared>) {
    while let Some(request) = next(&mut connection, &shared).await {
        let shape = Shape::at(&request.path).filter(|_| request.method == "POST");
        if let Some(after) = kept(&request) {
            let steps = response::resumed(&shared.script().clone(), after);
            shared.note_resume(&request);
            if !connection.perform(steps, || {}).await.1 || request.is_last() {
                return;
            }
            continue;
        }
        let Some(shape) = shape else {
            let answer = control::answer(&request, &shared);
            if !connection.perform(vec![answer], || {}).await.1 || request.is_last() {
                return;
            }
            continue;
        };
        let asked = Asked::of(&request.json());
        let (number, rule) = shared.begin(shape, &asked, &request);
        let mut open = Open { shared: &shared, number, ending: Ending::Broken };
        let script = shared.script().clone();
        let steps = response::steps(shape, &asked, &script, rule.as_ref());
        let token = || {
            shared.update(number, |call| call.tokens += 1);
        };
        let (ending, goes_on) = connection.perform(steps, token).await;
        open.ending = ending;
        drop(open);
        if !goes_on || request.is_last() {
            return;
        }
    }
}

/// The next request of a connection. While nobody listens, none that is idle is kept either.
async fn next(connection: &mut Connection, shared: &Shared) -> Option<Request> {
    let mut changes = shared.changes.subscribe();
    let refused = async { while shared.refusal().is_none() && changes.changed().await.is_ok() {} };
    tokio::select! {
        request = connection.request() => request,
        () = refused => None,
    }
}

/// A call under way: whatever becomes of its task, its end is on record.
struct Open<'a> {
    shared: &'a Shared,
    number: usize,
    ending: Ending,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.shared.update(self.number, |call| call.ending = Some(self.ending))
        {
            // Nobody need follow.
            let _ = self.shared.ended.send(call);
        }
    }
}
