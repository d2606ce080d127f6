//! TLS: a certificate and its key, which can be replaced while the gateway serves.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// The protocols that a connection may use, best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A handle on the certificate, cheap to clone. A replacement applies to new connections; open ones
/// keep theirs.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// Reads a certificate with its chain, and its key, both as PEM. Refuses a pair that does not
    /// belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> io::Result<Self> {
        Ok(Self(Arc::new(RwLock::new(read(certificate, key)?))))
    }

    /// Uses this certificate from now on. An invalid one changes nothing.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> io::Result<()> {
        let config = read(certificate, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Performs the TLS handshake.
    pub(crate) async fn accept<S>(&self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(config).accept(socket).await
    }
}

/// Hides the private key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(…)")
    }
}

fn read(certificate: &[u8], key: &[u8]) -> io::Result<Arc<ServerConfig>> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|_| wrong("the certificate is not PEM"))?;
    if chain.is_empty() {
        return Err(wrong("the certificate's file holds none"));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| wrong("the key's file holds no private key in PEM"))?;
    // Named, because a process may have several providers, and then there is no default.
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let build = || -> Result<ServerConfig, rustls::Error> {
        builder
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)
    };
    let mut config =
        build().map_err(|error| wrong(&format!("certificate and key cannot be used: {error}")))?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(Arc::new(config))
}
