//! Translates the parameters of an answer for agents of other protocols.

use capstan_protocol::{AnswerSchema, DecodeError, Effort, RawJson, ResponseFormat};
use serde::Deserialize;

use super::content::Reader;

/// How much the model thinks, and the format of its answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct OutputConfig {
    effort: Option<String>,
    format: Option<Format>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Format {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<RawJson>,
}

impl OutputConfig {
    /// An unknown word is left to a provider of this protocol.
    pub(super) fn effort(&self, reader: Reader) -> Result<Option<Effort>, DecodeError> {
        let Some(word) = self.effort.as_deref() else { return Ok(None) };
        Ok(Some(match word {
            "low" => Effort::Low,
            "medium" => Effort::Medium,
            "high" => Effort::High,
            "xhigh" => Effort::XHigh,
            "max" => Effort::Max,
            _ if reader == Reader::Any => return Ok(None),
            other => {
                let what = format!("{other:?} is none: low, medium, high, xhigh, max");
                return Err(DecodeError::value("output_config.effort", what));
            }
        }))
    }

    pub(super) fn into_format(self, reader: Reader) -> Result<Option<ResponseFormat>, DecodeError> {
        self.format.map_or(Ok(None), |format| format.into_format(reader))
    }
}

impl Format {
    pub(super) fn into_format(self, reader: Reader) -> Result<Option<ResponseFormat>, DecodeError> {
        let missing = || DecodeError::value("output_config.format.schema", "is missing");
        match self.kind.as_str() {
            "json_schema" => Ok(Some(ResponseFormat::JsonSchema(AnswerSchema {
                name: "answer".into(),
                schema: self.schema.ok_or_else(missing)?,
                strict: true,
            }))),
            _ if reader == Reader::Any => Ok(None),
            other => Err(DecodeError::value(
                "output_config.format.type",
                format!("{other:?} is not understood"),
            )),
        }
    }
}
