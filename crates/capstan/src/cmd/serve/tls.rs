//! The certificate of `capstan serve`: two files, read at the start and at each SIGHUP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use capstan_gateway::Tls;

use super::config::Config;
use crate::cmd::Failure;

/// The paths of certificate and key.
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    /// Returns both paths, or neither.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        match (config.tls_cert.clone(), config.tls_key.clone()) {
            (Some(certificate), Some(key)) => Ok(Some(Self { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Failure::usage("tls_cert needs tls_key beside it")),
            (None, Some(_)) => Err(Failure::usage("tls_key needs tls_cert beside it")),
        }
    }

    pub(super) fn open(&self) -> Result<Tls, Failure> {
        let (certificate, key) = self.read()?;
        Tls::from_pem(&certificate, &key).map_err(|error| self.wrong(&error))
    }

    pub(super) fn reload(&self, tls: &Tls) -> Result<(), Failure> {
        let (certificate, key) = self.read()?;
        tls.replace(&certificate, &key).map_err(|error| self.wrong(&error))
    }

    fn read(&self) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
        };
        Ok((read(&self.certificate)?, read(&self.key)?))
    }

    fn wrong(&self, error: &std::io::Error) -> Failure {
        Failure::usage(format!(
            "{} and {}: {error}",
            self.certificate.display(),
            self.key.display()
        ))
    }
}

/// Warns if keys and answers cross a network without TLS: the address is beyond loopback, and maybe
/// no proxy.
pub(super) fn warn_if_plain(addresses: &[SocketAddr], is_tls: bool) {
    if let Some(address) = addresses.iter().find(|address| !is_tls && !address.ip().is_loopback()) {
        tracing::warn!(%address, "plain HTTP beyond loopback: keys and answers can be read on the \
         way; \
            use --tls-cert and --tls-key, or a proxy that speaks TLS");
    }
}
