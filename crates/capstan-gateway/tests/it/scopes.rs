//! What a key may do follows from its scopes, whichever protocol it speaks. The walk takes every
//! operation that the API document names, so a new route fails here until it has its row.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::auth::issuer::Issuer;
use crate::common::{Server, all, ask, client, demo, stream_of};
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_gateway::{
    Gateway, Jwt, JwtRules, KeyHash, KeySet, Scope, Settings, Tenant, TenantKey, TokenTenants,
    Webhook, WebhookSender,
};
use serde_json::{Value, json};
use uuid::Uuid;

const RUN: &[Scope] = &[Scope::Run];
const READ: &[Scope] = &[Scope::Read];
const STOP: &[Scope] = &[Scope::Stop];
const PURGE: &[Scope] = &[Scope::Stop, Scope::Purge];
/// The answer shows the task as well.
const CANCEL: &[Scope] = &[Scope::Read, Scope::Stop];
/// What the task says is sent to an address that the caller names.
const NOTIFY: &[Scope] = &[Scope::Run, Scope::Read];
/// Whoever erases from the console has looked first.
const CONSOLE_PURGE: &[Scope] = &[Scope::Read, Scope::Stop, Scope::Purge];

/// What each documented operation needs. `/v1/agents/{name}/…` needs what `/v1/…` needs.
const ROUTES: &[(&str, &[Scope])] = &[
    ("get /v1/streams", READ),
    ("get /v1/streams/{id}", READ),
    ("delete /v1/streams/{id}", STOP),
    ("get /v1/streams/{id}/packets", READ),
    ("post /v1/streams/{id}/ticket", READ),
    ("get /v1/sessions/{id}", READ),
    ("delete /v1/sessions/{id}", PURGE),
    ("get /v1/agents", READ),
    ("post /v1/assist", RUN),
    ("post /assist", RUN),
    ("post /v1/ag-ui", RUN),
    ("get /v1/ag-ui", READ),
    ("post /v1/chat/completions", RUN),
    ("get /v1/models", READ),
    ("get /v1/models/{name}", READ),
    ("get /v1/responses", RUN),
    ("post /v1/responses", RUN),
    ("post /v1/messages", RUN),
    ("post /v1/messages/count_tokens", RUN),
    ("post /v1/embeddings", RUN),
    ("post /v1/moderations", RUN),
    ("post /v1/completions", RUN),
    ("get /v1/files", RUN),
    ("post /v1/files", RUN),
    ("get /v1/files/{id}", RUN),
    ("delete /v1/files/{id}", RUN),
    ("get /v1/files/{id}/content", RUN),
    ("post /v1/images/generations", RUN),
    ("post /v1/images/edits", RUN),
    ("post /v1/images/variations", RUN),
    ("post /v1/audio/speech", RUN),
    ("post /v1/audio/transcriptions", RUN),
    ("post /v1/audio/translations", RUN),
    ("get /v1/responses/{id}", READ),
    ("delete /v1/responses/{id}", PURGE),
    ("post /v1/responses/{id}/cancel", STOP),
    ("get /v1/responses/{id}/input_items", READ),
    ("post /v1/responses/input_tokens", RUN),
    ("post /v1/responses/compact", RUN),
    ("post /v1/conversations", RUN),
    ("get /v1/conversations/{id}", READ),
    ("post /v1/conversations/{id}", RUN),
    ("delete /v1/conversations/{id}", PURGE),
    ("get /v1/conversations/{id}/items", READ),
    ("post /v1/conversations/{id}/items", RUN),
    ("get /v1/conversations/{id}/items/{item}", READ),
    ("delete /v1/conversations/{id}/items/{item}", PURGE),
    ("post /v1/messages", RUN),
    ("post /v1/messages/count_tokens", RUN),
    ("post /v1/ai-sdk/chat", RUN),
    ("get /v1/ai-sdk/chat/{id}/stream", READ),
    ("delete /v1/ai-sdk/chat/{id}/stream", STOP),
    ("get /v1/durable/{id}", READ),
    ("post /v1/a2a/message:send", RUN),
    ("post /v1/a2a/message:stream", RUN),
    ("get /v1/a2a/tasks", READ),
    ("get /v1/a2a/tasks/{task}", READ),
    ("post /v1/a2a/tasks/{task}/pushNotificationConfigs", NOTIFY),
    ("get /v1/a2a/tasks/{task}/pushNotificationConfigs", READ),
    ("get /v1/a2a/tasks/{task}/pushNotificationConfigs/{config}", READ),
    ("delete /v1/a2a/tasks/{task}/pushNotificationConfigs/{config}", RUN),
    ("get /v1/a2a/extendedAgentCard", READ),
    ("get /v1/a2a/v1/card", READ),
    ("get /v1/console/me", READ),
    ("get /v1/console/health", READ),
    ("get /v1/console/overview", READ),
    ("get /v1/console/faults", READ),
    ("get /v1/console/agents", READ),
    ("get /v1/console/tenants", READ),
    ("get /v1/console/replicas", READ),
    ("get /v1/console/events", READ),
    ("get /v1/console/find", READ),
    ("get /v1/console/runs", READ),
    ("get /v1/console/runs/{id}", READ),
    ("delete /v1/console/runs/{id}", CONSOLE_PURGE),
    ("get /v1/console/runs/{id}/marks", READ),
    ("get /v1/console/runs/{id}/frames", READ),
    ("get /v1/console/runs/{id}/body", READ),
    ("post /v1/console/runs/{id}/stop", CANCEL),
    ("get /v1/console/sessions/{tenant}/{session}", READ),
    ("delete /v1/console/sessions/{tenant}/{session}", CONSOLE_PURGE),
];

