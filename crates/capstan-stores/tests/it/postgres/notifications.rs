//! Which notifications are sent, seen by a separate listener.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use capstan_journal::{Journal, Step, TailLimits};
use uuid::Uuid;

use super::{begin, frames, two};
use crate::postgres_server::{Database, path_of};

struct Listener {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Listener {
    fn new(database: &Database) -> Self {
        let mut psql = Command::new(path_of("psql"));
        psql.args([&database.url, "-qtAX"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut listener = Self { child, to, from: BufReader::new(from) };
        writeln!(listener.to, "listen capstan;").unwrap();
        listener.received();
        listener
    }

    /// The packets in the notifications since the last call: stream and seq.
    fn received(&mut self) -> Vec<(Uuid, u64)> {
        // psql prints notifications after an answer.
        writeln!(self.to, "select 1; select 'that is all';").unwrap();
        let lines =
            (&mut self.from).lines().map(Result::unwrap).take_while(|line| line != "that is all");
        let packets = lines.filter(|line| line.starts_with("f "));
        packets
            .map(|line| {
                let words: Vec<_> = line.split(' ').collect();
                (words[1].parse().unwrap(), words[4].parse().unwrap())
            })
            .collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn only_awaited_streams_are_notified() {
    let (database, a, b) = two().await;
    let (a, b) = (Journal::new(a, TailLimits::default()), Journal::new(b, TailLimits::default()));
    let mut listener = Listener::new(&database);
    let [read, unread] =
        [begin(a.store(), "read").await, begin(a.store(), "unread").await].map(|run| run.stream_id);
    let mut reader = b.reader(read, 0);
    let follower =
        tokio::spawn(async move { while let Ok(Step::Frames(_)) = reader.next().await {} });
    let (began, mut seq, mut notified) = (Instant::now(), 0, Vec::new());
    // Notifications keep their order. A notification for a packet of `read` therefore proves that
    // none for the earlier packet of `unread` will follow.
    let is_proven = |notified: &[(Uuid, u64)]| {
        let first = notified.first().map_or(0, |(_, seq)| *seq);
        notified.iter().any(|(stream, seq)| {
            *stream == read && *seq > first && !notified.contains(&(unread, *seq))
        })
    };
    while !is_proven(&notified) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{seq} packets were written to each stream, and this many were notified: {}",
            notified.len()
        );
        seq += 1;
        for stream in [unread, read] {
            a.append(stream, 1, frames(seq, seq)).await.unwrap();
        }
        notified.extend(listener.received());
    }
    follower.abort();
}
