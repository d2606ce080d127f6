//! Short forms of what the soak repeats for minutes: one run, one failure, at every change.

use crate::cluster::network::Network;
use crate::cluster::postgres_server::{Database, Engine};
use crate::cluster::soak::fail_over;
use crate::cluster::{CONFIG, Cluster, PATIENT};
use crate::serve::client::{ask, assert_whole, packets, read_until, stream_of, tokens};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_failover_to_a_synchronous_standby_is_not_noticed() {
    let mut engine = Engine::start(&[]);
    let standby = engine.standby(&[]);
    engine.sql("alter system set synchronous_standby_names = '*'");
    engine.sql("select pg_reload_conf()");
    let (network, url) = Network::before(&engine.url()).await;
    let cluster = Cluster::over(url, &format!("durability = \"power\"\n{PATIENT}"), None);
    let mut response = cluster.post(0, &ask("/tokens 200 --delay 5ms")).await;
    let mut seen = read_until(&mut response, |seen| seen.contains(":20\n")).await;
    fail_over(&mut engine, &standby, &network).await;
    seen.extend(read_until(&mut response, |_| false).await);
    assert_whole(&packets(&seen), &tokens(200));
    assert!(seen == cluster.replay(2, &stream_of(&response)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_lease_that_is_lost_again_cancels_no_run() {
    let database = Database::create();
    let cluster = Cluster::over(database.url.clone(), CONFIG, None);
    let request = ask("/tokens 400 --delay 5ms");
    let mut response = cluster.post(0, &request).await;
    drop(read_until(&mut response, |seen| seen.contains(":10\n")).await);
    let stream = stream_of(&response);
    let run = format!("from capstan.runs where stream = '{stream}'");
    for gateway in [1, 2] {
        // Like a gateway that declared it dead. It is alive, and may take over its own runs.
        database.sql(&format!("select capstan.end_lease(owner) {run}"));
        while database.sql(&format!("select state in (2, 3) {run}")) != "t" {}
        // Its readers learn that it was interrupted, and send the request again.
        response = cluster.post(gateway, &request).await;
        assert_eq!(stream_of(&response), stream);
    }
    let whole = response.bytes().await.unwrap();
    assert_whole(&packets(&whole), &tokens(400));
    assert!(!String::from_utf8_lossy(&whole).contains("cancelled"));
    assert_eq!(database.sql(&format!("select attempt > 1 {run}")), "t", "it was interrupted");
}
