//! What was counted, and what needs somebody.

use capstan_gateway::Gateway;
use serde_json::Value;
use uuid::Uuid;

use crate::common::{ask, client, demo, disk, journal, serve_gateway, start, stream_of};
use crate::console::{ids, json, run, run_as, settings};

#[tokio::test]
async fn numbers_add_up_to_what_happened() {
    let server = start(settings()).await;
    run_as(&server, "key-a", "/tokens 1").await;
    run_as(&server, "key-a", "/flaky 1").await;
    run_as(&server, "key-b", "/fault context_length_exceeded").await;
    let refused =
        client().get(format!("{}/v1/streams/{}", server.url, Uuid::nil())).bearer_auth("key-b");
    assert_eq!(refused.send().await.unwrap().status(), 404);
    let faults = json(&server, "/v1/console/faults", Some("looker")).await;
    assert_eq!((&faults["runs_total"], &faults["step_seconds"]), (&3.into(), &60.into()));
    let sum = |table: &Value, member: &str| {
        let of = |rows: &str| {
            table[rows]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row[member].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(of("cells"), of("series"), "{member}");
        of("cells")
    };
    assert_eq!(
        (sum(&faults, "fatal"), sum(&faults, "healed"), sum(&faults, "refused")),
        (1, 1, 1),
        "{faults}"
    );
    let of_a = json(&server, "/v1/console/faults", Some("key-a")).await;
    assert_eq!(
        (of_a["runs_total"].as_u64(), sum(&of_a, "fatal"), sum(&of_a, "healed")),
        (Some(2), 0, 1)
    );
    let agents = json(&server, "/v1/console/agents", Some("looker")).await;
    let demo = &agents["agents"][0];
    assert_eq!(
        demo["outcomes"],
        serde_json::json!({ "done": 1, "healed": 1, "failed": 1, "stopped": 0 }),
        "{demo}"
    );
    assert!(demo["first_packet_ms"]["p95"].is_u64() && demo["last_fault"]["code"].is_string());
    let tenants = json(&server, "/v1/console/tenants", Some("looker")).await;
    let b =
        tenants["tenants"].as_array().unwrap().iter().find(|tenant| tenant["name"] == "b").unwrap();
    assert_eq!((&b["requests_per_minute"]["limit"], &b["no_store"]), (&Value::Null, &false.into()));
    assert_eq!(b["refusals"]["stream_not_found"], 1, "{b}");
    let overview = json(&server, "/v1/console/overview", Some("looker")).await;
    assert!(overview["attention"].as_array().unwrap().is_empty(), "{overview}");
    assert_eq!(overview["faults"].as_array().unwrap().len(), 3);
    let health = json(&server, "/v1/console/health", Some("looker")).await;
    assert_eq!((&health["state"], &health["faults_5m"]), (&"ready".into(), &3.into()), "{health}");
    assert!(health["append_p95_ms"].is_number());
}

#[tokio::test]
async fn hourly_counts_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let gateway = || Gateway::new(disk(&path)).agent("demo", demo());
    let server = serve_gateway(gateway()).await;
    run(&server, "/fault context_length_exceeded", &[]).await;
    server.stop().await;
    let server = serve_gateway(gateway()).await;
    let faults = json(&server, "/v1/console/faults?since=2020-01-01T00:00:00Z", None).await;
    assert_eq!(
        (&faults["step_seconds"], &faults["runs_total"]),
        (&3600.into(), &1.into()),
        "{faults}"
    );
    assert_eq!(faults["cells"][0]["fatal"], 1);
    // The day before is known as well, and so are its agents.
    let faults = json(&server, "/v1/console/faults", None).await;
    assert_eq!(
        (&faults["step_seconds"], &faults["runs_total"]),
        (&60.into(), &1.into()),
        "{faults}"
    );
    let agents = json(&server, "/v1/console/agents", None).await;
    assert_eq!(agents["agents"][0]["outcomes"]["failed"], 1, "{agents}");
    let list = json(&server, "/v1/console/runs?fault=context_length_exceeded", None).await;
    assert_eq!(ids(&list).len(), 1, "and the index is there again");
}

#[tokio::test]
async fn a_run_that_waits_too_long_needs_attention() {
    let server = serve_gateway(Gateway::new(journal()).agent("demo", demo())).await;
    let response = server.post(&ask("/flaky 1 --wait 6")).await;
    let stream = stream_of(&response);
    let _ = response.bytes().await.unwrap();
    let told = json(&server, &format!("/v1/console/runs/{stream}"), None).await;
    assert_eq!(told["row"]["state"], "waiting");
    assert!(told["sentence"].as_str().unwrap().contains("waits for its client"), "{told}");
    assert!(told["not_before"].is_string());
    let overview = json(&server, "/v1/console/overview", None).await;
    assert!(
        overview["attention"].as_array().unwrap().is_empty(),
        "its client has time: {overview}"
    );
    assert_eq!(overview["faults"][0]["count"], 1, "what failed is told at once: {overview}");
    server.clock.set_by(60);
    let overview = json(&server, "/v1/console/overview", None).await;
    assert_eq!(overview["attention"][0]["why"], "overdue", "{overview}");
    assert_eq!(overview["attention"][0]["run"]["stream_id"], stream.as_str());
}
