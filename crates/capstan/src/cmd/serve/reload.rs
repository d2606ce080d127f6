//! SIGHUP: reloads tenants, operators, keys and the certificate, so that they can be rotated
//! without a restart.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use capstan_gateway::{Jwt, Operator, Operators, Tenant, Tenants, Tls};
use tokio::signal::unix::{SignalKind, signal};

use super::config::Config;
use super::jwks::Source;
use super::tls::Files;
use crate::cmd::Failure;

/// What SIGHUP reloads.
pub(super) struct Reloaded {
    pub(super) tenants: Tenants,
    pub(super) operators: Operators,
    pub(super) certificate: Option<(Files, Tls)>,
    pub(super) token_keys: Option<(Source, Jwt)>,
}

/// Reloads the files at each SIGHUP. A wrong file changes nothing: a typing mistake must lock
/// nobody out.
pub(super) fn on_hangup(
    file: Option<PathBuf>,
    reloaded: Reloaded,
) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            reloaded.reload(file.as_deref());
        }
    })
}

impl Reloaded {
    fn reload(&self, file: Option<&Path>) {
        reload_people(file, &self.tenants, &self.operators);
        if let Some((files, tls)) = &self.certificate {
            reload_certificate(files, tls);
        }
        if let Some((source @ Source::File(_), jwt)) = &self.token_keys {
            match source.read(jwt) {
                Ok(()) => tracing::info!("reloaded the keys of tokens"),
                Err(failure) => {
                    tracing::error!(
                        error = failure.message(),
                        "the keys of tokens stay as they were"
                    );
                }
            }
        }
    }
}

fn reload_people(file: Option<&Path>, tenants: &Tenants, operators: &Operators) {
    match read(file, tenants) {
        Ok((read, looking)) => {
            let (count, keys) =
                (read.len(), read.iter().map(|tenant| tenant.keys.len()).sum::<usize>());
            let operating = looking.len();
            tenants.replace(read);
            operators.replace(looking);
            tracing::info!(
                tenants = count,
                keys,
                operators = operating,
                "reloaded tenants and keys"
            );
        }
        Err(failure) => {
            tracing::error!(error = failure.message(), "tenants and keys stay as they were")
        }
    }
}

fn reload_certificate(files: &Files, tls: &Tls) {
    match files.reload(tls) {
        Ok(()) => tracing::info!("reloaded the certificate"),
        Err(failure) => {
            tracing::error!(error = failure.message(), "the certificate stays as it was")
        }
    }
}

/// Refuses a file without tenants: the server would become open. Only a restart may do that,
/// because it checks the address.
fn read(file: Option<&Path>, now: &Tenants) -> Result<(Vec<Tenant>, Vec<Operator>), Failure> {
    let config = Config::load(file)?;
    let (tenants, operators) = (config.tenants()?, config.operators()?);
    if tenants.is_empty() && !now.is_empty() {
        return Err(Failure::usage(
            "the configuration has no tenants any more; that takes a restart",
        ));
    }
    Ok((tenants, operators))
}
