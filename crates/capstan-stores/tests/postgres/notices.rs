//! Who is told what, as somebody hears it who only listens.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use capstan_journal::{Journal, Step, TailLimits};

use crate::postgres_server::{Database, path_of};
use crate::{UNLIMITED, claim, frames, two};

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
        listener.heard();
        listener
    }

    /// How often packets were told of since it was last asked.
    fn heard(&mut self) -> usize {
        // What has come is printed after an answer.
        writeln!(self.to, "select 1; select 'that is all';").unwrap();
        let mut lines = (&mut self.from).lines().map(Result::unwrap);
        lines.by_ref().take_while(|line| line != "that is all").filter(|line| line.starts_with("f ")).count()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_are_told_of_where_somebody_elsewhere_waits_for_them() {
    let Some((database, a, b)) = two().await else { return };
    let (a, b) = (Journal::new(a, TailLimits::default()), Journal::new(b, TailLimits::default()));
    let mut listener = Listener::new(&database);
    let stream = a.claim(claim("k"), &UNLIMITED).await.unwrap().run.stream_id;
    for seq in 1..=50 {
        a.append(stream, 1, frames(seq, seq)).await.unwrap();
    }
    assert_eq!(listener.heard(), 0, "nobody reads it elsewhere");

    let mut reader = b.reader(stream, 0);
    let follower = tokio::spawn(async move { while let Ok(Step::Frames(_)) = reader.next().await {} });
    let (began, mut seq) = (Instant::now(), 50);
    while listener.heard() == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{seq} packets, and nobody was told of any");
        seq += 1;
        a.append(stream, 1, frames(seq, seq)).await.unwrap();
    }
    follower.abort();
}
