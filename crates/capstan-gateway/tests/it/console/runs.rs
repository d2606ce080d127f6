//! What is told of runs, one by one and in lists, and how they are found.

use capstan_gateway::{Gateway, Settings};
use serde_json::Value;
use uuid::Uuid;

use crate::common::{self, all, ask, ask_in, demo, disk, problem, serve_gateway, start, stream_of};
use crate::console::{SECRET, ids, json, run, send};

#[tokio::test]
async fn a_runs_page_has_all_attempts_and_explains_its_fault() {
    let server = start(Settings::default()).await;
    let healed = run(&server, "/flaky 1", &[("x-request-id", "ticket-7")]).await;
    let told = json(&server, &format!("/v1/console/runs/{healed}"), None).await;
    assert_eq!(told["row"]["state"], "healed");
    assert_eq!(told["row"]["attempts"].as_array().unwrap().len(), 2);
    let attempts = told["attempts"].as_array().unwrap();
    assert!(attempts[0]["fault"].is_string() && attempts[0]["fault_title"].is_string());
    assert!(attempts[0]["began_at"].is_string() && attempts[0]["ended_at"].is_string());
    assert!(attempts[1].get("fault").is_none());
    assert_eq!(attempts[1]["continued_by"], "comparison");
    assert!(attempts[0].get("continued_by").is_none());
    assert!(told.get("fault").is_none(), "it was healed: {told}");
    assert!(told["sentence"].as_str().unwrap().starts_with("Done in attempt 2"), "{told}");
    assert_eq!(told["request_id"], "ticket-7");
    assert_eq!(told["may"], serde_json::json!({ "content": true, "act": true }));

    let failed = run(&server, "/fault context_length_exceeded", &[]).await;
    let told = json(&server, &format!("/v1/console/runs/{failed}"), None).await;
    assert_eq!(told["row"]["state"], "failed");
    let fault = &told["fault"];
    assert_eq!(fault["code"], told["row"]["fault"]);
    for member in ["title", "meaning", "remedy", "agui_code", "severity", "domain"] {
        assert!(fault[member].is_string(), "{member}: {fault}");
    }
    assert!(fault["status"].as_u64().is_some_and(|status| status >= 400));
    assert!(
        fault["details"]["message"].is_string(),
        "its own words, for who may see them: {fault}"
    );
    assert!(told["sentence"].as_str().unwrap().starts_with("Failed after 1 attempt in"), "{told}");
    assert_eq!(told["viewers_sum"]["joined"], 1, "{told}");
}

#[tokio::test]
async fn others_with_the_same_fault_are_counted_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let gateway = || Gateway::new(disk(&path)).agent("demo", demo());
    let server = serve_gateway(gateway()).await;
    for text in ["/fault context_length_exceeded", "/fault quota_exceeded", "/tokens 1"] {
        run(&server, text, &[]).await;
    }
    let last = run(&server, "/fault context_length_exceeded", &[]).await;
    server.stop().await;
    let server = serve_gateway(gateway()).await;
    let others = async || {
        let told = json(&server, &format!("/v1/console/runs/{last}"), None).await;
        told["fault"]["others_last_hour"].clone()
    };
    assert_eq!(others().await, 1);
    run(&server, "/fault context_length_exceeded", &[]).await;
    assert_eq!(others().await, 2);
    server.clock.set_by(3601);
    assert_eq!(others().await, 0, "that was more than an hour ago");
}

