//! Erasing for good what a tenant no longer wants kept. Claims stay, so that a duplicate starts no second run.

use capstan_journal::{NameKind, Run};
use capstan_protocol::Fault;

use crate::app::App;
use crate::refusal::journal_fault;
use crate::runs;

/// Runs are looked through in pages of this many.
const PAGE: usize = 1000;

/// Stops a run if it is under way, then erases its stream and its turn.
pub(crate) async fn stream(app: &App, run: Run) -> Result<Run, Fault> {
    let run = runs::stop(app, run).await?;
    app.journal.purge(run.stream_id, app.wall.now()).await.map_err(journal_fault)?;
    app.faces.iter().for_each(|face| face.forget(run.stream_id));
    tracing::info!(stream = %run.stream_id, tenant = %run.tenant, "purged");
    Ok(run)
}

/// Erases a session, its turns and its streams; how many these were.
pub(crate) async fn session(app: &App, tenant: &str, session: &str) -> Result<usize, Fault> {
    let store = app.journal.store();
    let (mut before, mut count) = (None, 0);
    loop {
        let page =
            store.named(tenant, NameKind::Session, session, before, PAGE).await.map_err(journal_fault)?;
        let Some(last) = page.last() else { break };
        before = Some(last.stream_id);
        for run in page {
            stream(app, run).await?;
            count += 1;
        }
    }
    store.purge_session(tenant, session).await.map_err(journal_fault)?;
    Ok(count)
}
