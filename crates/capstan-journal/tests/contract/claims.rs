//! Start once.

use capstan_journal::{ErrorKind, Found};

use super::{Backend, claim};

pub(crate) async fn duplicates_race_to_one_winner(backend: &Backend) {
    let tasks: Vec<_> = (0..1000)
        .map(|_| {
            let store = backend.store.clone();
            tokio::spawn(async move { store.claim(claim("local", "same")).await.unwrap() })
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

pub(crate) async fn a_claim_keeps_its_body_and_its_terms(backend: &Backend) {
    let mut first = claim("local", "k");
    first.agent = "demo".into();
    first.body_hash = [7; 32];
    first.max_attempts = 3;
    first.accepts_reset = true;
    first.supported_events = Some(vec!["PROGRESS".into()]);
    let claimed = backend.store.claim(first.clone()).await.unwrap();
    assert_eq!(claimed.run, first.to_run());
    assert_eq!(backend.store.body(first.stream_id).await.unwrap(), Some(first.body.clone()));
    assert_eq!(backend.store.run(first.stream_id).await.unwrap(), Some(first.to_run()));
    assert_eq!(backend.store.find("local", "k").await.unwrap(), Some(Found::Run(first.to_run())));

    // A later claim of the key, whatever it says, is told of the first one.
    let second = backend.store.claim(claim("local", "k")).await.unwrap();
    assert_eq!((second.run, second.is_new), (first.to_run(), false));
}

pub(crate) async fn keys_are_scoped_by_tenant(backend: &Backend) {
    for (tenant, key) in [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")] {
        assert!(backend.store.claim(claim(tenant, key)).await.unwrap().is_new, "{tenant:?} {key:?}");
    }
    assert_eq!(backend.store.find("a", "c").await.unwrap(), None);
    assert_eq!(backend.store.list("a", None, 10).await.unwrap().len(), 1);
}

pub(crate) async fn names_too_long_for_a_key_are_refused_or_kept(backend: &Backend) {
    let key = "k".repeat(70_000);
    match backend.store.claim(claim("local", &key)).await {
        Ok(claimed) => assert!(claimed.is_new && backend.store.find("local", &key).await.unwrap().is_some()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert_eq!(backend.store.find("local", &key).await.unwrap(), None);
        }
    }
}
