//! The server: accepts calls, chooses the fault, applies it, and records the call.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::connection::Connection;
use crate::control;
use crate::protocol::Shape;
use crate::question::Question;
use crate::record::{Call, Ending};
use crate::request::Request;
use crate::response;
use crate::rule::Rule;
use crate::script::Script;
use crate::shared::Shared;

/// A running provider. Dropping it stops it, and breaks off what is under way.
#[derive(Debug)]
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl FakeProvider {
    /// Listens and serves in the background. Port 0 takes a free one.
    pub async fn start(listen: &str, script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(script, address.to_string()));
        let task = tokio::spawn(serve(listener, address, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// The address without a path; `/v1` works for Anthropic and OpenAI.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All calls so far, open ones included.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls()
    }

    /// Waits until the calls fulfil a condition. Tests wait with it.
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

    /// Receives each call at its end.
    pub fn follow(&self) -> broadcast::Receiver<Call> {
        self.shared.ended.subscribe()
    }

    /// Replaces the faults; the count of calls starts again.
    pub fn set_faults(&self, faults: Vec<Rule>) {
        self.shared.set_faults(faults);
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The event after which a client continues a stored answer: `GET
/// …/responses/{id}?starting_after=…`.
fn resume_after(request: &Request) -> Option<usize> {
    let is_kept = request.method == "GET" && request.path.contains("/responses/");
    let after = request.query.split('&').find_map(|pair| pair.strip_prefix("starting_after="));
    after.filter(|_| is_kept)?.parse().ok()
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
            // The next call may find the port closed.
            _ = changes.changed() => {}
            Some(_) = connections.join_next() => {}
        }
        listener = Some(open);
    }
}

/// Binds the port without listening, so that no other process gets it.
async fn closed(address: SocketAddr, time: Option<Duration>, shared: &Shared) {
    let held = bind(address);
    let mut changes = shared.changes.subscribe();
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => {
            let _ = changes.changed().await;
        }
    }
    shared.note_refusal();
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
        if let Some(after) = resume_after(&request) {
            let steps = response::resumed(&shared.script().clone(), &shared.sealer, after);
            shared.note(&request, "responses-resumed");
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
        let question = Question::parse(&request.json());
        let begun = shared.begin(shape, &question, &request);
        let number = begun.number;
        let mut open = Open { shared: &shared, number, ending: Ending::Broken };
        let steps = response::steps(shape, &question, &begun);
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

/// The next request of a connection. While the port is closed, idle connections close too.
async fn next(connection: &mut Connection, shared: &Shared) -> Option<Request> {
    let mut changes = shared.changes.subscribe();
    let refused = async { while shared.refusal().is_none() && changes.changed().await.is_ok() {} };
    tokio::select! {
        request = connection.request() => request,
        () = refused => None,
    }
}

/// An open call. Dropping it records its end.
struct Open<'a> {
    shared: &'a Shared,
    number: usize,
    ending: Ending,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.shared.update(self.number, |call| call.ending = Some(self.ending))
        {
            // There may be no follower.
            let _ = self.shared.ended.send(call);
        }
    }
}
