//! A conversation: what a session remembers, what a request adds to it, and how both become what an agent is given.

use std::collections::HashSet;

use capstan_journal::Turn;
use capstan_protocol::{ChatMessage, DecodeError, Part, Role};

use crate::ask::Ask;

/// The whole conversation for an agent. A request that does not tell it itself goes on from what is stored.
pub(crate) fn whole(ask: &Ask, stored: Vec<ChatMessage>) -> Result<Vec<ChatMessage>, DecodeError> {
    if ask.is_whole {
        return Ok(ask.messages.clone());
    }
    check_results(&ask.messages, &stored)?;
    let mut messages = stored;
    messages.extend(ask.messages.iter().cloned());
    Ok(tidy(messages))
}

/// Results must answer calls that the session knows.
fn check_results(results: &[ChatMessage], stored: &[ChatMessage]) -> Result<(), DecodeError> {
    let calls: HashSet<&str> = stored.iter().flat_map(|message| &message.parts).filter_map(called).collect();
    for (at, message) in results.iter().enumerate() {
        if let Some(id) = message.parts.iter().filter_map(answered).find(|id| !calls.contains(id)) {
            let what = format!("answers the call {id:?}, which this session does not know");
            return Err(DecodeError::value(format!("messages[{at}]"), what));
        }
    }
    Ok(())
}

/// Models refuse a call without a result and a result without its call. A stored conversation has such ones where a
/// caller went on without answering; they are left out.
fn tidy(mut messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let ids = |of: fn(&Part) -> Option<&str>| -> HashSet<String> {
        messages.iter().flat_map(|message| &message.parts).filter_map(of).map(str::to_owned).collect()
    };
    let (calls, results) = (ids(called), ids(answered));
    for message in &mut messages {
        message.parts.retain(|part| {
            called(part).is_none_or(|id| results.contains(id))
                && answered(part).is_none_or(|id| calls.contains(id))
        });
    }
    messages.retain(|message| !message.parts.is_empty());
    messages
}

fn called(part: &Part) -> Option<&str> {
    if let Part::ToolCall { id, .. } = part { id.as_deref() } else { None }
}

fn answered(part: &Part) -> Option<&str> {
    if let Part::ToolCallResponse { id, .. } = part { id.as_deref() } else { None }
}

/// What a request adds to its session. One that tells the whole conversation adds what follows the last answer in it,
/// unless the session's last turn has said so already: a client that answers a question repeats what it was about.
pub(crate) fn added<'a>(ask: &'a Ask, last: &[ChatMessage]) -> Vec<&'a ChatMessage> {
    let known = ask.messages.iter().rposition(|message| message.role == Role::Assistant);
    let first = if ask.is_whole { known.map_or(0, |at| at + 1) } else { 0 };
    let is_repeated = |message: &ChatMessage| !ask.extras.answers.is_empty() && last.contains(message);
    ask.messages.iter().skip(first).filter(|message| !is_repeated(message)).collect()
}

/// The messages of a stored turn; older versions stored a question and an answer.
pub(crate) fn of_turn(turn: Turn) -> Vec<ChatMessage> {
    if turn.messages.is_empty() && !turn.user.is_null() {
        let user = serde_json::from_value(turn.user).ok();
        return user.into_iter().chain([ChatMessage::assistant(turn.assistant)]).collect();
    }
    turn.messages.into_iter().filter_map(|message| serde_json::from_value(message).ok()).collect()
}
