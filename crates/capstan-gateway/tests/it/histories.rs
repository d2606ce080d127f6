//! A long conversation: a turn of it reads what is new since the last one, and what was erased is
//! told to nobody.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::odd_store::OddStore;
use crate::common::{Server, all, ask_in, serve_gateway, stream_of, text};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::Gateway;
use capstan_journal::{Claim, Quota, Run, RunState, StoredTurn, Transition};
use capstan_protocol::{ChatMessage, Role, Timestamp};
use serde_json::json;
use uuid::Uuid;

const TENANT: &str = "local";
/// The last turn that is known, and the one that came since.
const FEW: usize = 2;

/// Repeats what was asked before.
struct Echo;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let asked = turn.history.iter().filter(|message| message.role == Role::User);
        let words: Vec<_> = asked.map(|message| message.text()).collect();
        Ok(out.delta(words.join(" ")).await?)
    }
}

/// Leaves a turn to a session as a run does, without one.
async fn leave(store: &OddStore, session: Uuid, question: &str) -> Uuid {
    let (store, session) = (&store.store, session.to_string());
    let claim = Claim::new(TENANT, Uuid::now_v7().to_string(), Uuid::now_v7(), Timestamp::now());
    let run = store.claim(Claim { session, ..claim }, &Quota::UNLIMITED).await.unwrap().run;
    let now = Timestamp::now();
    let said = json!({"messages": [ChatMessage::user(question), ChatMessage::assistant("a")],
    "is_partial": false});
    let turn = StoredTurn::new(run.stream_id, now, 2, said);
    let to = Run { state: RunState::Closed, closed_at: Some(now), ..run.clone() };
    assert!(
        store
            .transition(Transition::new((RunState::Running, 1), to, Vec::new(), Some(turn)))
            .await
            .unwrap()
    );
    run.stream_id
}

struct Talk {
    store: Arc<OddStore>,
    server: Server,
    session: Uuid,
}

impl Talk {
    async fn begin() -> Self {
        let store = OddStore::new().shared();
        let server = serve_gateway(Gateway::new(store.journal()).agent("echo", Echo)).await;
        Self { store, server, session: Uuid::now_v7() }
    }

    async fn leave(&self, question: &str) -> Uuid {
        leave(&self.store, self.session, question).await
    }

    /// Asks, and says what the agent was told and how many turns were read for it.
    async fn ask(&self, question: &str) -> (String, usize) {
        let before = self.store.turns.load(Ordering::Relaxed);
        let told = text(&all(self.server.post(&ask_in(self.session, question)).await).await);
        (told, self.store.turns.load(Ordering::Relaxed) - before)
    }
}

#[tokio::test]
async fn the_thousand_and_first_turn_reads_as_little_as_the_second() {
    let talk = Talk::begin().await;
    for _ in 0..1000 {
        talk.leave("q").await;
    }
    assert_eq!(talk.ask("q").await.1, 1000, "nothing is known of it yet");
    for before in 1001..1010 {
        let (told, read) = talk.ask("q").await;
        assert_eq!(told.split(' ').count(), before);
        assert!(read <= FEW, "{read} turns were read for turn {}", before + 1);
    }
    // What another process has added is read, and nothing else.
    talk.leave("q-elsewhere").await;
    let (told, read) = talk.ask("q").await;
    assert!(told.ends_with(" q q-elsewhere") && read <= FEW + 1, "{read} turns were read");
    talk.server.stop().await;
}

#[tokio::test]
async fn purged_turns_reach_no_agent() {
    let talk = Talk::begin().await;
    let response = talk.server.post(&ask_in(talk.session, "q-secret")).await;
    let secret = stream_of(&response);
    all(response).await;
    let open = talk.leave("q-open").await;
    assert_eq!(talk.ask("q1").await.0, "q-secret q-open");
    talk.server.delete(&format!("/v1/streams/{secret}?purge=true")).await;
    assert_eq!(talk.ask("q2").await.0, "q-open q1");
    // By another process: this one is not told of it.
    assert!(talk.store.store.purge(open, Timestamp::now()).await.unwrap());
    assert_eq!(talk.ask("q3").await.0, "q1 q2");
    talk.server.stop().await;
}

#[tokio::test]
async fn a_session_that_began_anew_under_its_name_knows_nothing_of_the_old_one() {
    let talk = Talk::begin().await;
    for question in ["q-old", "q-old", "q-old"] {
        talk.leave(question).await;
    }
    assert_eq!(talk.ask("q-old").await.0, "q-old q-old q-old");
    // By another process; and there are as many turns again as were known.
    assert!(talk.store.store.purge_session(TENANT, &talk.session.to_string()).await.unwrap());
    for question in ["q1", "q2", "q3"] {
        talk.leave(question).await;
    }
    assert_eq!(talk.ask("q4").await.0, "q1 q2 q3");
    talk.server.stop().await;
}
