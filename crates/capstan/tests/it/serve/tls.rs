//! TLS: certificates from two files, HTTP/2, and another certificate without a restart.
//!
//! The keys beside this file are for these tests only.

use std::fs;
use std::path::Path;

use capstan_protocol::ServiceRequest;

use crate::serve::client::{ask, assert_whole, packets, tokens};
use crate::serve::process::{Server, refused};

const ONE: [&str; 2] = [include_str!("tls/one.cert.pem"), include_str!("tls/one.key.pem")];
const TWO: [&str; 2] = [include_str!("tls/two.cert.pem"), include_str!("tls/two.key.pem")];

fn install(folder: &Path, [certificate, key]: [&str; 2]) {
    fs::write(folder.join("cert.pem"), certificate).unwrap();
    fs::write(folder.join("key.pem"), key).unwrap();
}

fn start(folder: &Path) -> Server {
    install(folder, ONE);
    Server::start_with(folder, &[("CAPSTAN_TLS_CERT", "cert.pem"), ("CAPSTAN_TLS_KEY", "key.pem")])
}

/// A client that trusts one certificate and no other.
fn trusting([certificate, _]: [&str; 2]) -> reqwest::Client {
    let certificate = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).build().unwrap()
}

async fn is_trusted(server: &Server, certificate: [&str; 2]) -> bool {
    trusting(certificate).get(format!("{}/livez", server.url)).send().await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_streams_over_tls_and_http_2() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let request: ServiceRequest = ask("/tokens 30");
    let response = trusting(ONE)
        .post(format!("{}/v1/assist", server.url))
        .json(&request)
        .send()
        .await
        .unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_whole(&packets(&response.bytes().await.unwrap()), &tokens(30));
    let plain = server.url.replace("https:", "http:");
    assert!(crate::serve::client::http().get(format!("{plain}/livez")).send().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_certificate_is_taken_at_sighup_and_a_wrong_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    assert!(is_trusted(&server, ONE).await && !is_trusted(&server, TWO).await);
    install(folder.path(), [ONE[0], TWO[1]]);
    server.signal("HUP");
    server.wait_for_line("the certificate stays as it was");
    assert!(is_trusted(&server, ONE).await, "a pair that does not belong together changes nothing");
    install(folder.path(), TWO);
    server.signal("HUP");
    server.wait_for_line("reloaded the certificate");
    assert!(is_trusted(&server, TWO).await && !is_trusted(&server, ONE).await);
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(!log.contains("PRIVATE"), "{log}");
}

#[test]
fn half_a_pair_and_a_wrong_pair_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), [ONE[0], TWO[1]]);
    for (args, part) in [
        (["--tls-cert", "cert.pem"].as_slice(), "needs tls_key"),
        (&["--tls-key", "key.pem"], "needs tls_cert"),
        (&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], "cannot be used"),
        (&["--tls-cert", "key.pem", "--tls-key", "key.pem"], "holds none"),
        (&["--tls-cert", "cert.pem", "--tls-key", "missing.pem"], "missing.pem"),
    ] {
        let output = refused(
            folder.path(),
            &[args, &["--journal", "memory:", "--listen", "127.0.0.1:0"]].concat(),
        );
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?} {text}");
        assert!(text.contains(part), "{part} in {text}");
    }
}
