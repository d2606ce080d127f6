//! Why an answer ends: OpenAI's words, and those of the servers that are compatible with it.

/// What a finish means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish<'a> {
    /// It is complete.
    Complete,
    /// It calls tools.
    ToolCalls,
    /// It was cut short by a limit.
    Length,
    /// It was withheld.
    Refused,
    /// The server gave up.
    Failed,
    /// Somebody at the server broke it off.
    Aborted,
    /// A word of its own.
    Other(&'a str),
}

impl<'a> Finish<'a> {
    pub(super) fn of(word: &'a str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "stop" | "stop_sequence" | "end_turn" | "eos" | "eos_token" | "complete"
            | "completed" => Self::Complete,
            "tool_calls" | "function_call" | "tool_call" | "tool_use" => Self::ToolCalls,
            "length" | "max_tokens" | "max_output_tokens" | "model_length" => Self::Length,
            "content_filter"
            | "content_filtered"
            | "safety"
            | "sensitive"
            | "recitation"
            | "blocklist"
            | "prohibited_content"
            | "spii"
            | "image_safety"
            | "refusal"
            | "moderation"
            | "guardrail_intervened" => Self::Refused,
            "error"
            | "failed"
            | "network_error"
            | "server_error"
            | "insufficient_system_resource"
            | "malformed_function_call" => Self::Failed,
            "abort" | "aborted" | "cancelled" | "canceled" | "interrupted" | "incomplete" => {
                Self::Aborted
            }
            _ => Self::Other(word),
        }
    }
}
