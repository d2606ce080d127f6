//! A program asks for permissions, and each protocol brings it the answers.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::*;

/// Asks for two tools, one after the other, and says what it was told of each.
const ASKS_TWICE: &str = r#"read prompt
ask() {
  printf '{"type":"control_request","request_id":"%s","request":{"subtype":"can_use_tool","tool_name":"%s","input":{"n":1},"tool_use_id":"call_%s"}}\n' "$1" "$1" "$1"
  read reply
  case "$reply" in
    *'"behavior":"allow"'*) said="$said $1 allowed.";;
    *'"behavior":"deny"'*) said="$said $1 denied.";;
  esac
}
ask Write; ask Bash
printf '{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"Done:%s"}]}}\n' "$said"
printf '{"type":"result","subtype":"success","duration_ms":1,"duration_api_ms":1,"is_error":false,"num_turns":1,"session_id":"s"}\n'
cat"#;

/// The answers to the two questions, and what the program then says.
const ANSWERS: [([bool; 2], &str); 3] = [
    ([true, true], "Done: Write allowed. Bash allowed."),
    ([true, false], "Done: Write allowed. Bash denied."),
    ([false, true], "Done: Write denied. Bash allowed."),
];

async fn asker() -> String {
    let command = json!({ "command": ["sh", "-c", ASKS_TWICE], "prompt": "stream-json" });
    gateway(agent("command", command)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn in_agui_all_answers_of_a_turn_reach_each_new_program() {
    let url = asker().await + "/v1/ag-ui";
    for (answers, said) in ANSWERS {
        let thread = Uuid::now_v7().to_string();
        let ask = async |resume: Value| {
            let input = json!({ "threadId": thread, "runId": Uuid::now_v7().to_string(),
                "protocolVersion": "1.0", "resume": resume,
                "messages": [{ "id": "1", "role": "user", "content": "Do it." }] });
            let answer = client().post(&url).json(&input).send().await.unwrap();
            let text = answer.text().await.unwrap();
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            data.map(|data| serde_json::from_str::<Value>(data).unwrap()).collect::<Vec<_>>()
        };
        let mut events = ask(json!([])).await;
        for yes in answers {
            let question = &events.last().unwrap()["outcome"]["interrupts"][0];
            events = ask(json!([{ "interruptId": question["id"], "status": "resolved",
                "payload": { "approved": yes } }]))
            .await;
        }
        let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(text, said, "{events:?}");
    }
}
