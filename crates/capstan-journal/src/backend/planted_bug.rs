//! Known bugs that a debug build can have on purpose (`CAPSTAN_BUG=lost_wakeup`), to prove that the
//! model test finds them. In a release build every check is a constant `false`.

use std::sync::OnceLock;

/// A bug of a kind that a journal must never have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A `seq` is used twice.
    ReusedSeq,
    /// An append does not wake its readers.
    LostWakeup,
    /// Readers see a frame before it is stored.
    EarlyDelivery,
    /// A repeated claim is answered as if it were the first.
    DoubleClaim,
    /// A resumed reader starts one frame too late.
    ResumeOffByOne,
    /// The process does not poll streams of other processes, so a lost notification is never made
    /// up for.
    NoPoll,
    /// A process that has lost its lease can still append.
    NoFence,
    /// Frames that a crashed server has lost are not written again.
    NoSettle,
    /// Other processes are notified of packets before these are stored.
    EarlyNotice,
    /// A process takes over runs of live processes.
    AdoptLiving,
}

/// Whether this bug is active.
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
