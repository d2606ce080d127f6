//! Whoever only looks on costs the store nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::odd_store::OddStore;
use crate::common::start_on;
use crate::console::{json, run_as, send, settings};

#[tokio::test]
async fn an_idle_console_does_not_query_the_store() {
    let store = OddStore::new().shared();
    let server = start_on(store.journal(), settings()).await;
    run_as(&server, "key-a", "/fault context_length_exceeded").await;
    let looks = |store: &Arc<OddStore>| store.looks.load(Ordering::Relaxed);
    for key in ["looker", "key-a"] {
        // What the page does when it is opened: a feed, and a list of which every row came by the
        // feed ever after.
        let mut feed = send(&server, "GET", "/v1/console/events", Some(key)).await;
        feed.chunk().await.unwrap();
        let before = looks(&store);
        assert_eq!(
            json(&server, "/v1/console/runs", Some(key)).await["runs"].as_array().unwrap().len(),
            1
        );
        assert_eq!(looks(&store), before + 1, "a page is one look, whatever is on it");
        // What it does every five seconds, whichever view is open.
        for _ in 0..3 {
            for path in ["/v1/console/health", "/v1/console/overview"] {
                json(&server, path, Some(key)).await;
            }
        }
        assert_eq!(looks(&store), before + 1, "{key}");
    }
}
