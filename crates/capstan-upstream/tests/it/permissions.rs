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

async fn post(url: String, body: &Value) -> Value {
    let answer = client().post(url).json(body).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn approved(yes: bool) -> String {
    json!({ "approved": yes }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_chat_all_answers_of_a_turn_reach_each_new_program() {
    let url = asker().await + "/v1/chat/completions";
    for (answers, said) in ANSWERS {
        let mut messages = vec![json!({ "role": "user", "content": "Do it." })];
        for yes in answers {
            let told = post(url.clone(), &json!({ "messages": messages })).await;
            let message = &told["choices"][0]["message"];
            let call = &message["tool_calls"][0];
            assert_eq!(call["function"]["name"], "interrupt", "{told}");
            messages.push(message.clone());
            messages.push(json!({ "role": "tool", "tool_call_id": call["id"],
                "content": approved(yes) }));
        }
        let told = post(url.clone(), &json!({ "messages": messages })).await;
        assert_eq!(told["choices"][0]["message"]["content"], said, "{told}");
        // The conversation goes on: its old answers are no answers any more.
        messages.push(told["choices"][0]["message"].clone());
        messages.push(json!({ "role": "user", "content": "Again." }));
        let told = post(url.clone(), &json!({ "messages": messages })).await;
        assert_eq!(told["choices"][0]["finish_reason"], "tool_calls", "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_messages_all_answers_of_a_turn_reach_each_new_program() {
    let url = asker().await + "/v1/messages";
    for (answers, said) in ANSWERS {
        let mut messages = vec![json!({ "role": "user", "content": "Do it." })];
        for yes in answers {
            let told = post(url.clone(), &json!({ "max_tokens": 9, "messages": messages })).await;
            let call = &told["content"][0];
            assert_eq!(call["name"], "interrupt", "{told}");
            messages.push(json!({ "role": "assistant", "content": told["content"] }));
            // Claude Code adds a text of its own to results.
            messages.push(json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": call["id"], "content": approved(yes) },
                { "type": "text", "text": "A reminder." },
            ] }));
        }
        let told = post(url.clone(), &json!({ "max_tokens": 9, "messages": messages })).await;
        assert_eq!(told["content"][0]["text"], said, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_responses_all_answers_of_a_turn_reach_each_new_program() {
    let url = asker().await + "/v1/responses";
    let text = |told: &Value| told["output"][0]["content"][0]["text"].clone();
    let output = |told: &Value, yes| {
        json!({ "type": "function_call_output", "call_id": told["output"][0]["call_id"],
            "output": approved(yes) })
    };
    let user = json!({ "role": "user", "content": "Do it." });
    for (answers, said) in ANSWERS {
        let mut told = post(url.clone(), &json!({ "input": [user] })).await;
        for yes in answers {
            let input = [output(&told, yes)];
            let next = json!({ "previous_response_id": told["id"], "input": input });
            told = post(url.clone(), &next).await;
        }
        assert_eq!(text(&told), said, "{told}");
        // A client may also send the whole conversation.
        let mut input = vec![user.clone()];
        let mut told = post(url.clone(), &json!({ "input": input })).await;
        for yes in answers {
            input.extend([told["output"][0].clone(), output(&told, yes)]);
            told = post(url.clone(), &json!({ "input": input })).await;
        }
        assert_eq!(text(&told), said, "{told}");
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_question_takes_one_answer_in_every_protocol() {
    let url = asker().await + "/v1/chat/completions";
    let mut messages = vec![json!({ "role": "user", "content": "Do it." })];
    let told = post(url.clone(), &json!({ "messages": messages })).await;
    let message = told["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    messages.extend([message, json!({ "role": "tool", "tool_call_id": id, "content": "yes" })]);
    post(url.clone(), &json!({ "messages": messages })).await;
    let again = client().post(url).json(&json!({ "messages": messages })).send().await.unwrap();
    let (status, error) = (again.status(), again.json::<Value>().await.unwrap());
    assert_eq!((status.as_u16(), &error["error"]["kind"]), (400, &json!("interrupt_not_open")));
}
