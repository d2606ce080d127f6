//! Webhooks of the real binary: allowed receivers, and receivers that it never connects to.

use capstan_gateway::KeyHash;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::serve::client::http;
use crate::serve::process::Server;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A tenant with this receiver, if it is allowed.
fn tenant(name: &str, url: &str, is_allowed: bool) -> String {
    let key = KeyHash::of(&format!("sk_{name}")).to_hex();
    format!(
        "[[tenants]]\nname = {name:?}\nkeys = [\"sha256:{key}\"]\n\
         webhook = {{ url = {url:?}, secret_env = \"HOOK\", allow_private = {is_allowed} }}\n"
    )
}

async fn ask_in_the_background(server: &Server, name: &str) {
    let body = json!({ "model": "demo", "input": "/tokens 1", "background": true });
    let request =
        http().post(format!("{}/v1/responses", server.url)).bearer_auth(format!("sk_{name}"));
    assert_eq!(request.json(&body).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_not_public_is_not_connected_to_unless_that_is_allowed() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = receiver.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    // By its address, and by a name that leads there.
    let tenants = [
        tenant("inside", &format!("https://127.0.0.1:{port}/inside"), false),
        tenant("named", &format!("https://localhost:{port}/named"), false),
        tenant("allowed", &format!("http://127.0.0.1:{port}/allowed"), true),
    ];
    std::fs::write(folder.path().join("capstan.toml"), tenants.concat()).unwrap();
    let server = Server::start_with(folder.path(), &[("HOOK", SECRET)]);
    for name in ["inside", "named"] {
        ask_in_the_background(&server, name).await;
        server.wait_for_line("is not on a public network");
    }
    ask_in_the_background(&server, "allowed").await;
    // Connections queue: an earlier one would be the first.
    let (mut first, _) = receiver.accept().await.unwrap();
    let mut line = [0; 14];
    first.read_exact(&mut line).await.unwrap();
    assert_eq!(std::str::from_utf8(&line), Ok("POST /allowed "));
}