/// What a route does that leaves the choice to the path's end or to the query.
const CHOSEN: &[(&str, &[Scope])] = &[
    ("delete /v1/streams/{id}?purge=true", PURGE),
    ("post /v1/a2a/tasks/{task}:cancel", CANCEL),
    ("post /v1/a2a/tasks/{task}:subscribe", READ),
    ("get /v1/a2a/tasks/{task}:subscribe", READ),
];

/// What each method of A2A over JSON-RPC needs, in both versions.
const METHODS: &[(&str, &[Scope])] = &[
    ("SendMessage", RUN),
    ("SendStreamingMessage", RUN),
    ("GetTask", READ),
    ("ListTasks", READ),
    ("CancelTask", CANCEL),
    ("SubscribeToTask", READ),
    ("CreateTaskPushNotificationConfig", NOTIFY),
    ("GetTaskPushNotificationConfig", READ),
    ("ListTaskPushNotificationConfigs", READ),
    ("DeleteTaskPushNotificationConfig", RUN),
    ("GetExtendedAgentCard", READ),
    ("message/send", RUN),
    ("message/stream", RUN),
    ("tasks/get", READ),
    ("tasks/cancel", CANCEL),
    ("tasks/resubscribe", READ),
    ("tasks/pushNotificationConfig/set", NOTIFY),
    ("tasks/pushNotificationConfig/get", READ),
    ("tasks/pushNotificationConfig/list", READ),
    ("tasks/pushNotificationConfig/delete", RUN),
    ("agent/getAuthenticatedExtendedCard", READ),
];

/// Keys and tokens of one tenant, by what they may do.
struct Credentials {
    issuer: Issuer,
}

impl Credentials {
    /// Every set of scopes has a key; its name is its scopes.
    fn key(scopes: &[Scope]) -> String {
        scopes.iter().map(|scope| scope.word()).collect::<Vec<_>>().join("+")
    }

    fn sets() -> Vec<Vec<Scope>> {
        let chosen = |bits: usize| {
            let scopes = Scope::ALL.into_iter().enumerate();
            scopes.filter(move |(at, _)| bits & (1 << at) != 0).map(|(_, scope)| scope).collect()
        };
        (1..16).map(chosen).collect()
    }

    fn token(&self, scopes: &[Scope]) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let words = scopes.iter().map(|scope| scope.word()).collect::<Vec<_>>().join(" ");
        self.issuer.token(
            "EdDSA",
            &json!({ "iss": "https://id.example", "aud": "capstan", "exp": now + 600,
            "tenant": "acme",
                "scope": words }),
        )
    }
}

/// Takes every notification.
struct Receiver;

