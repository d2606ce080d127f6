//! The finish reasons of OpenAI and of compatible servers.

/// The meaning of a finish reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish<'a> {
    /// The answer is complete.
    Complete,
    /// The answer calls tools.
    ToolCalls,
    /// A limit cut the answer short.
    Length,
    /// The provider withheld the answer.
    Refused,
    /// The server failed.
    Failed,
    /// The server stopped the answer.
    Aborted,
    /// An unknown reason.
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
