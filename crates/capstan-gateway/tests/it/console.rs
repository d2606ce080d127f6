//! The console's questions: what they tell, to whom, and what they keep to themselves.

mod audit;
mod feed;
mod idle;
mod numbers;
mod refusals;
mod rights;
mod runs;

use crate::common::{Server, all, ask, client, stream_of};
use capstan_gateway::{KeyHash, Operator, Right, Scope, Settings, Tenant, TenantKey};
use reqwest::{Method, Response};
use serde_json::Value;

/// What nobody may see who may not.
const SECRET: &str = "xyzzy-secret-word";

async fn send(server: &Server, method: &str, path: &str, key: Option<&str>) -> Response {
    let request =
        client().request(method.parse::<Method>().unwrap(), format!("{}{path}", server.url));
    key.into_iter().fold(request, |request, key| request.bearer_auth(key)).send().await.unwrap()
}

async fn json(server: &Server, path: &str, key: Option<&str>) -> Value {
    let response = send(server, "GET", path, key).await;
    assert_eq!(response.status(), 200, "{path}");
    assert_eq!(response.headers()["cache-control"], "no-store", "{path}");
    response.json().await.unwrap()
}

/// Runs it to its end; its stream.
async fn run(server: &Server, text: &str, headers: &[(&str, &str)]) -> String {
    let response = server.post_with(&ask(text), headers).await;
    let stream = stream_of(&response);
    all(response).await;
    stream
}

async fn run_as(server: &Server, key: &str, text: &str) -> String {
    run(server, text, &[("authorization", &format!("Bearer {key}"))]).await
}

fn operator(name: &str, tenants: &[&str], may: &[Right]) -> Operator {
    let (keys, tenants) =
        (vec![KeyHash::of(name)], tenants.iter().map(|name| (*name).to_owned()).collect());
    Operator { name: name.to_owned(), keys, tenants, may: may.to_vec() }
}

/// Two tenants, one of whom nothing is stored, one that lets nobody see what was said; and
/// operators.
fn settings() -> Settings {
    let tenant = |name: &str| Tenant::new(name, vec![KeyHash::of(&format!("key-{name}"))]);
    let mut a = tenant("a");
    a.keys.push(TenantKey {
        hash: KeyHash::of("reader-a"),
        scopes: [Scope::Read].into_iter().collect(),
    });
    let silent = Tenant { no_store: true, ..tenant("silent") };
    let closed = Tenant { console_content: false, ..tenant("closed") };
    let operators = vec![
        operator("looker", &["*"], &[Right::Look]),
        operator("seer", &["*"], &[Right::Look, Right::Content]),
        operator("doer", &["*"], &[Right::Look, Right::Act]),
        operator("master", &["*"], &Right::ALL),
        operator("of-b", &["b"], &[Right::Look, Right::Content, Right::Act]),
        operator("blind", &["*"], &[Right::Content]),
    ];
    let tenants = vec![a, tenant("b"), silent, closed];
    Settings { tenants: tenants.into(), operators: operators.into(), ..Settings::default() }
}

fn ids(list: &Value) -> Vec<String> {
    list["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["stream_id"].as_str().unwrap().to_owned())
        .collect()
}
