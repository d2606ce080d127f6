//! The address of a database, and how to connect to it.

use std::fs;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{ErrorKind, JournalError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use url::Url;

use super::tls::Tls;
use super::unanswered::Unanswered;

/// The timeout of a TCP connection.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// A peer that silently disappears is noticed after this time.
const SILENCE: Duration = Duration::from_secs(10);

/// A database and how to connect to it. Its password appears in no error.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) unanswered: Unanswered,
}

impl Target {
    /// Parses `postgres://…`. In addition to the parameters of `tokio-postgres` it accepts
    /// `sslmode=verify-full` and `sslrootcert=<file>`. Certificates are always verified, by that
    /// file or by the system's.
    pub(super) fn parse(text: &str) -> Result<Self, JournalError> {
        let mut url = Url::parse(text).map_err(|_| wrong("it is not a URL"))?;
        let (mut roots, mut params) = (None, Vec::new());
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("sslrootcert", file) => roots = Some(file.to_owned()),
                ("sslmode", "verify-full" | "verify-ca") => {
                    params.push((name.into_owned(), "require".to_owned()))
                }
                _ => params.push((name.into_owned(), value.into_owned())),
            }
        }
        url.set_query(None);
        if !params.is_empty() {
            url.query_pairs_mut().extend_pairs(params);
        }
        // The parser's own message may contain the password.
        let mut config =
            Config::from_str(url.as_str()).map_err(|_| wrong("tokio-postgres cannot parse it"))?;
        config.connect_timeout(CONNECT).tcp_user_timeout(SILENCE).keepalives_idle(SILENCE);
        if config.get_application_name().is_none() {
            config.application_name("capstan");
        }
        let tls = tls(roots.as_deref(), config.get_ssl_mode())?;
        Ok(Self { config, tls, unanswered: Unanswered::default() })
    }
}

fn tls(roots: Option<&str>, mode: SslMode) -> Result<Tls, JournalError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("TLS cannot be set up").caused_by(error))?;
    let config = match roots {
        Some(file) => builder.with_root_certificates(read_roots(file)?).with_no_client_auth(),
        // Read the system's certificates only if they are needed.
        None if mode == SslMode::Disable => {
            builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        }
        None => builder
            .with_platform_verifier()
            .map_err(|error| wrong("the system's certificates cannot be used").caused_by(error))?
            .with_no_client_auth(),
    };
    Ok(Tls::new(config))
}

fn read_roots(file: &str) -> Result<RootCertStore, JournalError> {
    let unreadable = || wrong(&format!("the certificates in {file} cannot be read"));
    let pem = fs::read(file).map_err(|error| unreadable().caused_by(error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unreadable().caused_by(error))?;
        roots.add(certificate).map_err(|error| unreadable().caused_by(error))?;
    }
    Ok(roots)
}

fn wrong(why: &str) -> JournalError {
    JournalError::new(
        ErrorKind::Unsupported,
        format!("the journal's PostgreSQL URL is invalid: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::Host;

    use super::*;

    #[test]
    fn parameters_of_postgres_tools_are_accepted() {
        let target = Target::parse(
            "postgres://u:p@db.example:5433/journal?sslmode=verify-full&application_name=a",
        )
        .unwrap();
        let config = target.config;
        assert_eq!((config.get_user(), config.get_dbname()), (Some("u"), Some("journal")));
        assert_eq!(
            (config.get_ssl_mode(), config.get_application_name()),
            (SslMode::Require, Some("a"))
        );
        assert_eq!(
            (config.get_hosts(), config.get_ports()),
            (&[Host::Tcp("db.example".into())][..], &[5433][..])
        );
        let socket =
            Target::parse("postgres:///journal?host=/run/pg&sslmode=disable").unwrap().config;
        assert_eq!(socket.get_hosts(), [Host::Unix("/run/pg".into())]);
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for url in [
            "postgres://u:hunter2@h:x/db",
            "postgres://u:hunter2@h/db?wrong=1",
            "postgres://u:hunter2@h/db?sslrootcert=/none",
        ] {
            let error = Target::parse(url).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
