//! A real gateway on a free port of loopback, with two tenants.

use std::time::Duration;

use axum::Router;
use capstan_check::{Report, Target, Verdict};
use capstan_demo::Demo;
use capstan_gateway::{Gateway, KeyHash, Settings, Tenant, Timeouts, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_stores::{Durability, open};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

pub(crate) const KEY: &str = "key-a";
pub(crate) const OTHER_KEY: &str = "key-b";

/// Heartbeats come soon, so that waiting for one takes no time.
pub(crate) fn settings() -> Settings {
    let timeouts = Timeouts { heartbeat: Duration::from_millis(200), ..Timeouts::default() };
    Settings { timeouts, cors_origins: vec!["http://localhost:3000".into()], ..Settings::default() }
}

pub(crate) fn with_tenants() -> Settings {
    let tenant = |name: &str, key: &str| Tenant::new(name, vec![KeyHash::of(key)]);
    Settings { tenants: vec![tenant("a", KEY), tenant("b", OTHER_KEY)].into(), ..settings() }
}

/// It speaks to loopback alone, so it need not read the certificates of this machine.
pub(crate) fn plain_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

/// Serves until the test ends; its URL.
pub(crate) async fn gateway(settings: Settings) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let journal =
        Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
    let gateway =
        Gateway::new(journal).agent("demo", Demo::with_delay(Duration::ZERO)).settings(settings);
    tokio::spawn(async move {
        let _ = serve(gateway, vec![listener], std::future::pending()).await.unwrap();
    });
    url
}

/// Serves a router until the test ends; its URL.
pub(crate) async fn serve_router(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            socket.set_nodelay(true).unwrap();
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    url
}

pub(crate) fn target(url: &str) -> Target {
    Target { slow: true, ..Target::new(url.parse().unwrap()) }
}

pub(crate) fn target_with_keys(url: &str) -> Target {
    Target { key: Some(KEY.into()), other_key: Some(OTHER_KEY.into()), ..target(url) }
}

/// The checks with this verdict.
pub(crate) fn ids(report: &Report, is_it: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
    report.checks.iter().filter(|check| is_it(&check.verdict)).map(|check| check.id).collect()
}

pub(crate) fn broken(report: &Report) -> Vec<&'static str> {
    ids(report, |verdict| matches!(verdict, Verdict::Broken { .. }))
}

pub(crate) fn skipped(report: &Report) -> Vec<&'static str> {
    ids(report, |verdict| matches!(verdict, Verdict::Skipped { .. }))
}
