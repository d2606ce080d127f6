//! The addresses that a server listens on, and the URLs at which others reach it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

use super::config::Config;
use crate::cmd::Failure;

/// Resolves the address, and refuses one beyond loopback if there are no tenants and no `--open`.
pub(super) async fn allowed(
    config: &Config,
    listen: &str,
    is_local: bool,
) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = resolve(listen).await?;
    let exposed = addresses.iter().find(|a| !a.ip().is_loopback());
    let Some(address) = exposed.filter(|_| is_local && !config.open) else { return Ok(addresses) };
    let message = format!("{address} can be reached from elsewhere, but no tenants are configured");
    Err(Failure::usage(message).with_help(
        "make a key with `capstan key new TENANT` and add its [[tenants]] to capstan.toml, or \
         allow everybody with --open",
    ))
}

async fn resolve(listen: &str) -> Result<Vec<SocketAddr>, Failure> {
    let wrong = |e: io::Error| Failure::usage(format!("listen: {listen:?} is not HOST:PORT ({e})"));
    let mut found: Vec<SocketAddr> =
        tokio::net::lookup_host(listen).await.map_err(wrong)?.collect();
    // 127.0.0.1 first, because every machine has it.
    found.sort_by_key(|address| address.is_ipv6());
    found.dedup();
    Ok(found)
}

/// The same host with another port.
pub(super) fn with_port(listen: &str, port: u16) -> String {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    format!("{host}:{port}")
}

pub(super) async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, Failure> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    for mut address in addresses.iter().copied() {
        // Port 0 takes any free port; both loopback addresses then share it.
        if let Some(first) = listeners.first() {
            address.set_port(first.local_addr()?.port());
        }
        match TcpListener::bind(address).await {
            Ok(listener) => listeners.push(listener),
            // A machine without IPv6 still has the IPv4 address.
            Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST) && !listeners.is_empty() => {}
            Err(error) => return Err(taken(address, &error)),
        }
    }
    Ok(listeners)
}

fn taken(address: SocketAddr, error: &io::Error) -> Failure {
    let is_taken = error.kind() == io::ErrorKind::AddrInUse;
    let message = if is_taken {
        format!("port {} is already in use", address.port())
    } else {
        format!("cannot listen on {address}: {error}")
    };
    Failure::usage(message)
        .with_help("choose another with --port PORT or --listen HOST:PORT (make run: PORT=…)")
}

/// The server's URL with its real port. It says `localhost` only if the server has both loopback
/// addresses.
pub(super) fn url(addresses: &[SocketAddr], is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    match addresses {
        [one] => format!("{scheme}://{one}"),
        [first, ..] => format!("{scheme}://localhost:{}", first.port()),
        [] => String::new(),
    }
}

/// The URL for other gateways, unless one is configured: none if the server listens on all
/// addresses, because that address names no machine.
pub(super) fn advertised(addresses: &[SocketAddr], is_tls: bool) -> Option<String> {
    let is_one = |address: &SocketAddr| !address.ip().is_unspecified();
    addresses.iter().all(is_one).then(|| url(addresses, is_tls)).filter(|url| !url.is_empty())
}

/// The addresses at which this machine reaches the server: loopback in place of "all addresses".
pub(super) fn reachable(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let loopback = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
        }
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port())
        }
        IpAddr::V4(_) | IpAddr::V6(_) => *address,
    };
    addresses.iter().map(loopback).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_port_takes_the_place_of_another() {
        for (listen, expected) in [
            ("localhost:8787", "localhost:9000"),
            ("[::1]:8787", "[::1]:9000"),
            ("0.0.0.0:1", "0.0.0.0:9000"),
            ("localhost", "localhost:9000"),
        ] {
            assert_eq!(with_port(listen, 9000), expected);
        }
    }

    #[test]
    fn shown_addresses_are_reachable() {
        let shown = |text: &str| url(&reachable(&[text.parse().unwrap()]), false);
        assert_eq!(shown("0.0.0.0:80"), "http://127.0.0.1:80");
        assert_eq!(shown("[::]:80"), "http://[::1]:80");
        assert_eq!(shown("10.0.0.7:80"), "http://10.0.0.7:80");
    }
}
