//! Sources that a provider names, as citation blocks.

use capstan_agent::Output;
use capstan_protocol::{CitationBlock, CitationItem, PresentationEventType};
use url::Url;

use crate::thoughts::make;

/// Providers give no measure; they cite what they used.
const CERTAIN: f64 = 1.0;

/// A block of one source; one without an address of its own is named by `place`.
pub(crate) fn block(
    url: Option<&str>,
    place: &str,
    title: &str,
    snippet: Option<&str>,
) -> Option<Output> {
    let uri = url
        .and_then(|url| Url::parse(url).ok())
        .or_else(|| Url::parse(&format!("urn:{place}")).ok())?;
    let item = CitationItem {
        source_id: url.map_or_else(|| place.to_owned(), str::to_owned),
        title: if title.is_empty() { uri.to_string() } else { title.to_owned() },
        uri,
        snippet: snippet.map(str::to_owned),
        confidence: CERTAIN,
    };
    make(PresentationEventType::CitationBlock.as_str(), &CitationBlock { citations: vec![item] })
}
