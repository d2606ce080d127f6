//! TLS for `reqwest`. Its default compiles a large C library, or needs a default for the whole
//! process, which is the program's choice and not a library's.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// A builder of HTTP clients that trust what this machine trusts. If the program has chosen a
/// provider of cryptography, that is used; else `ring`.
pub fn http_client() -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder();
    match config() {
        Ok(config) => builder.tls_backend_preconfigured(config),
        // Only a provider that the program chose can fail here. Building the client reports that.
        Err(_) => builder,
    }
}

fn config() -> Result<ClientConfig, rustls::Error> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let trusting = builder.clone().with_platform_verifier().unwrap_or_else(|error| {
        tracing::warn!(%error, "this machine has no certificates: only http:// addresses can be \
         reached");
        builder.with_root_certificates(RootCertStore::empty())
    });
    let mut config = trusting.with_no_client_auth();
    let http2 = cfg!(feature = "http2").then(|| b"h2".to_vec());
    config.alpn_protocols = http2.into_iter().chain([b"http/1.1".to_vec()]).collect();
    Ok(config)
}
