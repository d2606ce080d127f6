//! SIGHUP: tenants and keys are read anew, so that a key can be rotated without a restart.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use capstan_gateway::{Tenant, Tenants};
use tokio::signal::unix::{SignalKind, signal};

use super::config::Config;
use crate::cmd::Failure;

/// Re-reads the file at each SIGHUP. A file that is wrong changes nothing: a typing mistake must lock nobody out.
pub(super) fn on_hangup(file: Option<PathBuf>, tenants: Tenants) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            match read(file.as_deref(), &tenants) {
                Ok(read) => {
                    let keys: usize = read.iter().map(|tenant| tenant.keys.len()).sum();
                    tracing::info!(tenants = read.len(), keys, "tenants and keys were read anew");
                    tenants.replace(read);
                }
                Err(failure) => {
                    tracing::error!(error = failure.message(), "tenants and keys stay as they were");
                }
            }
        }
    })
}

/// Without tenants anybody could ask; whoever means that restarts, and is asked about the address.
fn read(file: Option<&Path>, now: &Tenants) -> Result<Vec<Tenant>, Failure> {
    let tenants = Config::load(file)?.tenants()?;
    if tenants.is_empty() && !now.is_empty() {
        return Err(Failure::usage("the configuration has no tenants any more; that takes a restart"));
    }
    Ok(tenants)
}
