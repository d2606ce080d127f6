//! The condition of a rule or a reply: which calls it applies to.

use crate::question::Question;

/// The calls of a rule or a reply. An unset member matches all calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// The requested model; a `*` at the end matches any suffix.
    pub model: Option<String>,
    /// A part of the user's last message.
    pub user: Option<String>,
    /// A tool that the call offers.
    pub offers: Option<String>,
    /// The number of tool results after the user's last message.
    pub tool_results: Option<usize>,
}

impl Condition {
    pub(crate) fn fits(&self, question: &Question) -> bool {
        let is_model = |wanted: &String| match wanted.strip_suffix('*') {
            Some(beginning) => question.model.starts_with(beginning),
            None => *wanted == question.model,
        };
        self.model.as_ref().is_none_or(is_model)
            && self.user.as_ref().is_none_or(|part| question.user.contains(part.as_str()))
            && self.offers.as_ref().is_none_or(|tool| question.tools.contains(tool))
            && self.tool_results.is_none_or(|number| number == question.tool_results)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_part_of_a_condition_has_to_fit() {
        let question = Question::parse(&json!({
            "model": "claude-big-5",
            "tools": [{ "name": "Write" }],
            "messages": [{ "role": "user", "content": "Write a file, please." }],
        }));
        let all = Condition {
            model: Some("claude-big*".into()),
            user: Some("a file".into()),
            offers: Some("Write".into()),
            tool_results: Some(0),
        };
        assert!(all.fits(&question) && Condition::default().fits(&question));
        for other in [
            Condition { model: Some("claude-big".into()), ..all.clone() },
            Condition { user: Some("a folder".into()), ..all.clone() },
            Condition { offers: Some("Read".into()), ..all.clone() },
            Condition { tool_results: Some(1), ..all.clone() },
        ] {
            assert!(!other.fits(&question), "{other:?}");
        }
    }
}
