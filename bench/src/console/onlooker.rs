//! A console that is open: it hears everything, and asks more often than a page does.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::gateway::client::Response;

const EVERY: Duration = Duration::from_secs(1);
const ASKED: [&str; 3] = ["/v1/console/health", "/v1/console/overview", "/v1/console/runs?limit=100"];

/// One who looks on until it is dropped.
pub struct Onlooker(JoinSet<io::Result<()>>);

impl Onlooker {
    /// It listens once this returns.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let mut feed = Response::get(address, "/v1/console/events", "").await?;
        feed.until("event: state").await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                feed.read_some().await?;
            }
        });
        tasks.spawn(async move {
            let mut times = tokio::time::interval(EVERY);
            loop {
                times.tick().await;
                for path in ASKED {
                    Response::get(address, path, "").await?.count().await?;
                }
            }
        });
        Ok(Self(tasks))
    }

    /// Fails if it was cut off: then nobody looked on.
    pub fn close(mut self) -> io::Result<()> {
        match self.0.try_join_next() {
            Some(Ok(Err(error))) => Err(error),
            Some(_) => Err(io::Error::other("the onlooker left")),
            None => Ok(()),
        }
    }
}