#[async_trait]
impl WebhookSender for Receiver {
    async fn post(
        &self,
        _: &Webhook,
        _: &[(&'static str, String)],
        _: Bytes,
    ) -> Result<u16, String> {
        Ok(204)
    }
}

async fn serve() -> (Server, Credentials) {
    let issuer = Issuer::new();
    let rules = JwtRules {
        issuer: "https://id.example".into(),
        audience: vec!["capstan".into()],
        tenant_claim: "tenant".into(),
        leeway: Duration::from_secs(30),
        tenants: TokenTenants::Configured,
        require_scopes: true,
    };
    let published = KeySet::parse(issuer.published().to_string().as_bytes()).unwrap();
    let mut acme = Tenant::new("acme", Vec::new());
    acme.keys = Credentials::sets()
        .into_iter()
        .map(|scopes| TenantKey {
            hash: KeyHash::of(&Credentials::key(&scopes)),
            scopes: scopes.into_iter().collect(),
        })
        .collect();
    let jwt = Some(Jwt::new(rules, Some(published)));
    let settings = Settings { tenants: vec![acme].into(), jwt, ..Settings::default() };
    let gateway = Gateway::new(crate::common::journal())
        .agent("demo", demo())
        .webhooks(Receiver)
        .settings(settings);
    (crate::common::serve_gateway(gateway).await, Credentials { issuer })
}

/// A finished run of the tenant, by a key that may do everything: its stream and its session.
async fn run(server: &Server) -> (String, String) {
    let request = ask("/tokens 1");
    let session = request.context.session_id.to_string();
    let everything = format!("Bearer {}", Credentials::key(&Scope::ALL));
    let response = server.post_with(&request, &[("authorization", &everything)]).await;
    let stream = stream_of(&response);
    all(response).await;
    (stream, session)
}

/// Whether the server refuses an operation, `method path`, to whoever shows this.
async fn is_refused(server: &Server, operation: &str, shown: &str, body: &Value) -> bool {
    let (stream, session) = run(server).await;
    let (method, path) = operation.split_once(' ').unwrap();
    let path = path
        .replace("/v1/agents/{name}/", "/v1/agents/demo/")
        .replace("/v1/models/{name}", "/v1/models/demo")
        .replace("/v1/sessions/{id}", &format!("/v1/sessions/{session}"))
        .replace("{tenant}/{session}", &format!("acme/{session}"))
        .replace("{config}", "c-1")
        .replace("{id}", &stream)
        .replace("{task}", &stream);
    let method = method.to_uppercase().parse().unwrap();
    let request = client().request(method, format!("{}{path}", server.url)).bearer_auth(shown);
    let response = request.json(body).send().await.unwrap();
    match response.status().as_u16() {
        401 => panic!("{operation}: the credential is not known"),
        403 => true,
        _ => false,
    }
}

/// Every set of scopes, and none but those that hold what is needed, is let through.
async fn walk(server: &Server, operation: &str, needed: &[Scope], body: &Value) {
    for scopes in Credentials::sets() {
        // Single scopes, all but one, and exactly what is needed.
        let is_telling = scopes.len() != 2 || scopes.len() == needed.len();
        if !is_telling {
            continue;
        }
        let is_enough = needed.iter().all(|scope| scopes.contains(scope));
        let refused = is_refused(server, operation, &Credentials::key(&scopes), body).await;
        assert_eq!(refused, !is_enough, "{operation} {body} with {scopes:?} needs {needed:?}");
    }
}

fn call(method: &str, stream: &str) -> Value {
    let message = json!({ "messageId": Uuid::now_v7().to_string(), "role": "ROLE_USER",
    "kind": "message",
        "parts": [{ "text": "/tokens 1", "kind": "text" }] });
    let push = json!({ "id": "c-1", "url": "https://mine.example/" });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "id": stream, "taskId": stream,
        "message": message, "url": "https://mine.example/", "pushNotificationConfig": push } })
}

/// The operations of the API document that need a key.
async fn documented(server: &Server) -> (Vec<String>, BTreeSet<String>) {
    let document: Value = server.get("/openapi.json").await.json().await.unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty()) {
                operations.push(format!("{method} {path}"));
            }
        }
    }
    let call = &document["paths"]["/v1/a2a"]["post"]["requestBody"]["content"]["application/json"]
        ["schema"];
    let words = call["properties"]["method"]["enum"].as_array().unwrap();
    (operations, words.iter().map(|word| word.as_str().unwrap().to_owned()).collect())
}

/// An operation as the table names it: of no agent in particular, and of the newest version.
fn plain(operation: &str) -> String {
    operation
        .replace("/v1/agents/{name}/", "/v1/")
        .replace("/v1/a2a/v1/tasks", "/v1/a2a/tasks")
        .replace("/v1/a2a/v1/message", "/v1/a2a/message")
}

