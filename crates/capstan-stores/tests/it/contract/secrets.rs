//! The store's secret.

use super::Backend;

pub(crate) async fn secret_is_stable_and_unique(backend: &Backend) {
    let secret = backend.store.secret().await.unwrap();
    assert_eq!(backend.store.secret().await.unwrap(), secret);
    assert_ne!(Backend::memory().store.secret().await.unwrap(), secret);
    assert!(secret.as_bytes().iter().any(|byte| *byte != 0));
    assert_eq!(format!("{secret:?}"), "Secret(…)");
}
