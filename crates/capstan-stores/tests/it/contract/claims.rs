//! Claims: a key starts one run.

use capstan_journal::{Claim, ErrorKind, Found, Questions, Quota, Run, RunState};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Backend, claim, frames, moved};

pub(crate) async fn concurrent_duplicates_start_one_run(backend: &Backend) {
    let tasks: Vec<_> = (0..1000)
        .map(|_| {
            let store = backend.store.clone();
            tokio::spawn(async move {
                store.claim(claim("local", "same"), &Quota::UNLIMITED).await.unwrap()
            })
        })
        .collect();
    let mut winners = 0;
    let mut streams = std::collections::HashSet::new();
    for task in tasks {
        let claimed = task.await.unwrap();
        winners += usize::from(claimed.is_new);
        streams.insert(claimed.run.stream_id);
    }
    assert_eq!((winners, streams.len()), (1, 1));
    assert_eq!(backend.store.list("local", None, 10).await.unwrap().len(), 1);
}

pub(crate) async fn claim_stores_its_body_and_terms(backend: &Backend) {
    let mut first = claim("local", "k");
    first.agent = "demo".into();
    first.body_hash = [7; 32];
    first.max_attempts = 3;
    first.accepts_reset = true;
    first.supported_events = Some(vec!["PROGRESS".into()]);
    let claimed = backend.store.claim(first.clone(), &Quota::UNLIMITED).await.unwrap();
    assert_eq!(claimed.run, first.to_run());
    assert_eq!(backend.store.body(first.stream_id).await.unwrap(), Some(first.body.clone()));
    assert_eq!(backend.store.run(first.stream_id).await.unwrap(), Some(first.to_run()));
    assert_eq!(backend.store.find("local", "k").await.unwrap(), Some(Found::Run(first.to_run())));

    // A later claim of the key gets the first run.
    let second = backend.store.claim(claim("local", "k"), &Quota::UNLIMITED).await.unwrap();
    assert_eq!((second.run, second.is_new), (first.to_run(), false));
}

pub(crate) async fn keys_are_scoped_by_tenant(backend: &Backend) {
    for (tenant, key) in [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")] {
        assert!(
            backend.store.claim(claim(tenant, key), &Quota::UNLIMITED).await.unwrap().is_new,
            "{tenant:?} {key:?}"
        );
    }
    assert_eq!(backend.store.find("a", "c").await.unwrap(), None);
    assert_eq!(backend.store.list("a", None, 10).await.unwrap().len(), 1);
}

pub(crate) async fn long_names_are_refused_or_stored(backend: &Backend) {
    let key = "k".repeat(70_000);
    match backend.store.claim(claim("local", &key), &Quota::UNLIMITED).await {
        Ok(claimed) => {
            assert!(claimed.is_new && backend.store.find("local", &key).await.unwrap().is_some())
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert_eq!(backend.store.find("local", &key).await.unwrap(), None);
        }
    }
}

/// A run that ended with questions.
async fn asker(backend: &Backend, tenant: &str, session: &str) -> Run {
    let mut claim = claim(tenant, &Uuid::new_v4().to_string());
    claim.session = session.into();
    let run = backend.store.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
    let asked = Questions::new(vec![("q".into(), None)]);
    let to = Run { asked: Some(asked), ..moved(&run, RunState::Closed, 1) };
    assert!(backend.step((RunState::Running, 1), to, frames(1, 1), None).await.unwrap());
    backend.store.run(run.stream_id).await.unwrap().unwrap()
}

fn answering(asker: &Run, key: &str) -> Claim {
    let mut claim = claim(&asker.tenant, key);
    claim.session.clone_from(&asker.session);
    claim.answers = Some(asker.stream_id);
    claim
}

pub(crate) async fn questions_are_answered_once_in_their_session(backend: &Backend) {
    let store = &backend.store;
    let asked = asker(backend, "t", "s").await;
    let mut stranger = answering(&asked, "k0");
    stranger.session = "another".into();
    assert_eq!(
        store.claim(stranger, &Quota::UNLIMITED).await.unwrap_err().kind(),
        ErrorKind::Answered
    );
    assert_eq!(store.find("t", "k0").await.unwrap(), None, "a refused claim leaves nothing behind");
    let first = store.claim(answering(&asked, "k1"), &Quota::UNLIMITED).await.unwrap();
    assert!(first.is_new);
    let now = store.run(asked.stream_id).await.unwrap().unwrap();
    assert_eq!(now.asked.unwrap().answered_by, Some(first.run.stream_id));
    // A repeated request finds its run. Another one finds no open question.
    assert_eq!(
        store.claim(answering(&asked, "k1"), &Quota::UNLIMITED).await.unwrap().run.stream_id,
        first.run.stream_id
    );
    assert_eq!(
        store.claim(answering(&asked, "k2"), &Quota::UNLIMITED).await.unwrap_err().kind(),
        ErrorKind::Answered
    );
    let gone = asker(backend, "t", "s").await;
    assert!(store.purge(gone.stream_id, Timestamp::now()).await.unwrap());
    assert_eq!(
        store.claim(answering(&gone, "k3"), &Quota::UNLIMITED).await.unwrap_err().kind(),
        ErrorKind::Answered
    );
}

pub(crate) async fn concurrent_answers_have_one_winner(backend: &Backend) {
    let asked = asker(backend, "t", "s").await;
    let race = |n: u32| {
        let (store, claim) = (backend.store.clone(), answering(&asked, &format!("k{n}")));
        tokio::spawn(async move { store.claim(claim, &Quota::UNLIMITED).await })
    };
    let tasks: Vec<_> = (0..100).map(race).collect();
    let mut won = 0;
    for task in tasks {
        won += usize::from(task.await.unwrap().is_ok());
    }
    assert_eq!(won, 1);
}