#[tokio::test]
async fn every_route_needs_its_scopes_and_no_other() {
    let (server, _) = serve().await;
    let (operations, _) = documented(&server).await;
    let body = json!({});
    for operation in operations {
        // One operation for each method of it and for each end of its path: below.
        if matches!(plain(&operation).as_str(), "post /v1/a2a" | "post /v1/a2a/tasks/{task}") {
            continue;
        }
        let known = ROUTES.iter().find(|(name, _)| *name == plain(&operation));
        let (_, needed) = known.unwrap_or_else(|| panic!("{operation} has no row in ROUTES"));
        walk(&server, &operation, needed, &body).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn an_operation_that_the_request_chooses_needs_its_own_scopes() {
    let (server, _) = serve().await;
    for (operation, needed) in CHOSEN {
        walk(&server, operation, needed, &json!({})).await;
        if operation.contains("/a2a/") {
            let of_agent = operation.replace("/v1/a2a/", "/v1/agents/{name}/a2a/v1/");
            walk(&server, &of_agent, needed, &json!({})).await;
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn every_method_of_json_rpc_needs_the_scopes_of_its_operation() {
    let (server, _) = serve().await;
    let (_, methods) = documented(&server).await;
    let known: BTreeSet<String> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(methods, known, "the methods of the API document and of this table");
    let (stream, _) = run(&server).await;
    for (method, needed) in METHODS {
        for path in ["/v1/a2a", "/v1/agents/{name}/a2a"] {
            walk(&server, &format!("post {path}"), needed, &call(method, &stream)).await;
        }
    }
    // Another spelling of the address is no way around.
    for path in ["/v1/a2a/", "/v1/agents/{name}/a2a/"] {
        walk(&server, &format!("post {path}"), READ, &call("GetTask", &stream)).await;
        walk(&server, &format!("post {path}"), RUN, &call("SendMessage", &stream)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_token_needs_the_same_scopes_as_a_key() {
    let (server, credentials) = serve().await;
    let (stream, _) = run(&server).await;
    let routes =
        ROUTES.iter().chain(CHOSEN).map(|(operation, needed)| (*operation, *needed, json!({})));
    let methods =
        METHODS.iter().map(|(name, needed)| ("post /v1/a2a", *needed, call(name, &stream)));
    for (operation, needed, body) in routes.chain(methods) {
        for scope in Scope::ALL {
            let refused = is_refused(&server, operation, &credentials.token(&[scope]), &body).await;
            assert_eq!(refused, needed != [scope], "{operation} {body} with a token for {scope:?}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_reads_its_stream_and_does_nothing_else() {
    let (server, _) = serve().await;
    let (stream, _) = run(&server).await;
    let (other, _) = run(&server).await;
    let issued = client()
        .post(format!("{}/v1/streams/{stream}/ticket", server.url))
        .bearer_auth(Credentials::key(READ))
        .send()
        .await
        .unwrap();
    let ticket = issued.json::<Value>().await.unwrap()["ticket"].as_str().unwrap().to_owned();
    let status = async |method: &str, path: &str, body: &Value| {
        let separator = if path.contains('?') { '&' } else { '?' };
        let url = format!("{}{path}{separator}ticket={ticket}", server.url);
        let request =
            client().request(method.parse().unwrap(), url).json(body).send().await.unwrap();
        request.status().as_u16()
    };
    for path in ["/v1/streams/{id}", "/v1/durable/{id}"] {
        assert_eq!(status("GET", &path.replace("{id}", &stream), &json!({})).await, 200, "{path}");
        assert_eq!(status("GET", &path.replace("{id}", &other), &json!({})).await, 403, "{path}");
    }
    for (operation, _) in ROUTES.iter().chain(CHOSEN) {
        let (method, path) = operation.split_once(' ').unwrap();
        if matches!(*operation, "get /v1/streams/{id}" | "get /v1/durable/{id}") {
            continue;
        }
        let path =
            path.replace("{id}", &stream).replace("{task}", &stream).replace("{name}", "demo");
        let path = path.replace("{tenant}/{session}", "acme/s").replace("{config}", "c-1");
        let told = status(&method.to_uppercase(), &path, &json!({})).await;
        assert!(matches!(told, 401 | 403), "{operation}: {told}");
    }
    for (method, _) in METHODS {
        assert_eq!(status("POST", "/v1/a2a", &call(method, &stream)).await, 401, "{method}");
    }
    server.stop().await;
}