#[tokio::test]
async fn runs_are_listed_by_filters_with_the_range_searched() {
    let server = start(Settings::default()).await;
    let done = run(&server, "/tokens 3", &[]).await;
    let healed = run(&server, "/flaky 1", &[]).await;
    let failed = run(&server, "/fault context_length_exceeded", &[]).await;
    let list = async |query: &str| json(&server, &format!("/v1/console/runs?{query}"), None).await;
    let everything = list("").await;
    assert_eq!(ids(&everything), [failed.clone(), healed.clone(), done.clone()]);
    assert_eq!((&everything["complete"], &everything["next"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(everything["looked_back_to"], Value::Null);
    let row = &everything["runs"][2];
    assert!(
        row["first_packet_ms"].is_u64()
            && row["duration_ms"].is_u64()
            && row["packets"].as_u64() > Some(3)
    );
    for (query, expected) in [
        ("state=done", vec![&done]),
        ("state=healed", vec![&healed]),
        ("state=failed", vec![&failed]),
        ("state=running", vec![]),
        ("fault=context_length_exceeded", vec![&failed]),
        ("agent=demo&state=done", vec![&done]),
        ("agent=nobody", vec![]),
        ("tenant=local&limit=9", vec![&failed, &healed, &done]),
        ("tenant=nobody", vec![]),
        ("since=2999-01-01T00:00:00Z", vec![]),
        ("until=2001-01-01T00:00:00Z", vec![]),
    ] {
        let found = ids(&list(query).await);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let first = list("limit=1").await;
    assert_eq!((ids(&first), first["complete"].as_bool()), (vec![failed], Some(false)));
    assert!(first["looked_back_to"].is_string());
    let next = list(&format!("limit=1&before={}", first["next"].as_str().unwrap())).await;
    assert_eq!(ids(&next), [healed]);
    let wrong = server.get("/v1/console/runs?state=odd").await;
    assert!(problem(wrong).await.detail.unwrap().contains("healed"));
}

#[tokio::test]
async fn any_id_leads_to_its_run_and_a_refused_request_to_its_refusal() {
    let server = start(Settings { limits: limits_of_one_request(), ..Settings::default() }).await;
    let session = Uuid::now_v7();
    let request = ask_in(session, "/tokens 2");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let response =
        server.post_with(&request, &[("x-request-id", "ticket-1"), ("traceparent", &parent)]).await;
    let stream = stream_of(&response);
    all(response).await;
    let key = request.request_id.to_string();
    let find = async |q: &str| json(&server, &format!("/v1/console/find?q={q}"), None).await;
    for (q, kind) in [
        (stream.as_str(), "stream"),
        (&stream[..13], "stream"),
        (&format!("{stream}:2"), "cursor"),
        ("ticket-1", "request_id"),
        (trace, "trace"),
        (&key, "key"),
    ] {
        let found = find(q).await;
        assert_eq!(found["hits"][0]["kind"], kind, "{q}: {found}");
        assert_eq!(found["hits"][0]["stream_id"], stream.as_str(), "{q}");
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{q}: {found}");
    }
    assert_eq!(find(&format!("{stream}:2")).await["hits"][0]["seq"], 2);
    let by_session = find(&session.to_string()).await;
    assert_eq!(by_session["hits"][0]["kind"], "session");
    // Never a part of something.
    for q in ["ticket", &stream[..7], "nothing"] {
        let found = find(q).await;
        assert!(found["hits"].as_array().unwrap().is_empty(), "{q}: {found}");
        assert!(!found["looked"].as_array().unwrap().is_empty(), "it says where it looked");
    }
    let refused = server.post_with(&ask("again"), &[("x-request-id", "ticket-2")]).await;
    assert_eq!(refused.status(), 429);
    let found = find("ticket-2").await;
    let refusal = &found["refusals"][0];
    assert_eq!(
        (&refusal["status"], &refusal["route"]),
        (&429.into(), &"/v1/assist".into()),
        "{found}"
    );
    assert!(refusal["title"].is_string() && found["hits"].as_array().unwrap().is_empty());
}

pub(super) fn limits_of_one_request() -> capstan_gateway::Limits {
    capstan_gateway::Limits { requests_per_minute: 1, ..capstan_gateway::Limits::default() }
}

#[tokio::test]
async fn a_download_equals_the_stream_and_marks_have_no_content() {
    let server = start(Settings::default()).await;
    let stream = run(&server, &format!("/echo {SECRET}"), &[]).await;
    let watched = server.get(&format!("/v1/streams/{stream}")).await.bytes().await.unwrap();
    let frames = server.get(&format!("/v1/console/runs/{stream}/frames")).await;
    assert_eq!(frames.headers()["content-type"], "text/event-stream");
    assert_eq!(frames.bytes().await.unwrap(), watched, "byte for byte");
    for (face, query) in [("cap-v2", "profile=v2"), ("ag-ui", "face=ag-ui")] {
        let told = server.get(&format!("/v1/console/runs/{stream}/frames?face={face}")).await;
        let watched = server.get(&format!("/v1/streams/{stream}?{query}")).await;
        assert_eq!(told.bytes().await.unwrap(), watched.bytes().await.unwrap(), "{face}");
    }
    let some = server.get(&format!("/v1/console/runs/{stream}/frames?from=2&to=2")).await;
    assert_eq!(common::seqs(&common::packets(&some.bytes().await.unwrap())), [2]);
    assert_eq!(
        server.get(&format!("/v1/console/runs/{stream}/frames?face=odd")).await.status(),
        400
    );
    let marks = json(&server, &format!("/v1/console/runs/{stream}/marks"), None).await;
    let last = common::packets(&watched).last().unwrap().seq;
    assert_eq!(marks["marks"].as_array().unwrap().len() as u64, last);
    assert_eq!((&marks["complete"], &marks["read_to"]), (&true.into(), &last.into()));
    assert_eq!(marks["marks"][0][0], 1);
    assert!(marks["marks"][0][1].as_i64().is_some_and(|ms| ms >= 0));
    assert_eq!(marks["marks"].as_array().unwrap().last().unwrap()[2], "CLOSE");
    assert!(!marks.to_string().contains(SECRET));
    let body = json(&server, &format!("/v1/console/runs/{stream}/body"), None).await;
    assert!(body.to_string().contains(SECRET));
}

#[tokio::test]
async fn a_conversation_is_shown_as_its_user_saw_it_and_erased() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    for text in [format!("/echo {SECRET}"), "/fault context_length_exceeded".to_owned()] {
        all(server.post(&ask_in(session, &text)).await).await;
    }
    let path = format!("/v1/console/sessions/local/{session}");
    let told = json(&server, &path, None).await;
    assert_eq!(told["turns"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!((&told["turns"][0]["n"], &told["turns"][1]["partial"]), (&1.into(), &true.into()));
    assert!(told["turns"][0]["messages"].to_string().contains(SECRET));
    assert_eq!(told["runs"][0]["state"], "failed");
    assert_eq!(send(&server, "DELETE", &path, None).await.status(), 204);
    assert_eq!(server.get(&path).await.status(), 404);
    assert!(ids(&json(&server, "/v1/console/runs", None).await).is_empty());
}
