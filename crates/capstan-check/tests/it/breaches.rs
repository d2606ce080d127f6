//! A proxy in front of the real gateway breaks one promise at a time; exactly that check must find
//! it.

mod plants;
mod proxy;

use std::collections::BTreeSet;

use capstan_check::{CHECKS, Face, Target, run};
use futures_util::{StreamExt as _, stream};
use plants::{BREACHES, Breach};

/// The number of simultaneous breaches. Each has a proxy of its own, and all share the gateway.
const AT_ONCE: usize = 8;

/// Whether exactly the breach's check fails.
async fn found(
    breach: &'static Breach,
    gateway: &str,
    made: fn(&Breach, Target) -> Target,
) -> Result<(), String> {
    let url = proxy::start(breach, gateway).await;
    let report = run(made(breach, crate::common::target_with_keys(&url)), |_| ()).await.unwrap();
    let broken = crate::common::broken(&report);
    if broken == [breach.breaks] {
        Ok(())
    } else {
        Err(format!("{}: broken are {broken:?}", breach.breaks))
    }
}

/// The check itself, and what it depends on.
fn alone(breach: &Breach, target: Target) -> Target {
    Target { only: vec![breach.breaks.to_owned()], ..target }
}

/// CAP and AG-UI serve the same runs and routes, so a breach in one may show in the other. Other
/// faces have routes of their own, and each is judged alone.
fn among_all(breach: &Breach, target: Target) -> Target {
    let face = CHECKS.iter().find(|check| check.id == breach.breaks).map(|check| check.face);
    if let Some(Face::Cap | Face::Agui) | None = face {
        return Target { others: false, ..target };
    }
    let only = CHECKS
        .iter()
        .filter(|check| Some(check.face) == face)
        .map(|check| check.id.to_owned())
        .collect();
    Target { only, ..target }
}

async fn try_breaches(
    breaches: impl Iterator<Item = &'static Breach>,
    made: fn(&Breach, Target) -> Target,
) {
    let gateway = crate::common::gateway(crate::common::with_tenants()).await;
    let all = stream::iter(breaches)
        .map(|breach| found(breach, &gateway, made))
        .buffer_unordered(AT_ONCE);
    let wrong: Vec<String> = all.filter_map(|found| async { found.err() }).collect().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_breach_fails_its_check() {
    try_breaches(BREACHES.iter(), alone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breach_here_and_there_fails_exactly_its_check() {
    try_breaches(BREACHES.iter().step_by(12), among_all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "soak: long"]
async fn soak_every_breach_fails_exactly_its_check() {
    try_breaches(BREACHES.iter(), among_all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_proxy_itself_breaks_nothing() {
    let gateway = crate::common::gateway(crate::common::with_tenants()).await;
    let url = proxy::start(&plants::NONE, &gateway).await;
    let report = run(crate::common::target_with_keys(&url), |_| ()).await.unwrap();
    assert_eq!(
        (crate::common::broken(&report), crate::common::skipped(&report)),
        (vec![], vec![]),
        "{report:#?}"
    );
}

#[test]
fn there_is_a_breach_for_every_check() {
    let planted: BTreeSet<&str> = BREACHES.iter().map(|breach| breach.breaks).collect();
    let checks: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(planted, checks);
}
