//! One page of the console, as the gateway sees it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::gateway::client::Response;

const LIST: &str = "/v1/console/runs?";

/// How often a page asks for what it shows, and for the health of the gateway.
const SHOWN: Duration = Duration::from_secs(1);
const HEALTH: Duration = Duration::from_secs(5);

/// Opens a page that shows what is at `path`. It has heard the feed's first word when this returns.
pub async fn open(
    pages: &mut JoinSet<io::Result<()>>,
    address: SocketAddr,
    path: String,
) -> io::Result<()> {
    let mut feed = Response::get(address, "/v1/console/events", "").await?;
    feed.until("event: state").await?;
    pages.spawn(async move {
        loop {
            feed.read_some().await?;
        }
    });
    pages.spawn(ask(address, "/v1/console/health".to_owned(), Some(HEALTH)));
    // The list is asked for once, and lives by the feed.
    let every = (!path.starts_with(LIST)).then_some(SHOWN);
    pages.spawn(ask(address, path, every));
    Ok(())
}

async fn ask(address: SocketAddr, path: String, every: Option<Duration>) -> io::Result<()> {
    loop {
        let mut answer = Response::get(address, &path, "").await?;
        answer.until("200 OK").await?;
        answer.count().await?;
        let Some(every) = every else { return Ok(()) };
        tokio::time::sleep(every).await;
    }
}
