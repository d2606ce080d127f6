//! Raises the limit of file descriptors, and reserves some of them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Reserved for the journal's files, agents' connections and health checks.
const RESERVE: u64 = 512;

/// Raises the soft limit to the hard one. Returns how many connections the server may have, at most
/// `wanted`.
pub(super) fn raise(wanted: usize) -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of file descriptors could not be raised");
    }
    let limit = getrlimit(Resource::Nofile).current;
    let connections = connections(limit, wanted);
    let shown = |limit: Option<u64>| {
        limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
    };
    tracing::info!(
        limit = shown(limit),
        was = shown(before.current),
        connections,
        "file descriptors"
    );
    connections
}

/// Half of a small limit, or a large limit without the reserve.
fn connections(limit: Option<u64>, wanted: usize) -> usize {
    let Some(limit) = limit else { return wanted };
    let room = limit.saturating_sub(RESERVE).max(limit / 2);
    usize::try_from(room).unwrap_or(usize::MAX).min(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_journal() {
        assert_eq!(connections(None, 20_000), 20_000);
        assert_eq!(connections(Some(1_048_576), 20_000), 20_000);
        assert_eq!(connections(Some(4096), 20_000), 3584);
        assert_eq!(connections(Some(256), 20_000), 128);
    }
}
