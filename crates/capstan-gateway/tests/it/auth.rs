//! Who may come in, and what for: tokens beside keys, scopes, operators, and the audit of all that.

pub(crate) mod issuer;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Server, all, ask, client, problem, start, stream_of};
use capstan_gateway::{
    Jwt, JwtRules, KeyHash, KeySet, Operator, Right, Scope, Settings, Tenant, TenantKey,
    TokenTenants,
};
use issuer::{Issuer, with_secret};
use serde_json::{Value, json};

impl Issuer {
    /// The usual kind, with other claims than the usual ones.
    fn with(&self, name: &str, value: Value) -> String {
        let mut claims = claims();
        claims[name] = value;
        self.token("EdDSA", &claims)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims() -> Value {
    json!({ "iss": "https://id.example", "aud": ["other", "capstan"], "sub": "ada",
    "exp": now() + 600, "tenant": "acme" })
}

fn rules(tenants: TokenTenants) -> JwtRules {
    JwtRules {
        issuer: "https://id.example".into(),
        audience: vec!["capstan".into()],
        tenant_claim: "tenant".into(),
        leeway: Duration::from_secs(30),
        tenants,
        require_scopes: false,
    }
}

fn jwt(issuer: &Issuer, tenants: TokenTenants) -> Jwt {
    let keys = KeySet::parse(issuer.published().to_string().as_bytes()).unwrap();
    Jwt::new(rules(tenants), Some(keys))
}

fn scoped(key: &str, scopes: &[Scope]) -> TenantKey {
    TenantKey { hash: KeyHash::of(key), scopes: scopes.iter().copied().collect() }
}

fn settings() -> Settings {
    let mut acme = Tenant::new("acme", vec![KeyHash::of("key-a"), KeyHash::of("key-b")]);
    acme.keys.push(scoped("reader", &[Scope::Read]));
    acme.keys.push(scoped("stopper", &[Scope::Read, Scope::Stop]));
    acme.keys.push(scoped("runner", &[Scope::Run]));
    Settings { tenants: vec![acme].into(), ..Settings::default() }
}

async fn post(server: &Server, shown: &str) -> reqwest::Response {
    server.post_with(&ask("/tokens 1"), &[("authorization", &format!("Bearer {shown}"))]).await
}

async fn send(server: &Server, method: &str, path: &str, shown: &str) -> reqwest::Response {
    let method = method.parse().unwrap();
    client()
        .request(method, format!("{}{path}", server.url))
        .bearer_auth(shown)
        .send()
        .await
        .unwrap()
}

async fn status(server: &Server, method: &str, path: &str, shown: &str) -> u16 {
    send(server, method, path, shown).await.status().as_u16()
}

#[tokio::test]
async fn a_token_of_each_algorithm_opens_its_tenant_and_brings_a_ticket() {
    let issuer = Issuer::new();
    let server =
        start(Settings { jwt: Some(jwt(&issuer, TokenTenants::Configured)), ..settings() }).await;
    for algorithm in ["EdDSA", "ES256", "RS256", "PS256"] {
        let response = post(&server, &issuer.token(algorithm, &claims())).await;
        assert_eq!(response.status(), 200, "{algorithm:?}");
        let stream = stream_of(&response);
        let ticket = response.headers()["x-stream-ticket"].to_str().unwrap().to_owned();
        all(response).await;
        assert_eq!(
            server.get(&format!("/v1/streams/{stream}?ticket={ticket}")).await.status(),
            200
        );
        assert_eq!(
            status(&server, "GET", &format!("/v1/streams/{stream}"), "key-a").await,
            200,
            "its tenant's"
        );
    }
    server.stop().await;
}

/// Tokens that do not count, with the status that they get.
fn unfit(issuer: &Issuer) -> Vec<(&'static str, String, u16)> {
    let good = issuer.token("RS256", &claims());
    let (head, signature) = good.rsplit_once('.').unwrap();
    let body = head.split_once('.').unwrap().1;
    // {"alg":"none","kid":"RS256"}
    let unsigned = format!("eyJhbGciOiJub25lIiwia2lkIjoiUlMyNTYifQ.{body}.");
    let published = issuer.published();
    let public = published["keys"][2]["n"].as_str().unwrap().as_bytes();
    let confused = with_secret(public, "RS256", &claims());
    let stranger = Issuer::new();
    let mut nobodys = claims();
    nobodys.as_object_mut().unwrap().remove("tenant");
    let mut endless = claims();
    endless.as_object_mut().unwrap().remove("exp");
    let other = issuer.signed("RS256", Some("PS256"), &claims());
    let unknown = issuer.signed("EdDSA", Some("new"), &claims());
    let nameless = issuer.signed("EdDSA", None, &claims());
    vec![
        ("alg none", unsigned, 403),
        ("HMAC with the public key", confused, 403),
        ("another algorithm than the key's", other, 403),
        ("a key of the same name of another issuer", stranger.token("EdDSA", &claims()), 403),
        ("an unknown key", unknown, 403),
        ("no key of several", nameless, 403),
        ("something critical that nobody knows", issuer.critical(&claims()), 403),
        ("no signature", format!("{head}."), 403),
        ("another body", format!("{}.e30.{signature}", head.split('.').next().unwrap()), 403),
        ("expired", issuer.with("exp", json!(now() - 60)), 401),
        ("not yet valid", issuer.with("nbf", json!(now() + 600)), 401),
        ("without an end", issuer.token("EdDSA", &endless), 403),
        ("an end that is no number", issuer.with("exp", json!("soon")), 403),
        ("another issuer", issuer.with("iss", json!("https://evil.example")), 403),
        ("another audience", issuer.with("aud", json!("other")), 403),
        ("no audience", issuer.with("aud", json!([])), 403),
        ("no tenant", issuer.token("EdDSA", &nobodys), 403),
        ("a tenant that is no name", issuer.with("tenant", json!(["acme"])), 403),
        ("an unknown tenant", issuer.with("tenant", json!("other")), 403),
        ("rubbish", "a.b.c".into(), 403),
        ("dots", "..".into(), 403),
    ]
}

#[tokio::test]
async fn a_token_that_does_not_hold_is_refused_in_types() {
    let issuer = Issuer::new();
    let server =
        start(Settings { jwt: Some(jwt(&issuer, TokenTenants::Configured)), ..settings() }).await;
    for (what, token, expected) in unfit(&issuer) {
        let response = post(&server, &token).await;
        assert_eq!(response.status().as_u16(), expected, "{what}");
        let problem = problem(response).await;
        let code = if expected == 401 { "tenant_required" } else { "tenant_unauthorized" };
        assert_eq!(problem.code, code, "{what}");
    }
    let late = issuer.with("exp", json!(now() - 10));
    assert_eq!(post(&server, &late).await.status(), 200, "within what clocks may differ");
    let good = format!("Bearer {}", issuer.token("ES256", &claims()));
    let headers = [("authorization", good.as_str()), ("x-tenant-id", "other")];
    assert_eq!(server.post_with(&ask("/tokens 1"), &headers).await.status(), 403);
    server.stop().await;
}

#[tokio::test]
async fn a_token_ends_by_the_gateways_own_clock() {
    let issuer = Issuer::new();
    let server =
        start(Settings { jwt: Some(jwt(&issuer, TokenTenants::Configured)), ..settings() }).await;
    let (usual, later) =
        (issuer.token("EdDSA", &claims()), issuer.with("nbf", json!(now() + 3600)));
    let statuses = async || {
        (
            post(&server, &usual).await.status().as_u16(),
            post(&server, &later).await.status().as_u16(),
        )
    };
    assert_eq!(statuses().await, (200, 401));
    // Ten minutes and what clocks may differ are not over, and then they are.
    server.clock.set_by(600);
    assert_eq!(statuses().await, (200, 401));
    server.clock.set_by(60);
    assert_eq!(statuses().await, (401, 401));
    let refused = problem(post(&server, &usual).await).await;
    assert_eq!(refused.detail.as_deref(), Some("The token has expired."));
    server.clock.set_by(-660 + 3590);
    let expiring = issuer.with("exp", json!(now() + 7200));
    assert_eq!(post(&server, &expiring).await.status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn no_token_becomes_the_tenant_without_credentials() {
    let issuer = Issuer::new();
    let any = || Some(jwt(&issuer, TokenTenants::Any(10)));
    let token = issuer.with("tenant", json!("local"));
    let server = start(Settings { jwt: any(), ..Settings::default() }).await;
    assert_eq!(problem(post(&server, &token).await).await.code, "tenant_unauthorized");
    assert_eq!(status(&server, "GET", "/v1/streams", &token).await, 403);
    server.stop().await;
    // Whoever configures a tenant of that name means it.
    let tenants = vec![Tenant::new("local", vec![KeyHash::of("k")])].into();
    let server = start(Settings { jwt: any(), tenants, ..Settings::default() }).await;
    assert_eq!(post(&server, &token).await.status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn a_read_only_key_arms_no_run_that_waits() {
    let server = start(settings()).await;
    let request = ask("/flaky 1 --wait 60");
    let with = |key: &'static str| [("authorization", key)];
    let response = server.post_with(&request, &with("Bearer key-a")).await;
    let one = format!("/v1/streams/{}", stream_of(&response));
    assert!(all(response).await.len() > 1);
    let stands = async || {
        let list: Value = send(&server, "GET", "/v1/streams", "reader").await.json().await.unwrap();
        (list["streams"][0]["state"].clone(), list["streams"][0]["attempt"].clone())
    };
    let waiting = stands().await;
    assert_eq!(waiting.0, json!("waiting"));
    for key in ["Bearer reader", "Bearer stopper"] {
        let refused = server.post_with(&request, &with(key)).await;
        assert_eq!(problem(refused).await.code, "tenant_unauthorized", "{key}");
    }
    assert_eq!(stands().await, waiting, "nothing has happened to it");
    assert!(server.waits().is_empty(), "and nothing is about to");
    assert_eq!(status(&server, "GET", &format!("{one}/packets"), "reader").await, 200);
    all(server.post_with(&request, &with("Bearer runner")).await).await;
    assert_eq!(stands().await.0, json!("closed"), "one that may run arms it");
    server.stop().await;
}

#[tokio::test]
async fn without_rules_no_token_counts() {
    let server = start(settings()).await;
    assert_eq!(post(&server, &Issuer::new().token("EdDSA", &claims())).await.status(), 403);
    server.stop().await;
}

#[tokio::test]
async fn keys_are_rotated_while_it_serves_and_an_unknown_one_is_asked_for() {
    let (old, new) = (Issuer::new(), Issuer::new());
    let jwt = jwt(&old, TokenTenants::Configured);
    let server = start(Settings { jwt: Some(jwt.clone()), ..settings() }).await;
    let (first, second) = (old.token("EdDSA", &claims()), new.token("EdDSA", &claims()));
    assert_eq!(post(&server, &first).await.status(), 200);
    assert_eq!(post(&server, &second).await.status(), 403);
    let unknown = new.signed("EdDSA", Some("new"), &claims());
    assert_eq!(post(&server, &unknown).await.status(), 403);
    tokio::time::timeout(Duration::from_secs(10), jwt.wanted()).await.expect("it is asked for");
    jwt.replace(KeySet::parse(new.published().to_string().as_bytes()).unwrap());
    assert_eq!(post(&server, &first).await.status(), 403);
    assert_eq!(post(&server, &second).await.status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn tokens_may_bring_any_tenant_up_to_a_number_and_then_nobody_is_local() {
    let issuer = Issuer::new();
    let jwt = Some(jwt(&issuer, TokenTenants::Any(2)));
    let server = start(Settings { jwt, ..Settings::default() }).await;
    for (tenant, expected) in
        [("one", 200), ("two", 200), ("three", 403), ("one", 200), ("a b", 403)]
    {
        let token = issuer.with("tenant", json!(tenant));
        assert_eq!(post(&server, &token).await.status().as_u16(), expected, "{tenant}");
    }
    assert_eq!(server.post(&ask("/tokens 1")).await.status(), 401, "without a token");
    let token = |tenant: &str| issuer.with("tenant", json!(tenant));
    let stream = stream_of(&post(&server, &token("one")).await);
    assert_eq!(status(&server, "GET", &format!("/v1/streams/{stream}"), &token("one")).await, 200);
    assert_eq!(status(&server, "GET", &format!("/v1/streams/{stream}"), &token("two")).await, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_key_does_what_its_scopes_say_in_every_face() {
    let server = start(settings()).await;
    let run = post(&server, "key-a").await;
    let (stream, _) = (stream_of(&run), all(run).await);
    let one = format!("/v1/streams/{stream}");
    let (packets, ticket, purge) =
        (format!("{one}/packets"), format!("{one}/ticket"), format!("{one}?purge=true"));
    let refused = |key: &'static str, routes: Vec<(&'static str, String)>| {
        let server = &server;
        async move {
            for (method, path) in routes {
                let response = send(server, method, &path, key).await;
                assert_eq!(response.status(), 403, "{key}: {method} {path}");
                assert!(
                    response.text().await.unwrap().to_lowercase().contains("tenant_unauthorized")
                );
            }
        }
    };
    let start_routes = || {
        ["/v1/assist", "/v1/agents/demo/assist", "/v1/ag-ui", "/v1/agents/demo/ag-ui"]
            .map(|path| ("POST", path.to_owned()))
    };
    let mut for_reader = Vec::from(start_routes());
    for_reader.extend([
        ("DELETE", one.clone()),
        ("DELETE", purge.clone()),
        ("DELETE", "/v1/sessions/s".into()),
    ]);
    refused("reader", for_reader).await;
    let mut for_stopper = Vec::from(start_routes());
    for_stopper.extend([("DELETE", purge.clone()), ("DELETE", "/v1/sessions/s".into())]);
    refused("stopper", for_stopper).await;
    let reading = [
        one.clone(),
        packets,
        "/v1/streams".into(),
        "/v1/sessions/s".into(),
        "/v1/ag-ui?runId=x".into(),
    ];
    let mut for_runner: Vec<_> = reading.map(|path| ("GET", path)).into();
    for_runner.extend([("POST", ticket.clone()), ("DELETE", one.clone())]);
    refused("runner", for_runner).await;

    assert_eq!(status(&server, "GET", &one, "reader").await, 200);
    assert_eq!(status(&server, "POST", &ticket, "reader").await, 200);
    assert_eq!(status(&server, "DELETE", &one, "stopper").await, 200);
    assert_eq!(post(&server, "runner").await.status(), 200);
    assert_eq!(status(&server, "DELETE", &purge, "key-a").await, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_read_only_key_does_not_even_attach_with_the_request() {
    let server = start(settings()).await;
    let request = ask("/tokens 1");
    let with = |key: &'static str| [("authorization", key)];
    assert_eq!(server.post_with(&request, &with("Bearer key-a")).await.status(), 200);
    assert_eq!(server.post_with(&request, &with("Bearer reader")).await.status(), 403);
    server.stop().await;
}

#[tokio::test]
async fn a_token_does_what_its_scopes_say() {
    let issuer = Issuer::new();
    let server =
        start(Settings { jwt: Some(jwt(&issuer, TokenTenants::Configured)), ..settings() }).await;
    let read = issuer.with("scope", json!("openid read"));
    assert_eq!(post(&server, &read).await.status(), 403);
    assert_eq!(status(&server, "GET", "/v1/streams", &read).await, 200);
    let run = issuer.with("scp", json!(["run"]));
    assert_eq!(post(&server, &run).await.status(), 200);
    assert_eq!(status(&server, "GET", "/v1/streams", &run).await, 403);
    server.stop().await;

    let strict = JwtRules { require_scopes: true, ..rules(TokenTenants::Configured) };
    let keys = KeySet::parse(issuer.published().to_string().as_bytes()).unwrap();
    let server = start(Settings { jwt: Some(Jwt::new(strict, Some(keys))), ..settings() }).await;
    assert_eq!(post(&server, &issuer.token("EdDSA", &claims())).await.status(), 403);
    assert_eq!(post(&server, &run).await.status(), 200);
    server.stop().await;
}

fn operator(name: &str, key: &str, may: &[Right]) -> Operator {
    Operator {
        name: name.into(),
        keys: vec![KeyHash::of(key)],
        tenants: vec!["*".into()],
        may: may.into(),
    }
}

#[tokio::test]
async fn an_operator_reads_the_metrics_from_elsewhere_and_starts_nothing() {
    let operators =
        vec![operator("ada", "looks", &[Right::Look]), operator("bob", "acts", &[Right::Act])];
    let settings = Settings { operators: operators.into(), ..settings() };
    let operators = settings.operators.clone();
    let server = start(settings).await;
    let metrics = async |key: &str| {
        let request =
            client().get(format!("{}/metrics", server.url)).header("host", "gateway.example");
        request.bearer_auth(key).send().await.unwrap().status().as_u16()
    };
    assert_eq!(
        (metrics("looks").await, metrics("acts").await, metrics("key-a").await),
        (200, 403, 403)
    );
    assert_eq!(post(&server, "looks").await.status(), 403);
    assert_eq!(status(&server, "GET", "/v1/streams", "looks").await, 403);
    operators.replace(Vec::new());
    assert_eq!(metrics("looks").await, 403);
    server.stop().await;
}

/// What is logged while a test runs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let (log, lines) = (Self::default(), tracing_subscriber::fmt().json().flatten_event(true));
        let writer = log.clone();
        (log, tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish()))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn audit(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["target"] == "audit").collect()
    }
}

fn mark(key: &str) -> String {
    KeyHash::of(key).to_hex()[..8].to_owned()
}

#[tokio::test]
async fn the_audit_says_who_did_what_and_never_the_key_nor_what_was_said() {
    let (log, _guard) = Log::start();
    let server = start(settings()).await;
    assert_eq!(post(&server, "sk_stranger").await.status(), 403);
    assert_eq!(server.get("/v1/streams").await.status(), 401);
    assert_eq!(post(&server, "reader").await.status(), 403);
    let run = server.post_with(&ask("wonderland"), &[("authorization", "Bearer key-a")]).await;
    let (stream, _) = (stream_of(&run), all(run).await);
    assert_eq!(
        status(&server, "DELETE", &format!("/v1/streams/{stream}?purge=true"), "key-b").await,
        200
    );
    for (key, _) in [("key-a", "its own is not told"), ("stopper", "another's is")] {
        let run = server
            .post_with(&ask("/tokens 1000 --delay 1s"), &[("authorization", "Bearer key-a")])
            .await;
        assert_eq!(
            status(&server, "DELETE", &format!("/v1/streams/{}", stream_of(&run)), key).await,
            200
        );
    }
    server.stop().await;

    let told: Vec<(String, String, String)> = log
        .audit()
        .iter()
        .map(|line| {
            ["message", "tenant", "key"].map(|name| line[name].as_str().unwrap().to_owned()).into()
        })
        .collect();
    let line =
        |message: &str, tenant: &str, key: String| (message.to_owned(), tenant.to_owned(), key);
    let expected = [
        line("refused by credentials", "", mark("sk_stranger")),
        line("refused by credentials", "", String::new()),
        line("refused by credentials", "acme", mark("reader")),
        line("purged a stream", "acme", mark("key-b")),
        line("stopped a run that another key started", "acme", mark("stopper")),
    ];
    assert_eq!(told, expected);
    assert_eq!(log.audit()[3]["stream"], stream);
    let text = log.text();
    assert!(!text.contains("sk_stranger") && !text.contains("wonderland"), "{text}");
}

#[tokio::test]
async fn a_flood_of_refusals_does_not_fill_the_log() {
    let (log, _guard) = Log::start();
    let server = start(settings()).await;
    for _ in 0..300 {
        assert_eq!(server.get("/v1/agents").await.status(), 401);
    }
    server.stop().await;
    let told = log.audit();
    let seconds =
        told.iter().filter(|line| line["message"] != "refused by credentials").count() + 1;
    let lines = told.iter().filter(|line| line["message"] == "refused by credentials").count();
    // A slow machine takes more than a second for them, and then more are told.
    assert!(lines >= 100 && lines <= 100 * (seconds + 2), "{lines} lines, {seconds}");
}
