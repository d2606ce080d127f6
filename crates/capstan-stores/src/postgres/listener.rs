//! Receives the notifications of other processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::Notification;
use tokio::sync::mpsc;

use super::Shared;
use super::connection::{Connection, Failure};
use super::peer_message::{self, CHANNEL, PeerMessage};

/// The pause before a new connection.
const PAUSE: Duration = Duration::from_millis(500);
/// A silent connection may be dead, so it is checked at this interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        if let Err(failure) = listen(&shared).await {
            tracing::debug!(
                %failure,
                "notifications of other processes cannot be received; their streams are polled"
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Receives notifications until the connection is lost.
async fn listen(shared: &Shared) -> Result<(), Failure> {
    let (sender, mut messages) = mpsc::unbounded_channel();
    let connection = Connection::open_with(&shared.listen, TIMEOUT, Some(sender)).await?;
    connection.batch(&format!("listen {CHANNEL}")).await?;
    let _listening = Listening::begin(shared);
    // Notifications were lost while there was no connection.
    shared.poll_now.notify_one();
    loop {
        match tokio::time::timeout(CHECK_INTERVAL, messages.recv()).await {
            Ok(Some(notification)) => match peer_message::decode(notification.payload()) {
                Some(messages) => messages.into_iter().for_each(|message| handle(shared, message)),
                None => shared.poll_now.notify_one(),
            },
            Ok(None) => return Ok(()),
            Err(_) => connection.batch("").await?,
        }
    }
}

/// While this value lives, this process knows which streams other processes await.
struct Listening<'a>(&'a Shared);

impl<'a> Listening<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.is_listening.store(true, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.is_listening.store(false, Ordering::Relaxed);
    }
}

fn handle(shared: &Shared, message: PeerMessage) {
    match message {
        PeerMessage::Frames { stream, standing, frames } if shared.watched.has(stream) => {
            shared.watched.learn(stream, standing);
            forward(shared, Notification::Frames { stream, standing, frames });
        }
        PeerMessage::Erased(stream) if shared.watched.has(stream) => {
            forward(shared, Notification::Erased(stream));
        }
        PeerMessage::Stop(stream) if shared.owned.get(stream).is_some() => {
            let _ = shared.stop_requests.try_send(stream);
        }
        PeerMessage::Awaited(stream) => {
            if let Some(owned) = shared.owned.get(stream)
                && owned.mark_awaited()
            {
                // Without frames: the other process has to query what was written before.
                shared.notify(owned.frames_message(Vec::new()));
            }
        }
        PeerMessage::Frames { .. } | PeerMessage::Erased(_) | PeerMessage::Stop(_) => {}
    }
}

fn forward(shared: &Shared, notification: Notification) {
    if shared.notifications.try_send(notification).is_err() {
        shared.poll_now.notify_one();
    }
}
