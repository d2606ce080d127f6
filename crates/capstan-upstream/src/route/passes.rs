//! Decides after a failed call whether the request may succeed at another member.

use capstan_protocol::{ErrorSeverity, Fault, FaultKind};

use super::config::OnRefusal;

/// Where a request may succeed that one member has refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passes {
    /// At any other member.
    Elsewhere,
    /// At a member that takes longer conversations.
    WithMoreContext,
    /// Nowhere: the request itself is wrong.
    Nowhere,
}

/// Statuses that mean that the request is wrong. A missing model (404) concerns one member only.
const WRONG_REQUEST: [u64; 3] = [400, 413, 422];

impl Passes {
    pub(crate) fn of(fault: &Fault, on_refusal: OnRefusal) -> Self {
        let kind = fault.kind();
        let is_refused = kind == FaultKind::ContentRefused && on_refusal == OnRefusal::Fail;
        if kind == FaultKind::ContextLengthExceeded {
            Self::WithMoreContext
        } else if is_refused || kind == FaultKind::InvalidRequest || is_wrong_request(fault) {
            Self::Nowhere
        } else {
            Self::Elsewhere
        }
    }
}

/// Whether the upstream considers the request wrong.
pub(crate) fn is_wrong_request(fault: &Fault) -> bool {
    let status = fault.details().get("upstream_status").and_then(serde_json::Value::as_u64);
    let is_error =
        fault.kind() == FaultKind::UpstreamError && fault.severity() == ErrorSeverity::Fatal;
    is_error && status.is_some_and(|status| WRONG_REQUEST.contains(&status))
}

/// Whether the fault is the upstream's, and not the request's.
pub(crate) fn is_upstreams(fault: &Fault) -> bool {
    let is_asked = matches!(
        fault.kind(),
        FaultKind::ContextLengthExceeded | FaultKind::ContentRefused | FaultKind::InvalidRequest
    );
    !is_asked && !is_wrong_request(fault)
}

/// Whether the upstream was silent: a second call would probably take as long.
pub(crate) fn is_stall(code: &str) -> bool {
    code == FaultKind::UpstreamTimeout.entry().code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_another_member_unless_it_is_wrong() {
        let of = |fault: &Fault| Passes::of(fault, OnRefusal::Fail);
        for kind in [
            FaultKind::UpstreamUnreachable,
            FaultKind::UpstreamTimeout,
            FaultKind::UpstreamQuota,
            FaultKind::UpstreamAuth,
            FaultKind::UpstreamTruncated,
            FaultKind::UpstreamMalformed,
        ] {
            assert_eq!(of(&Fault::new(kind)), Passes::Elsewhere, "{kind:?}");
        }
        for (status, passes) in [
            (429, Passes::Elsewhere),
            (503, Passes::Elsewhere),
            (404, Passes::Elsewhere),
            (400, Passes::Nowhere),
            (422, Passes::Nowhere),
        ] {
            assert_eq!(of(&Fault::from_upstream_status(status, None)), passes, "{status}");
        }
        assert_eq!(of(&Fault::new(FaultKind::InvalidRequest)), Passes::Nowhere);
        assert_eq!(of(&Fault::new(FaultKind::ContextLengthExceeded)), Passes::WithMoreContext);
        let refused = Fault::new(FaultKind::ContentRefused);
        assert_eq!(of(&refused), Passes::Nowhere);
        assert_eq!(Passes::of(&refused, OnRefusal::Next), Passes::Elsewhere);
        assert!(!is_upstreams(&refused) && is_upstreams(&Fault::new(FaultKind::UpstreamAuth)));
    }
}
