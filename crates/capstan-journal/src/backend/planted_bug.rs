//! Known mistakes that a debug build can plant (`CAPSTAN_BUG=lost_wakeup`), to prove that the model
//! test finds them. In an optimised build every question is a constant no.

use std::sync::OnceLock;

/// One mistake each, of the kind a journal must never make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A seq is given out twice.
    ReusedSeq,
    /// Readers are not told of an append.
    LostWakeup,
    /// Readers see a frame before it is stored.
    EarlyDelivery,
    /// A duplicate is told that it claimed the key.
    DoubleClaim,
    /// A resumed reader starts one frame too late.
    ResumeOffByOne,
    /// Streams of other processes are not looked at: a lost notice is never made good.
    NoPoll,
    /// A process whose lease has ended can append.
    NoFence,
    /// What a crashed server has lost is not written again.
    NoSettle,
    /// Others are told of packets before they are stored.
    EarlyNotice,
    /// Runs of processes that live are taken over.
    AdoptLiving,
}

/// Whether this mistake is planted.
#[inline]
pub fn is(bug: Bug) -> bool {
    cfg!(debug_assertions) && planted() == Some(bug)
}

fn planted() -> Option<Bug> {
    static PLANTED: OnceLock<Option<Bug>> = OnceLock::new();
    *PLANTED.get_or_init(|| match std::env::var("CAPSTAN_BUG").ok()?.as_str() {
        "reused_seq" => Some(Bug::ReusedSeq),
        "lost_wakeup" => Some(Bug::LostWakeup),
        "early_delivery" => Some(Bug::EarlyDelivery),
        "double_claim" => Some(Bug::DoubleClaim),
        "resume_off_by_one" => Some(Bug::ResumeOffByOne),
        "no_poll" => Some(Bug::NoPoll),
        "no_fence" => Some(Bug::NoFence),
        "no_settle" => Some(Bug::NoSettle),
        "early_notice" => Some(Bug::EarlyNotice),
        "adopt_living" => Some(Bug::AdoptLiving),
        _ => None,
    })
}
