//! Converts a provider's sources to citation blocks.

use capstan_agent::Output;
use capstan_protocol::{CitationBlock, CitationItem, PresentationEventType};
use url::Url;

use crate::thoughts::make;

/// Providers report no confidence.
const CERTAIN: f64 = 1.0;

/// Makes a block of one source. A source without an address gets `place` as its name.
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
