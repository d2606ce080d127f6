//! Tells other processes what was written, on a connection of its own and after the commit: a
//! notice takes a lock of the whole server while it commits.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Shared;
use super::notice::{self, CHANNEL, Notice};
use super::wire::Wire;

/// How many pieces of news are told at once.
const GROUP: usize = 1024;

const TELL: &str = "select pg_notify($1, text) from unnest($2::text[]) text";

pub(super) async fn run(shared: Arc<Shared>, mut notices: mpsc::Receiver<Notice>) {
    let mut wire = Wire::new(shared, "set synchronous_commit = off");
    let mut group = Vec::new();
    while notices.recv_many(&mut group, GROUP).await > 0 {
        let texts = notice::encode(&group);
        group.clear();
        let told = match wire.link().await {
            Ok(link) => link.query(TELL, &[&CHANNEL, &texts]).await.map(drop),
            Err(failure) => Err(failure),
        };
        // What is not told is found by looking.
        match told {
            Ok(()) => wire.rest(),
            Err(failure) => wire.failed(&failure).await,
        }
    }
}
