//! Adds agents with their other names, and with the routes that they forward beside runs.

use capstan_agent::async_trait;
use capstan_gateway::{Body, Gateway, Passthrough};
use capstan_protocol::Fault;
use capstan_upstream::{Group, Passed};
use hyper::body::Body as _;

use super::agents::Named;

/// Adds an agent to the gateway.
pub(super) fn add_agent(gateway: Gateway, named: Named) -> Gateway {
    let Named { name, aliases, agent, passthrough, .. } = named;
    let gateway = gateway.agent(&name, agent);
    let gateway = aliases.iter().fold(gateway, |gateway, alias| gateway.alias(&name, alias));
    match passthrough {
        Some(provider) => gateway.passthrough(&name, Provider(provider)),
        None => gateway,
    }
}

struct Provider(capstan_upstream::Passthrough);

#[async_trait]
impl Passthrough for Provider {
    fn takes(&self, group: &str) -> bool {
        self.0.groups().iter().copied().map(Group::name).any(|own| own == group)
    }

    fn model(&self) -> &str {
        self.0.model()
    }

    async fn pass(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Fault> {
        let (head, body) = request.into_parts();
        let body = match body.is_end_stream() {
            true => reqwest::Body::default(),
            false => reqwest::Body::wrap_stream(body.into_data_stream()),
        };
        let path = head.uri.path();
        let place = (path.strip_prefix("/v1/").unwrap_or(path), head.uri.query());
        let Passed { status, headers, body } =
            self.0.send(head.method, place, head.headers, body).await?;
        let mut response = http::Response::new(Body::new(body));
        *response.status_mut() = http::StatusCode::from_u16(status).map_err(Fault::from_error)?;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use capstan_gateway::PASSTHROUGH;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_group_of_the_gateway_can_be_configured() {
        for name in PASSTHROUGH {
            let group: Group = serde_json::from_value(json!(name)).unwrap();
            assert_eq!(group.name(), name);
        }
    }
}
