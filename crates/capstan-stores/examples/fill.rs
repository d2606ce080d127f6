//! Fills a journal with runs, for measurements: `fill URL COUNT [TENANT...]`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing
)]

#[path = "../tests/common/filled.rs"]
mod filled;

use capstan_journal::Replica;
use capstan_stores::{Options, connect};

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, count, tenants @ ..] = &words[..] else { panic!("fill URL COUNT [TENANT...]") };
    let tenants: Vec<&str> = if tenants.is_empty() {
        vec!["local"]
    } else {
        tenants.iter().map(String::as_str).collect()
    };
    let store = connect(url, Options::default(), Replica::default()).await.unwrap();
    filled::Filling::new(&tenants, count.parse().unwrap()).fill(&store).await;
    store.close().await.unwrap();
}
