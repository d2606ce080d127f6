//! A load balancer without sticky sessions: each connection goes to any gateway, and to the next if
//! that one is not there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct Balancer {
    pub(crate) url: String,
    members: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Balancer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (url, members) = (format!("http://{}", listener.local_addr().unwrap()), Arc::default());
        let shared: Arc<Mutex<Vec<SocketAddr>>> = Arc::clone(&members);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let mut places = shared.lock().unwrap().clone();
                fastrand::shuffle(&mut places);
                tokio::spawn(carry(near, places));
            }
        });
        Self { url, members, task }
    }

    pub(crate) fn lead_to(&self, urls: impl Iterator<Item = String>) {
        *self.members.lock().unwrap() =
            urls.map(|url| url.trim_start_matches("http://").parse().unwrap()).collect();
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut near: TcpStream, places: Vec<SocketAddr>) {
    for place in places {
        if let Ok(mut far) = TcpStream::connect(place).await {
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            return;
        }
    }
}
