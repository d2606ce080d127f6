//! The proxy: accepts connections, has each answered, hangs up in the way that its fate wants.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::exchange;
use crate::faults::{Faults, Hangup};
use crate::ledger::{Handle, Ledger};
use crate::memory::Memory;
use crate::shared::Shared;
use crate::upstream::Upstream;

/// Connections at once; beyond it new ones wait in the kernel's queue.
const CONNECTIONS: usize = 4096;
/// The pause after a failed accept, out of file descriptors most likely.
const BREATH: Duration = Duration::from_millis(50);
/// How long the proxy waits for a client to hang up too.
const LINGER: Duration = Duration::from_secs(1);

/// A proxy that breaks connections on purpose.
#[derive(Debug)]
pub struct Chaos {
    shared: Arc<Shared>,
}

impl Chaos {
    /// A proxy in front of `upstream`. The same seed breaks the n-th stream in the same way.
    pub fn new(upstream: Upstream, faults: Faults, seed: u64) -> Self {
        let ledger = Ledger::new(faults.budget);
        Self {
            shared: Arc::new(Shared { upstream, faults, seed, ledger, memory: Memory::default() }),
        }
    }

    /// A view of the proxy, while it serves and after.
    pub fn handle(&self) -> Handle {
        self.shared.ledger.handle()
    }

    /// Serves until `shutdown` resolves; connections that are open then are dropped, as they are if
    /// this future is.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => return,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
            };
            match accepted {
                Ok((client, _)) => {
                    self.shared.ledger.count_connection();
                    connections.spawn(serve_connection(Arc::clone(&self.shared), client));
                }
                Err(_) => sleep(BREATH).await,
            }
        }
    }
}

async fn serve_connection(shared: Arc<Shared>, mut client: TcpStream) {
    // Writes must leave as they are made: their boundaries are what is tested.
    let _ = client.set_nodelay(true);
    // An error means that the client is gone, so that it does not matter how we go.
    match exchange::answer(&shared, &mut client).await {
        Ok(Hangup::Fin) => linger(client).await,
        Ok(Hangup::Reset) | Err(_) => {
            let _ = client.set_zero_linger();
        }
    }
}

/// Hangs up with FIN. Closing while bytes are unread would send RST and could take the response
/// with it.
async fn linger(mut client: TcpStream) {
    let _ = client.shutdown().await;
    let mut unread = BytesMut::with_capacity(4096);
    let drain = async {
        while client.read_buf(&mut unread).await.is_ok_and(|length| length > 0) {
            unread.clear();
        }
    };
    let _ = timeout(LINGER, drain).await;
}
