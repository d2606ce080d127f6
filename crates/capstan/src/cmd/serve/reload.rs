//! SIGHUP: tenants, keys and the certificate are read anew, so that they can be rotated without a restart.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use capstan_gateway::{Tenant, Tenants, Tls};
use tokio::signal::unix::{SignalKind, signal};

use super::config::Config;
use super::tls::Files;
use crate::cmd::Failure;

/// Re-reads the files at each SIGHUP. One that is wrong changes nothing: a typing mistake must lock nobody out.
pub(super) fn on_hangup(
    file: Option<PathBuf>,
    tenants: Tenants,
    certificate: Option<(Files, Tls)>,
) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            reload_tenants(file.as_deref(), &tenants);
            if let Some((files, tls)) = &certificate {
                reload_certificate(files, tls);
            }
        }
    })
}

fn reload_tenants(file: Option<&Path>, tenants: &Tenants) {
    match read(file, tenants) {
        Ok(read) => {
            let (count, keys) = (read.len(), read.iter().map(|tenant| tenant.keys.len()).sum::<usize>());
            tenants.replace(read);
            tracing::info!(tenants = count, keys, "tenants and keys were read anew");
        }
        Err(failure) => tracing::error!(error = failure.message(), "tenants and keys stay as they were"),
    }
}

fn reload_certificate(files: &Files, tls: &Tls) {
    match files.reload(tls) {
        Ok(()) => tracing::info!("the certificate was read anew"),
        Err(failure) => tracing::error!(error = failure.message(), "the certificate stays as it was"),
    }
}

/// Without tenants anybody could ask; whoever means that restarts, and is asked about the address.
fn read(file: Option<&Path>, now: &Tenants) -> Result<Vec<Tenant>, Failure> {
    let tenants = Config::load(file)?.tenants()?;
    if tenants.is_empty() && !now.is_empty() {
        return Err(Failure::usage("the configuration has no tenants any more; that takes a restart"));
    }
    Ok(tenants)
}
