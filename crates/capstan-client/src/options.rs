//! What can be set on a client.

use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::{Profile, UserContext};
use http::HeaderMap;

use crate::machine::Policy;
use crate::notice::Notice;
use crate::transport::Transport;

/// Called with what happens between packets.
pub(crate) type Listener = Arc<dyn Fn(&Notice) + Send + Sync>;

/// The settings of a [`CapClient`](crate::CapClient). Setters can be chained.
///
/// ```
/// use std::time::Duration;
/// let options = capstan_client::Options::new();
/// let options = options.max_retries(5).read_timeout(Duration::from_secs(20));
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) connect_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) ask_timeout: Duration,
    pub(crate) policy: Policy,
    pub(crate) user: UserContext,
    pub(crate) headers: HeaderMap,
    pub(crate) path: String,
    pub(crate) transport: Option<Arc<dyn Transport>>,
    pub(crate) listener: Option<Listener>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            // Four heartbeats of the gateway's: less is a slow network, more is a dead one.
            read_timeout: Duration::from_secs(60),
            // A gateway is silent until the run is over, and lets it work for an hour.
            ask_timeout: Duration::from_secs(3600),
            policy: Policy::default(),
            user: UserContext::new("anonymous"),
            headers: HeaderMap::new(),
            path: "/assist".into(),
            transport: None,
            listener: None,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time to connect; by default 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a response may be silent, and the total time of [`stop`](crate::CapClient::stop),
    /// [`health`](crate::CapClient::health) and [`streams`](crate::CapClient::streams); by default
    /// 60 s.
    #[must_use]
    pub fn read_timeout(mut self, limit: Duration) -> Self {
        self.read_timeout = limit;
        self
    }

    /// The total time of [`ask`](crate::CapClient::ask), tries and waits included; by default 1 h.
    #[must_use]
    pub fn ask_timeout(mut self, limit: Duration) -> Self {
        self.ask_timeout = limit;
        self
    }

    /// The total time of any call, even while packets arrive; by default no limit.
    #[must_use]
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.policy.deadline = Some(limit);
        self
    }

    /// Interruptions since the last new packet that are healed; 3.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.policy.max_retries = retries;
        self
    }

    /// The longest wait that the client waits; by default 30 s. A longer `retry_after` fails at
    /// once, with the wait.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.policy.max_wait = wait;
        self
    }

    /// While resuming, continue beyond `max_retries` until nothing new came for this long; off by
    /// default.
    #[must_use]
    pub fn resume_patience(mut self, patience: Duration) -> Self {
        self.policy.resume_patience = patience;
        self
    }

    /// The first and the longest wait between tries; 0.5 s, 30 s.
    #[must_use]
    pub fn backoff(mut self, first: Duration, max: Duration) -> Self {
        (self.policy.backoff.first, self.policy.backoff.max) = (first, max);
        self
    }

    /// The least wait between tries, for tests that break hundreds of connections; by default 0.1
    /// s, so that no client floods a server.
    #[doc(hidden)]
    #[must_use]
    pub fn least_wait(mut self, wait: Duration) -> Self {
        self.policy.backoff.least = wait;
        self
    }

    /// Missing packets are an error instead of a notice.
    #[must_use]
    pub fn strict(mut self, is_strict: bool) -> Self {
        self.policy.is_strict = is_strict;
        self
    }

    /// The profile that [`chat`](crate::CapClient::chat) and [`attach`](crate::CapClient::attach)
    /// speak; v1.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.policy.profile = profile;
        self
    }

    /// The user of [`chat`](crate::CapClient::chat).
    #[must_use]
    pub fn user(mut self, user: UserContext) -> Self {
        self.user = user;
        self
    }

    /// Headers to send with every request.
    #[must_use]
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// The path for requests below the base URL; by default `/assist`.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// A transport in place of the client's own, such as a `reqwest::Client` with a proxy.
    #[must_use]
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Called with what happens between packets: retries, resumes, repeats.
    #[must_use]
    pub fn on_notice(mut self, listener: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("policy", &self.policy)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_rfcs() {
        let options = Options::new();
        let seconds = |d: Duration| d.as_secs_f64();
        assert_eq!((seconds(options.connect_timeout), seconds(options.read_timeout)), (10.0, 60.0));
        assert_eq!((seconds(options.ask_timeout), options.policy.deadline), (3600.0, None));
        assert_eq!((options.policy.max_retries, seconds(options.policy.backoff.first)), (3, 0.5));
        assert_eq!(
            (seconds(options.policy.backoff.max), seconds(options.policy.max_wait)),
            (30.0, 30.0)
        );
        assert_eq!(options.path, "/assist");
    }
}
