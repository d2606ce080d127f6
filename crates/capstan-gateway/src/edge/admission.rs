//! Connection limits: in total, per address, and a small reserve for health checks.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::Limits;

/// Connections beyond the limit, for health checks only. They are closed after a short time.
const RESERVED: usize = 16;

/// Counts connections. Clones count together.
#[derive(Clone)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    per_address: usize,
}

/// An admitted connection. Dropping it frees its slot.
pub(crate) struct Entry {
    _permit: OwnedSemaphorePermit,
    /// `None` for a reserved connection, which may only use the health routes.
    counted: Option<Counted>,
}

impl Entry {
    /// Whether the connection may only use the health routes.
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

    /// Accepts the next connection, once there is a free slot. Returns no entry if the address has
    /// too many connections.
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
        // A regular slot may have become free while this call waited for a connection.
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

    /// A slot for one more request on an HTTP/2 connection that already has one in flight. It costs
    /// as much as a request on its own connection, so it counts like one.
    pub(crate) fn another(&self, address: IpAddr) -> Option<Entry> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        self.count(address).map(|counted| Entry { _permit: permit, counted: Some(counted) })
    }

    fn enter(&self, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<Entry> {
        if let Some(counted) = self.count(address) {
            return Some(Entry { _permit: permit, counted: Some(counted) });
        }
        // The client can still check health, and gets an error that explains the limit.
        let permit = Arc::clone(&self.reserved).try_acquire_owned().ok()?;
        Some(Entry { _permit: permit, counted: None })
    }

    /// Counts one more for this address, unless the address is at its limit.
    fn count(&self, address: IpAddr) -> Option<Counted> {
        let address = limited_unit(address);
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_address.entry(address).or_default();
        if *count >= self.per_address {
            return None;
        }
        *count += 1;
        Some(Counted { address, by_address: Arc::clone(&self.by_address) })
    }
}

/// The unit that limits apply to. One IPv6 customer usually has a whole /64, so all of it counts as
/// one address.
fn limited_unit(address: IpAddr) -> IpAddr {
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
        let slot = admission.another("192.0.2.2".parse().unwrap()).unwrap();
        assert!(!slot.is_reserved());
        drop((greedy, slot));
        assert!(!enter("2001:db8::ffff").is_reserved());
        assert!(admission.by_address.lock().unwrap().is_empty(), "who is gone is not remembered");
    }
}
