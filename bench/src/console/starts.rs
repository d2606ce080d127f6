//! Runs of one packet each, one after the other, by so many clients at once.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::gateway::client::post;
use crate::gateway::script::Script;

const CLIENTS: usize = 32;
const TIME: Duration = Duration::from_millis(1_500);

/// How many were started and read to their end within the time.
pub async fn many(address: SocketAddr) -> io::Result<u64> {
    let (began, mut clients) = (Instant::now(), JoinSet::new());
    for _ in 0..CLIENTS {
        clients.spawn(async move {
            let mut count = 0_u64;
            while began.elapsed() < TIME {
                let tally = post(address, "/assist", Script::burst(1)).await?.count().await?;
                if tally.frames < 2 {
                    return Err(io::Error::other("a run ended without its packets"));
                }
                count += 1;
            }
            Ok(count)
        });
    }
    let mut count = 0;
    while let Some(made) = clients.join_next().await {
        count += made??;
    }
    Ok(count)
}
