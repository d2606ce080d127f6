//! Keys as an operator makes, rotates and revokes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use capstan_gateway::KeyHash;
use serde_json::json;

use crate::serve::client::http;
use crate::serve::issuer::Issuer;
use crate::serve::process::Server;

/// `capstan key new`: the key, and the table for the configuration.
pub(crate) fn new_key(tenant: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_capstan"))
        .args(["key", "new", tenant])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout).trim().to_owned(), text(output.stderr))
}

async fn status(server: &Server, key: &str) -> u16 {
    let request = http().get(format!("{}/v1/streams", server.url)).bearer_auth(key);
    request.send().await.unwrap().status().as_u16()
}

/// Replaces the file, sends the signal, and waits for this line in the log.
fn reload(server: &Server, folder: &Path, config: &str, told: &str) {
    fs::write(folder.join("capstan.toml"), config).unwrap();
    server.signal("HUP");
    server.wait_for_line(told);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_made_used_rotated_and_revoked_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let ((old, old_table), (new, new_table)) = (new_key("acme"), new_key("acme"));
    fs::write(folder.path().join("capstan.toml"), &old_table).unwrap();
    let server = Server::start(folder.path());
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (200, 403));

    let hash = new_table.split('"').find(|part| part.starts_with("sha256:")).unwrap();
    let both = old_table.replace("keys = [", &format!("keys = [\"{hash}\", "));
    reload(&server, folder.path(), &both, "reloaded tenants and keys");
    let answers = (status(&server, &old).await, status(&server, &new).await);
    assert_eq!(answers, (200, 200), "both open while clients move over");
    reload(&server, folder.path(), &new_table, "reloaded tenants and keys");
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (403, 200));

    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(!log.contains(&old) && !log.contains(&new), "a key in\n{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_file_is_reported_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ((key, table), (other, other_table)) = (new_key("acme"), new_key("acme"));
    fs::write(folder.path().join("capstan.toml"), &table).unwrap();
    let server = Server::start(folder.path());
    for wrong in ["[[tenants]]\nname = \"acme\"\nkeys = [\"sk_plain\"]\n", "debug = false\n"] {
        reload(&server, folder.path(), wrong, "stay as they were");
        assert_eq!(status(&server, &key).await, 200);
    }
    reload(&server, folder.path(), &other_table, "reloaded tenants and keys");
    assert_eq!(status(&server, &other).await, 200);
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(log.contains("line 3") && log.contains("no tenants any more"), "{log}");
    assert!(!log.contains("sk_plain"), "{log}");
}

/// A configuration that takes tokens, with an operator of this key.
fn with_operator(key: &str) -> String {
    let hash = KeyHash::of(key).to_hex();
    format!(
        "[auth.jwt]\nissuer = \"https://id.example\"\naudience = \"capstan\"\njwks_file \
         = \"keys.json\"\n\
        [[tenants]]\nname = \"acme\"\n\
        [[operators]]\nname = \"ada\"\nkeys = [\"sha256:{hash}\"]\ntenants = [\"*\"]\nmay = \
        [\"look\"]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_and_the_keys_of_tokens_are_replaced_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Issuer::new(), Issuer::new());
    let publish = |issuer: &Issuer| {
        fs::write(folder.path().join("keys.json"), issuer.published().to_string()).unwrap();
    };
    let claims = json!({ "iss": "https://id.example", "aud": "capstan", "exp": 4_000_000_000_u64,
    "tenant": "acme" });
    let (first, second) = (old.token("EdDSA", &claims), new.token("EdDSA", &claims));
    publish(&old);
    fs::write(folder.path().join("capstan.toml"), with_operator("key-of-ada")).unwrap();
    let server = Server::start(folder.path());
    // From another address, where only an operator may read them.
    let metrics = async |key: &str| {
        let request =
            http().get(format!("{}/metrics", server.url)).header("host", "gateway.example");
        request.bearer_auth(key).send().await.unwrap().status().as_u16()
    };
    assert_eq!((status(&server, &first).await, status(&server, &second).await), (200, 403));
    assert_eq!((metrics("key-of-ada").await, metrics("key-of-bob").await), (200, 403));

    publish(&new);
    reload(&server, folder.path(), &with_operator("key-of-bob"), "reloaded the keys of tokens");
    assert_eq!((status(&server, &first).await, status(&server, &second).await), (403, 200));
    assert_eq!((metrics("key-of-ada").await, metrics("key-of-bob").await), (403, 200));

    // Unreadable keys change nothing. An operator without rights changes nothing either.
    fs::write(folder.path().join("keys.json"), "{}").unwrap();
    let wrong = with_operator("key-of-ada").replace("[\"look\"]", "[]");
    reload(&server, folder.path(), &wrong, "the keys of tokens stay as they were");
    assert_eq!((status(&server, &second).await, metrics("key-of-bob").await), (200, 200));
}
