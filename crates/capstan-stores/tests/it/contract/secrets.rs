//! The store's own secret.

use super::Backend;

pub(crate) async fn the_secret_stays_the_same_and_is_no_other_stores(backend: &Backend) {
    let secret = backend.store.secret().await.unwrap();
    assert_eq!(backend.store.secret().await.unwrap(), secret);
    assert_ne!(Backend::memory().store.secret().await.unwrap(), secret);
    assert!(secret.as_bytes().iter().any(|byte| *byte != 0));
    assert_eq!(format!("{secret:?}"), "Secret(…)");
}
