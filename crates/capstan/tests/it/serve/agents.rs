//! Agents of a configuration: the first answers, the others by name, and a key never gets out.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::serve::client::{ask, http};
use crate::serve::process::{Server, refused};

/// A process that answers with one message.
const SPEAK: &str = r#"printf '{"type":"assistant","message":{"model":"m-1","content":[{"type":"text","text":"%s"}]}}\n{"type":"result","subtype":"success","duration_ms":1,"duration_api_ms":1,"is_error":false,"num_turns":1,"session_id":"s"}\n' "$0""#;

/// The table of an agent that answers with one word.
pub(crate) fn table(name: &str, word: &str) -> String {
    format!(
        "[[agents]]\nname = {name:?}\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \
         {SPEAK:?}, {word:?}]\n"
    )
}

async fn answer(url: &str) -> Value {
    let post = http().post(url).json(&ask("Hi")).header("accept", "application/json");
    post.send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_agent_of_the_file_is_the_default_one() {
    let folder = tempfile::tempdir().unwrap();
    let tables = table("one", "I am one.") + &table("two", "I am two.");
    fs::write(folder.path().join("capstan.toml"), tables).unwrap();
    let server = Server::start(folder.path());
    let default = answer(&format!("{}/v1/assist", server.url)).await;
    assert_eq!(default["output"]["text"], "I am one.", "{default}");
    assert_eq!(default["output"]["close"]["agent"], "one");
    let named = answer(&format!("{}/v1/agents/two/assist", server.url)).await;
    assert_eq!(named["output"]["text"], "I am two.");
    let unknown = answer(&format!("{}/v1/agents/demo/assist", server.url)).await;
    assert_eq!(unknown["code"], json!("agent_not_found"), "the demo is there only without others");
}

#[test]
fn a_mistake_in_an_agent_names_its_line_and_the_nearest_key() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[agents]]\nname = \"a\"\nkind = \"anthropic\"\nmodle = \"m\"\n";
    fs::write(folder.path().join("capstan.toml"), text).unwrap();
    let output = refused(folder.path(), &["--listen", "127.0.0.1:0", "--journal", "memory:"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("line 4") && told.contains("did you mean `model`?"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_from_the_environment_is_neither_sent_nor_logged() {
    let folder = tempfile::tempdir().unwrap();
    let text = "debug = true\n[[agents]]\nname = \"a\"\nkind = \"openai\"\nmodel = \"m\"\nurl \
     = \"http://127.0.0.1:9\"\nkey_env = \"MY_KEY\"\n";
    fs::write(folder.path().join("capstan.toml"), text).unwrap();
    let env = [("MY_KEY", "sk-very-secret"), ("CAPSTAN_LOG", "debug")];
    let server = Server::start_with(folder.path(), &env);
    let problem = answer(&format!("{}/v1/assist", server.url)).await;
    assert_eq!(problem["code"], "upstream_unreachable", "{problem}");
    assert!(!problem.to_string().contains("very-secret"));
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(log.contains("upstream_unreachable") && !log.contains("very-secret"), "{log}");
}

/// The heads of the requests that come, each refused.
async fn refusing() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (heads, received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(1..) = stream.read(&mut byte).await else { break };
                head.extend_from_slice(&byte);
            }
            let _ = heads.send(String::from_utf8_lossy(&head).to_lowercase());
            let refusal = "HTTP/1.1 400 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(refusal.as_bytes()).await;
        }
    });
    (url, received)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openais_key_goes_to_another_server_only_if_named() {
    let (url, mut heads) = refusing().await;
    let table = |name: &str, more: &str| {
        format!(
            "[[agents]]\nname = {name:?}\nkind = \"openai\"\nmodel = \"m\"\nurl = {url:?}\n{more}\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let named = "key_env = \"OPENAI_API_KEY\"";
    let headers = "headers = { X-Team = { env = \"TEAM\" } }\nkey_env = \"\"";
    let text = table("silent", "") + &table("named", named) + &table("headers", headers);
    fs::write(folder.path().join("capstan.toml"), text).unwrap();
    let env =
        [("OPENAI_API_KEY", "sk-very-secret"), ("TEAM", "blue-team"), ("CAPSTAN_LOG", "debug")];
    let server = Server::start_with(folder.path(), &env);
    server.wait_for_line("OPENAI_API_KEY is not sent to 127.0.0.1");
    for (agent, line) in [
        ("silent", None),
        ("named", Some("authorization: bearer sk-very-secret")),
        ("headers", Some("x-team: blue-team")),
    ] {
        answer(&format!("{}/v1/agents/{agent}/assist", server.url)).await;
        let head = heads.recv().await.unwrap();
        let secret = head.lines().find(|line| line.contains("secret") || line.contains("blue"));
        assert_eq!(secret, line, "{agent}");
    }
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(!log.contains("very-secret") && !log.contains("blue-team"), "{log}");
    assert_eq!(log.matches("goes out without").count() + log.matches("go out without").count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_says_why_an_upstream_failed_and_the_answer_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[agents]]\nname = \"gpt\"\nkind = \"openai\"\nmodel = \"m\"\nurl \
     = \"http://127.0.0.1:9/v1\"\nmax_calls = 1\n\
        [[agents]]\nname = \"cli\"\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo no \
        profile: staging >&2; exit 3\"]\n\
        [[agents]]\nname = \"far\"\nkind = \"ag-ui\"\nurl = \"http://127.0.0.1:9\"\nkey_env \
        = \"NO_SUCH_KEY\"\n";
    fs::write(folder.path().join("capstan.toml"), text).unwrap();
    let server = Server::start(folder.path());
    server.wait_for_line("NO_SUCH_KEY is not set");
    let mut answers = String::new();
    for name in ["gpt", "cli"] {
        answers += &answer(&format!("{}/v1/agents/{name}/assist", server.url)).await.to_string();
    }
    server.signal("TERM");
    let (_, output) = server.wait();
    let log: Vec<Value> =
        output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let failed = |agent: &str| {
        let is_it = |line: &&Value| line["message"] == "attempt failed" && line["agent"] == agent;
        log.iter().find(is_it).unwrap_or_else(|| panic!("{output}"))
    };
    assert_eq!(failed("gpt")["host"], "127.0.0.1:9");
    assert!(failed("gpt")["cause"].as_str().unwrap().contains("Connection refused"), "{output}");
    assert_eq!(failed("cli")["stderr"], "no profile: staging");
    assert!(!output.contains("Some("), "{output}");
    for word in ["127.0.0.1", "refused", "staging"] {
        assert!(!answers.contains(word), "{word} in {answers}");
    }
}

/// The last event of a run of an agent CLI that prints a transcript, through `/v1/ag-ui`.
async fn last_event(transcript: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../vectors/claude/transcripts")
        .join(transcript);
    let text = format!(
        "[[agents]]\nname = \"cli\"\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \
         'cat \"$0\"; exit 1', {file:?}]\n"
    );
    fs::write(folder.path().join("capstan.toml"), text).unwrap();
    let server = Server::start(folder.path());
    let input = json!({ "threadId": "t", "runId": "r", "messages": [{ "id": "1", "role": "user",
    "content": "Hi" }] });
    let body = http()
        .post(format!("{}/v1/ag-ui", server.url))
        .json(&input)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let last = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    serde_json::from_str(last.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assistant_error_is_in_the_run_error_of_ag_ui() {
    for (transcript, kind, word) in [
        ("auth_failure.jsonl", "upstream_auth", "authentication_failed"),
        ("billing_error.jsonl", "upstream_quota", "billing_error"),
        ("server_error_midstream.jsonl", "upstream_error", "server_error"),
        ("message_stop_error.jsonl", "upstream_error", "brand_new_code"),
    ] {
        let event = last_event(transcript).await;
        let ours = &event["metadata"]["capstan"];
        assert_eq!(
            (&event["type"], &event["code"]),
            (&json!("RUN_ERROR"), &json!("UPSTREAM_ERROR")),
            "{event}"
        );
        assert_eq!(
            (&event["details"]["assistant_error"], &ours["kind"]),
            (&json!(word), &json!(kind)),
            "{event}"
        );
        assert_eq!(ours["details"]["assistant_error"], word, "{event}");
    }
    assert_eq!(last_event("happy_partial.jsonl").await["type"], "RUN_FINISHED");
}
