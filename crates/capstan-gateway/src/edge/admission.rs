//! Who gets in: so many connections in all, so many from one address, and a few beyond that to ask
//! how the server feels.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::Limits;

/// Connections beyond all others, for whoever asks how the server feels. They are cut soon.
const RESERVED: usize = 16;

/// Counts connections. Clones count together.
#[derive(Clone)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    per_address: usize,
}

/// A connection that got in; dropping it makes room for the next.
pub(crate) struct Entry {
    _permit: OwnedSemaphorePermit,
    /// Nothing for one that may only ask for health.
    counted: Option<Counted>,
}

impl Entry {
    /// Whether it may only ask how the server feels.
    pub(crate) fn is_reserved(&self) -> bool {
        self.counted.is_none()
    }
}

struct Counted {
    address: IpAddr,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        let half = limits.connections.div_ceil(2);
        let per_address =
            if limits.connections_per_address == 0 { half } else { limits.connections_per_address };
        Self {
            all: Arc::new(Semaphore::new(limits.connections)),
            reserved: Arc::new(Semaphore::new(RESERVED)),
            by_address: Arc::default(),
            per_address,
        }
    }

    /// The next connection, once there is room for one more. Without an entry there is none for its
    /// address.
    pub(crate) async fn next(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, SocketAddr, Option<Entry>)> {
        let (permit, is_reserved) = tokio::select! {
            biased;
            permit = Arc::clone(&self.all).acquire_owned() => (permit, false),
            permit = Arc::clone(&self.reserved).acquire_owned() => (permit, true),
        };
        let permit = permit.map_err(io::Error::other)?;
        let (socket, peer) = listener.accept().await?;
        // Somebody may have left since this door was opened.
        let (permit, is_reserved) = match Arc::clone(&self.all).try_acquire_owned() {
            Ok(better) if is_reserved => (better, false),
            Ok(_) | Err(_) => (permit, is_reserved),
        };
        let entry = match is_reserved {
            true => Some(Entry { _permit: permit, counted: None }),
            false => self.enter(peer.ip(), permit),
        };
        Ok((socket, peer, entry))
    }

    /// Room for one more request on a connection of HTTP/2 that has one under way: it takes as much
    /// as it would on a connection of its own, and counts as one.
    pub(crate) fn another(&self, address: IpAddr) -> Option<Entry> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        self.count(address).map(|counted| Entry { _permit: permit, counted: Some(counted) })
    }

    fn enter(&self, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<Entry> {
        if let Some(counted) = self.count(address) {
            return Some(Entry { _permit: permit, counted: Some(counted) });
        }
        // It may still ask for health, and is told why it may nothing else.
        let permit = Arc::clone(&self.reserved).try_acquire_owned().ok()?;
        Some(Entry { _permit: permit, counted: None })
    }

    /// One more from this address, if it may have one more.
    fn count(&self, address: IpAddr) -> Option<Counted> {
        let address = neighbourhood(address);
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_address.entry(address).or_default();
        if *count >= self.per_address {
            return None;
        }
        *count += 1;
        Some(Counted { address, by_address: Arc::clone(&self.by_address) })
    }
}

/// Who has one address of IPv6 has as many as it likes beside it.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(admission: &Admission) -> OwnedSemaphorePermit {
        Arc::clone(&admission.all).try_acquire_owned().unwrap()
    }

    #[test]
    fn one_address_does_not_take_all_the_room() {
        let limits = Limits { connections: 8, ..Limits::default() };
        let admission = Admission::new(&limits);
        let enter =
            |address: &str| admission.enter(address.parse().unwrap(), permit(&admission)).unwrap();
        let greedy: Vec<_> = (0..4).map(|n| enter(&format!("2001:db8::{n}"))).collect();
        assert!(greedy.iter().all(|entry| !entry.is_reserved()), "half of all");
        assert!(enter("2001:db8::ffff").is_reserved(), "a neighbour is the same");
        assert!(!enter("2001:db8:0:1::1").is_reserved() && !enter("192.0.2.1").is_reserved());
        assert!(
            admission.another("2001:db8::1".parse().unwrap()).is_none(),
            "nor has it room for one more request"
        );
        let place = admission.another("192.0.2.2".parse().unwrap()).unwrap();
        assert!(!place.is_reserved());
        drop((greedy, place));
        assert!(!enter("2001:db8::ffff").is_reserved());
        assert!(admission.by_address.lock().unwrap().is_empty(), "who is gone is not remembered");
    }
}
