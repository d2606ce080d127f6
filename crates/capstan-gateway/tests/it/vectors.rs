//! The conformance vectors of requests, posted: what the reference refuses is refused, and its
//! place is named.

#[path = "../../../capstan-protocol/tests/it/common/mod.rs"]
mod conformance;

use crate::common::{Server, client, start};
use capstan_gateway::Settings;
use conformance::{is_strict, vectors};
use serde_json::{Value, json};
use uuid::Uuid;

/// The status of a request in its profile, and which place a problem names.
async fn verdict(server: &Server, case: &Value) -> (u16, String) {
    let url = format!("{}/v1/assist?profile={}", server.url, case["profile"].as_str().unwrap());
    let mut input = case["input"].clone();
    if case["accept"] == true && !input["request_id"].is_null() {
        // Many cases have the same one, and are different requests.
        input["request_id"] = json!(Uuid::now_v7());
    }
    let response = client().post(url).json(&input).send().await.unwrap();
    let status = response.status().as_u16();
    if status == 200 {
        return (status, String::new());
    }
    let problem: Value = response.json().await.unwrap();
    (status, problem["details"]["path"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn every_request_of_the_vectors_gets_its_verdict_over_http() {
    let server = start(Settings::default()).await;
    let cases = vectors("cap/models.jsonl").into_iter().filter(is_strict);
    let cases: Vec<Value> = cases.filter(|case| case["model"] == "ServiceRequest").collect();
    assert!(cases.len() > 80, "only {} cases", cases.len());
    for case in cases {
        let (status, path) = verdict(&server, &case).await;
        let is_right = match case["accept"] == true {
            // A valid one may still ask for nothing.
            true => status == 200 || path == "payload.payload",
            false => status == 400 && !(path.is_empty() && case["input"].is_object()),
        };
        assert!(is_right, "{}: {}: {status} {path:?}", case["id"], case["why"]);
    }
    server.stop().await;
}
