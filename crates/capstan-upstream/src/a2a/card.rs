//! Reads the card of an agent: its address, version and binding.
//!
//! A card is untrusted. It may name addresses on its own server only, so that no key and no request
//! goes to another server.

use capstan_protocol::{ErrorSeverity, Fault, FaultKind};
use reqwest::Client;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::interface::{Binding, Interface, Version};
use crate::api_key::ApiKey;
use crate::body::Body;
use crate::decode::malformed;
use crate::failed_call::FailedCall;
use crate::http::{self, unsent};
use crate::upstream_failure::UpstreamFailure;

/// The path of a card below an agent's address.
const PLACE: &str = ".well-known/agent-card.json";
/// The largest card, in bytes.
const LONGEST: usize = 512 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Card {
    supported_interfaces: Vec<Offer>,
    capabilities: Capabilities,
    /// The members of 0.3.
    url: Option<String>,
    preferred_transport: Option<String>,
    protocol_version: Option<String>,
    additional_interfaces: Vec<Offer>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Capabilities {
    streaming: bool,
}

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
struct Offer {
    url: String,
    #[serde(alias = "transport")]
    protocol_binding: String,
    protocol_version: String,
}

pub(super) async fn read(
    client: &Client,
    address: &Url,
    secret: &ApiKey,
) -> Result<Interface, FailedCall> {
    let url = if address.path().ends_with(".json") {
        address.clone()
    } else {
        http::join(address, PLACE)
    };
    let mut headers: HeaderMap =
        secret.header("Bearer ").map(|key| (AUTHORIZATION, key)).into_iter().collect();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let response = client.get(url).headers(headers).send().await.map_err(unsent)?;
    let (status, head) = (response.status().as_u16(), response.headers().clone());
    let mut body = Body::of(response)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = body.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > LONGEST {
            return Err(malformed(format!("a card of more than {LONGEST} bytes")).into());
        }
    }
    if status != 200 {
        return Err(UpstreamFailure::from_response(status, &head, &bytes).to_failed_call(secret));
    }
    let card = serde_json::from_slice(&bytes)
        .map_err(|e| malformed(format!("the card cannot be read: {e}")))?;
    Ok(choose(&card, address)?)
}

/// Chooses the best interface: 1.0 before 0.3, and JSON-RPC before HTTP+JSON.
fn choose(card: &Card, address: &Url) -> Result<Interface, Fault> {
    let old = Offer {
        url: card.url.clone().unwrap_or_default(),
        protocol_binding: card.preferred_transport.clone().unwrap_or_else(|| "JSONRPC".into()),
        protocol_version: card.protocol_version.clone().unwrap_or_else(|| "0.3".into()),
    };
    let extra = card
        .additional_interfaces
        .iter()
        .map(|offer| Offer { protocol_version: old.protocol_version.clone(), ..offer.clone() });
    let offers: Vec<Offer> =
        card.supported_interfaces.iter().cloned().chain([old.clone()]).chain(extra).collect();
    let known = [
        (Version::V1, Binding::JsonRpc),
        (Version::V1, Binding::HttpJson),
        (Version::V03, Binding::JsonRpc),
    ];
    let fits = |offer: &&Offer, (version, binding): (Version, Binding)| {
        !offer.url.is_empty()
            && version.is(&offer.protocol_version)
            && binding.is(&offer.protocol_binding)
    };
    let chosen = known
        .into_iter()
        .find_map(|words| Some((words, offers.iter().find(|offer| fits(offer, words))?)));
    let Some(((version, binding), offer)) = chosen else {
        return Err(useless(
            "the card offers neither JSON-RPC of A2A 1.0 or 0.3 nor HTTP+JSON of 1.0",
        ));
    };
    let url = address.join(&offer.url).map_err(|_| useless("the card's address cannot be read"))?;
    if url.origin() != address.origin() {
        let there = url.origin().ascii_serialization();
        return Err(useless(&format!(
            "the card names {there}, which the gateway does not contact: another server gets \
             neither the key nor the request; if it is the right one, make it the agent's url and \
             set its `protocol`"
        )));
    }
    Ok(Interface { url, binding, version, streams: card.capabilities.streaming })
}

/// The fault for a card that cannot be used. A retry would get the same card.
fn useless(why: &str) -> Fault {
    let fault = malformed(why);
    debug_assert_eq!(fault.kind(), FaultKind::UpstreamMalformed);
    fault.with_severity(ErrorSeverity::Fatal).with_retryable(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(card: serde_json::Value) -> Result<Interface, Fault> {
        choose(&serde_json::from_value(card).unwrap(), &Url::parse("https://far/agents/a").unwrap())
    }

    #[test]
    fn the_newest_version_is_chosen_whatever_the_order() {
        let offer = |binding: &str, version: &str| {
            json!({ "url": format!("https://far/{binding}/{version}"),
        "protocolBinding": binding, "protocolVersion": version })
        };
        let offers = |offers: Vec<serde_json::Value>| {
            chosen(json!({ "supportedInterfaces": offers, "capabilities": { "streaming": true } }))
                .unwrap()
        };
        let best = offers(vec![
            offer("GRPC", "1.0"),
            offer("JSONRPC", "0.3"),
            offer("HTTP+JSON", "1.0"),
            offer("JSONRPC", "1.0"),
        ]);
        assert_eq!(
            (best.version, best.binding, best.url.path()),
            (Version::V1, Binding::JsonRpc, "/JSONRPC/1.0")
        );
        let rest = offers(vec![offer("JSONRPC", "0.3"), offer("HTTP+JSON", "1.0")]);
        assert_eq!((rest.version, rest.binding), (Version::V1, Binding::HttpJson));
    }

    #[test]
    fn a_card_of_the_older_version_is_read() {
        let card = json!({ "url": "https://far/rpc", "protocolVersion": "0.3.0",
        "preferredTransport": "HTTP+JSON",
            "additionalInterfaces": [{ "url": "https://far/own", "transport": "JSONRPC" }],
            "capabilities": { "streaming": true } });
        let found = chosen(card).unwrap();
        assert_eq!(
            (found.version, found.binding, found.url.path()),
            (Version::V03, Binding::JsonRpc, "/own")
        );
        assert!(!chosen(json!({ "url": "https://far/rpc" })).unwrap().streams, "unless it says so");
    }

    #[test]
    fn a_card_may_name_only_its_own_server() {
        let fault = chosen(json!({ "url": "https://elsewhere/rpc" })).unwrap_err();
        assert_eq!((fault.code(), fault.severity()), ("upstream_malformed", ErrorSeverity::Fatal));
        assert!(fault.cause().unwrap().to_string().contains("https://elsewhere"), "{fault:?}");
        assert!(chosen(json!({ "url": "http://far/rpc" })).is_err(), "nor without TLS");
        assert_eq!(chosen(json!({ "url": "/rpc" })).unwrap().url.as_str(), "https://far/rpc");
        assert!(chosen(json!({})).is_err());
    }
}
