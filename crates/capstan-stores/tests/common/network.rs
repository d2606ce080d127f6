//! A network between processes and their PostgreSQL server, which can cut, stall, or lose answers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

/// The state of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Requests arrive, and answers are lost.
    Deaf,
    /// Nothing arrives until the network is fair again.
    Still,
}

pub struct Network {
    pub address: SocketAddr,
    inner: Arc<Inner>,
    accepting: JoinHandle<()>,
}

struct Inner {
    server: Mutex<PathBuf>,
    connections: Mutex<Vec<(AbortHandle, watch::Sender<Weather>)>>,
    /// The state for new connections.
    weather: Mutex<Weather>,
}

impl Network {
    /// Creates a network in front of a server, which listens at a socket in a folder.
    pub async fn before(url: &str) -> (Self, String) {
        let (base, query) = url.split_once('?').unwrap();
        let folder = query.split('&').find_map(|pair| pair.strip_prefix("host=")).unwrap();
        let inner = Arc::new(Inner {
            server: Mutex::new(socket_in(folder)),
            connections: Mutex::default(),
            weather: Mutex::new(Weather::Fair),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&inner)));
        let name = base.rsplit('/').next().unwrap();
        (
            Self { address, inner, accepting },
            format!("postgres://postgres@{address}/{name}?sslmode=disable"),
        )
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, folder: &str) {
        *self.inner.server.lock().unwrap() = socket_in(folder);
    }

    /// Changes the state for all connections, present and new.
    pub fn turn(&self, weather: Weather) {
        *self.inner.weather.lock().unwrap() = weather;
        let connections = self.inner.connections.lock().unwrap();
        for (_, now) in connections.iter() {
            now.send_replace(weather);
        }
    }

    /// Makes the network fair for new connections. Present ones keep their state.
    pub fn clear_up(&self) {
        *self.inner.weather.lock().unwrap() = Weather::Fair;
    }

    /// Closes all connections.
    pub fn cut(&self) {
        self.inner.connections.lock().unwrap().drain(..).for_each(|(task, _)| task.abort());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

fn socket_in(folder: &str) -> PathBuf {
    PathBuf::from(folder).join(".s.PGSQL.5432")
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    while let Ok((near, _)) = listener.accept().await {
        let server = inner.server.lock().unwrap().clone();
        let weather = watch::Sender::new(*inner.weather.lock().unwrap());
        let task = tokio::spawn(carry(near, server, weather.subscribe()));
        inner.connections.lock().unwrap().push((task.abort_handle(), weather));
    }
}

async fn carry(near: TcpStream, server: PathBuf, weather: watch::Receiver<Weather>) {
    // A server that is down refuses connections.
    let Ok(far) = UnixStream::connect(server).await else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        _ = pump(near_in, far_out, weather.clone(), false) => {}
        _ = pump(far_in, near_out, weather, true) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
    is_answer: bool,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        let now = *weather
            .wait_for(|weather| *weather != Weather::Still)
            .await
            .map_err(io::Error::other)?;
        if now == Weather::Fair || !is_answer {
            to.write_all(&bytes[..count]).await?;
        }
    }
}
