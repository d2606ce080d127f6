//! The thread that syncs the log.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::shared::Shared;

/// Starts a thread that syncs all written groups whenever a caller waits for a sync.
pub(crate) fn spawn(
    shared: Arc<Shared>,
    on_failure: impl Fn(io::Error) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let work = move || {
        while shared.log.wait() {
            match shared.log.sync_now() {
                Ok(upto) => shared.syncs.are_done(upto),
                Err(error) => {
                    shared.log.fail();
                    on_failure(error);
                }
            }
        }
    };
    thread::Builder::new().name("journal-sync".into()).spawn(work)
}
