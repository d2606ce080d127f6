//! The gateway keeps every promise.

use crate::common::{
    broken, gateway, plain_client, settings, skipped, target, target_with_keys, with_tenants,
};
use capstan_check::{Target, Verdict, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_with_tenants_keeps_every_promise() {
    let url = gateway(with_tenants()).await;
    let report = run(target_with_keys(&url), |_| ()).await.unwrap();
    assert_eq!((broken(&report), skipped(&report)), (vec![], vec![]), "{report:#?}");
    assert_eq!(report.summary.passed, report.checks.len());
    assert!(report.environment.is_demo);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_without_tenants_keeps_all_that_are_not_about_them() {
    let url = gateway(settings()).await;
    let report = run(target(&url), |_| ()).await.unwrap();
    assert_eq!(broken(&report), Vec::<&str>::new(), "{report:#?}");
    let skipped = skipped(&report);
    assert!(
        !skipped.is_empty()
            && skipped.iter().all(|id| id.starts_with("tenants.") || *id == "messages.key"),
        "{skipped:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_runs_are_started_as_were_announced() {
    let url = gateway(settings()).await;
    let report = run(target(&url), |_| ()).await.unwrap();
    let list: serde_json::Value = serde_json::from_slice(
        &plain_client()
            .get(format!("{url}/v1/streams?limit=1000"))
            .send()
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap(),
    )
    .unwrap();
    assert_eq!(list["streams"].as_array().unwrap().len(), report.summary.runs);
    let running =
        list["streams"].as_array().unwrap().iter().filter(|run| run["state"] != "closed").count();
    assert_eq!(running, 0, "nothing is left running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_check_runs_with_its_dependencies_only() {
    let url = gateway(settings()).await;
    let report =
        run(Target { only: vec!["cap.conflict".into()], ..target(&url) }, |_| ()).await.unwrap();
    assert!(report.checks.len() < 10 && report.summary.runs == 1, "{report:#?}");
    assert!(report.checks.iter().all(|check| check.verdict == Verdict::Passed), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_tickets_are_in_no_evidence() {
    // Without tenants every request is accepted, so the checks of tenants fail, with evidence.
    let url = gateway(settings()).await;
    let report = run(target_with_keys(&url), |_| ()).await.unwrap();
    assert!(broken(&report).contains(&"tenants.no-key"), "{report:#?}");
    let told = serde_json::to_string(&report).unwrap() + &format!("{report:?}");
    for secret in [crate::common::KEY, crate::common::OTHER_KEY, "?ticket=e", "?ticket=0"] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
}
