//! `/events`: one of each presentation event, as an agent at work would show them.

use capstan_protocol::{
    CitationBlock, CitationItem, ErrorDomain, MediaCarousel, MediaItem, ProgressStatus,
    ProgressUpdate, UserError,
};
use url::{ParseError, Url};

use crate::voice::Voice;
use capstan_agent::Outcome;

const MARKDOWN: &str = "### Capstan\n\n| part | what it does |\n|---|---|\n| drum | holds the \
 rope |\n| bars | **take** the hands |";

/// Shows them, with text between.
pub(super) async fn events(voice: &mut Voice<'_>) -> Outcome {
    voice.begin().await?;
    voice.out.thought("The user wants to see everything; one of each, then.").await?;
    voice.say("Let me look for it. ").await?;
    voice.out.progress(&progress(ProgressStatus::Running, 0.5)).await?;
    voice.say("Two sources look good. ").await?;
    voice.out.progress(&progress(ProgressStatus::Complete, 1.0)).await?;
    voice.out.citations(&citations()?).await?;
    voice.say("Here is what it looks like, ").await?;
    voice.out.media(&media()?).await?;
    voice.say("and its parts in a table. ").await?;
    voice.out.markdown(MARKDOWN).await?;
    voice.say("One tool was down, ").await?;
    voice.out.user_error(&broken_tool()).await?;
    voice.say("but that was all there is to see.").await?;
    Ok(voice.end().await?)
}

/// A failure that the user reads while the run continues.
pub(super) fn broken_tool() -> UserError {
    UserError {
        message: "The search tool is not available at the moment. Please try again.".into(),
        code: Some(503),
        domain: ErrorDomain::Tool,
        retryable: true,
    }
}

fn progress(status: ProgressStatus, part: f64) -> ProgressUpdate {
    ProgressUpdate {
        label: "Searching the harbour library".into(),
        status,
        progress_percent: Some(part),
    }
}

fn citations() -> Result<CitationBlock, ParseError> {
    let first = CitationItem {
        source_id: "harbour-1".into(),
        uri: Url::parse("https://example.org/harbour/capstans")?,
        title: "On capstans".into(),
        snippet: Some("A capstan holds what it has gained.".into()),
        confidence: 0.9,
    };
    let second = CitationItem {
        source_id: "harbour-2".into(),
        uri: Url::parse("https://example.org/harbour/ropes")?,
        title: "On ropes".into(),
        snippet: None,
        confidence: 0.6,
    };
    Ok(CitationBlock { citations: vec![first, second] })
}

fn media() -> Result<MediaCarousel, ParseError> {
    let item = MediaItem {
        url: Url::parse("https://example.org/harbour/capstan.png")?,
        mime_type: "image/png".into(),
        alt_text: Some("A wooden capstan on a quay".into()),
    };
    Ok(MediaCarousel { items: vec![item] })
}
