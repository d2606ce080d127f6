//! A real gateway on a free port of loopback.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod scripted;

use std::time::Duration;

use capstan_client::Options;
use capstan_demo::Demo;
use capstan_gateway::{Gateway, Settings, serve};
use capstan_journal::{Durability, Journal, TailLimits, open};
use tokio::net::TcpListener;

pub struct Server {
    pub url: String,
}

impl Server {
    /// Runs until the test's runtime ends.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let journal = Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
        let gateway = Gateway::new(journal)
            .agent("demo", Demo::with_delay(Duration::ZERO))
            .settings(Settings::default());
        tokio::spawn(serve(gateway, vec![listener], std::future::pending()));
        Self { url }
    }
}

/// Options for tests that wait for failures.
pub fn quick() -> Options {
    Options::new()
        .backoff(Duration::from_millis(100), Duration::from_millis(100))
        .max_wait(Duration::from_secs(5))
}
