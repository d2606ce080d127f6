//! Posts webhooks without redirects and proxies. For receivers that must be public, it checks the
//! resolved address of every connection.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_client::transport::http_client;
use capstan_gateway::{Webhook, WebhookSender};
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;

/// After this time a delivery fails and is made again later.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct Sender {
    anywhere: Client,
    public: Client,
}

impl Sender {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let client = || {
            http_client()
                .redirect(Policy::none())
                .no_proxy()
                .timeout(DELIVERY_TIMEOUT)
                // Each delivery opens a connection, so that each address is checked.
                .pool_max_idle_per_host(0)
                .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        };
        Ok(Self {
            anywhere: client().build()?,
            public: client().dns_resolver(Arc::new(PublicOnly)).build()?,
        })
    }
}

#[async_trait]
impl WebhookSender for Sender {
    async fn post(
        &self,
        to: &Webhook,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<u16, String> {
        let url = reqwest::Url::parse(&to.url).map_err(|error| error.to_string())?;
        // No resolver runs for a literal address.
        let literal =
            url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        if !to.allow_private && literal.is_some_and(|ip| !is_public(ip)) {
            return Err(NOT_PUBLIC.into());
        }
        let client = if to.allow_private { &self.anywhere } else { &self.public };
        let mut request = client.post(url).body(body);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let response =
            request.send().await.map_err(|error| innermost_cause(&error.without_url()))?;
        Ok(response.status().as_u16())
    }
}

const NOT_PUBLIC: &str = "the webhook's receiver is not on a public network";

/// The innermost cause, which says most.
fn innermost_cause(error: &reqwest::Error) -> String {
    let chain =
        std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    chain.last().map(ToString::to_string).unwrap_or_default()
}

/// Resolves names to public addresses only.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(NOT_PUBLIC.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_reserved = matches!(
        (a, b, c),
        (0 | 240.., _, _) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _)
    );
    !(is_reserved
        || ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation())
}

/// An IPv6 address that holds an IPv4 address is as public as that.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [a, b, c, .., g, h] = ip.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        _ if ip.to_ipv4_mapped().is_some() => v4(g, h),
        (0x64, 0xff9b) => v4(g, h),
        (0x2002, _) => v4(b, c),
        (0x2001, 0x0..=0x1ff | 0xdb8) => false,
        // All globally assigned addresses are in here.
        (0x2000..=0x3fff, _) => true,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for ip in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fc00::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in
            ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
        {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[tokio::test]
    async fn a_name_or_an_address_that_leads_inside_is_refused_unless_it_is_allowed() {
        let sender = Sender::new().unwrap();
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let mut to = Webhook::new(format!("http://{host}:9/"), secret).unwrap();
            let refused = sender.post(&to, &[], Bytes::new()).await.unwrap_err();
            assert_eq!(refused, NOT_PUBLIC, "{host}");
            to.allow_private = true;
            let allowed = sender.post(&to, &[], Bytes::new()).await.unwrap_err();
            assert_ne!(allowed, NOT_PUBLIC, "{host}");
        }
    }
}
