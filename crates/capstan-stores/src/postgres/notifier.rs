//! Notifies other processes of what was written. It has a connection of its own and runs after the
//! commit, because a notification locks the whole server while it commits.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Shared;
use super::peer_message::{self, CHANNEL, PeerMessage};
use super::writer_connection::WriterConnection;

/// The most messages in one statement.
const GROUP: usize = 1024;

const NOTIFY: &str = "select pg_notify($1, text) from unnest($2::text[]) text";

pub(super) async fn run(shared: Arc<Shared>, mut messages: mpsc::Receiver<PeerMessage>) {
    let mut writer = WriterConnection::new(shared, "set synchronous_commit = off");
    let mut group = Vec::new();
    while messages.recv_many(&mut group, GROUP).await > 0 {
        let texts = peer_message::encode(&group);
        group.clear();
        let sent = match writer.connection().await {
            Ok(connection) => connection.query(NOTIFY, &[&CHANNEL, &texts]).await.map(drop),
            Err(failure) => Err(failure),
        };
        // A lost notification is not sent again: the other processes poll.
        match sent {
            Ok(()) => writer.succeeded(),
            Err(failure) => writer.failed(&failure).await,
        }
    }
}
