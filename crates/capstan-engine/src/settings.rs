//! How much and how long, with every default as a named constant with its reason.

use std::time::Duration;

use capstan_journal::Retention;
use capstan_protocol::Exposure;

/// What the engine goes by.
#[derive(Debug, Clone, Default)]
pub struct EngineSettings {
    /// How much.
    pub limits: Limits,
    /// How long.
    pub timeouts: Timeouts,
    /// What is kept, and how long.
    pub retention: Retention,
    /// How much of a fault's cause is told.
    pub exposure: Exposure,
    /// Whether tenants are kept apart on their way to the threads of this process.
    pub has_tenant_shares: bool,
}

/// How much. Limits per tenant are checked only when a POST would start a run, most of them by the
/// journal in the claim.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests per minute and tenant; none if zero.
    pub requests_per_minute: u32,
    /// Tokens per minute of the clock and tenant, unless the tenant has its own; as many as it
    /// takes if zero.
    pub tokens_per_minute: u64,
    /// Tokens per day (UTC) and tenant, unless the tenant has its own; as many as it takes if zero.
    pub tokens_per_day: u64,
    /// Sessions per tenant; as many as there are if zero.
    pub sessions: u64,
    /// Turns per session.
    pub messages_per_session: usize,
    /// Runs at once per tenant.
    pub runs_per_tenant: usize,
    /// Webhooks and push notifications that are still to be delivered, per tenant: one more is not
    /// noted.
    pub deliveries_per_tenant: usize,
    /// Runs that wait for their client, per tenant. Checked when a run begins to wait: beyond it,
    /// it ends instead.
    pub waiting_per_tenant: usize,
    /// Bytes of a session's turns, and of the bodies of its runs under way.
    pub bytes_per_session: u64,
    /// Bytes that are kept of a tenant: packets, bodies, turns; as many as there are if zero.
    pub bytes_per_tenant: u64,
    /// Bytes that are kept of a tenant of whom nothing is stored: they take memory.
    pub unstored_bytes_per_tenant: u64,
    /// Bytes of memory that a tenant's requests under way may take: bodies as they come in, what
    /// runs hold of them and of their conversations, answers that are put together as one object.
    pub bytes_in_flight_per_tenant: usize,
    /// The same in all.
    pub bytes_in_flight: usize,
    /// How much of all processors the requests of one tenant may keep busy while others ask as
    /// well, in hundredths; all of them if zero.
    pub share_per_tenant: u32,
    /// Runs at once in all.
    pub runs: usize,
    /// Open responses per tenant.
    pub readers_per_tenant: usize,
    /// Connections at once; beyond it new ones wait in the kernel's queue.
    pub connections: usize,
    /// Connections at once from one address; half of all if zero.
    pub connections_per_address: usize,
    /// Bytes of a request.
    pub body_bytes: usize,
    /// Bytes of a tenant's requests that are read in a second; as fast as they come if zero.
    pub body_bytes_per_second: usize,
    /// JSON values in a request: as a tree, each takes far more than its text.
    pub body_values: usize,
    /// Bytes of an answer in one object.
    pub whole_bytes: usize,
    /// Packets of a stream.
    pub packets_per_stream: u64,
    /// Bytes of a stream.
    pub bytes_per_stream: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Off: a private gateway should not surprise; a public one sets it.
            requests_per_minute: 0,
            // Off: what a token is worth is the operator's to say.
            tokens_per_minute: 0,
            tokens_per_day: 0,
            // Off: old sessions go with retention.
            sessions: 0,
            messages_per_session: 10_000,
            runs_per_tenant: 1_000,
            // A receiver that is away for an hour, of a tenant that ends one every few seconds.
            deliveries_per_tenant: 1_000,
            // As many as may run: all of them may fail at once, when an upstream does.
            waiting_per_tenant: 1_000,
            // A few pictures in base64, or more words than any model reads. Each run of the session
            // reads all of it.
            bytes_per_session: 32 * 1024 * 1024,
            // Off: retention keeps what is stored within its bounds.
            bytes_per_tenant: 0,
            // Thousands of answers; retention takes the oldest when half of it is used.
            unstored_bytes_per_tenant: 256 * 1024 * 1024,
            // Twenty runs with a picture each, or thousands of the usual size.
            bytes_in_flight_per_tenant: 256 * 1024 * 1024,
            // Four tenants that do their worst, on a machine of modest size.
            bytes_in_flight: 1024 * 1024 * 1024,
            // Of two processors half of one: what is left is enough for others not to notice.
            share_per_tenant: 25,
            // Beyond this a machine of modest size thrashes; it answers 503 instead.
            runs: 10_000,
            readers_per_tenant: 100_000,
            connections: 20_000,
            // A proxy is one address, and so is a hostile machine: neither gets all.
            connections_per_address: 0,
            // Room for a picture in base64.
            body_bytes: 4 * 1024 * 1024,
            // Eight of the largest a second, and a quarter of a modest line. To read, check and
            // write them takes a core for half of its time at most, so that one tenant does not
            // fill the machine.
            body_bytes_per_second: 32 * 1024 * 1024,
            // A long conversation has some ten thousand.
            body_values: 250_000,
            // Whoever wants more reads the stream, which takes no memory.
            whole_bytes: 32 * 1024 * 1024,
            // A book; an agent that writes more is in a loop.
            packets_per_stream: 2_000_000,
            bytes_per_stream: 256 * 1024 * 1024,
        }
    }
}

/// How long.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// A whole run, over all attempts' time at work.
    pub run: Duration,
    /// An agent that says nothing.
    pub idle: Duration,
    /// A request's head and body.
    pub request: Duration,
    /// Between two heartbeats of an idle response; below the idle limit of common proxies.
    pub heartbeat: Duration,
    /// How long a run may wait for its client to come back.
    pub waiting: Duration,
    /// The wait before a second attempt, unless its fault names a longer one; it doubles with each
    /// attempt.
    pub backoff: Duration,
    /// How long open responses are served after the signal to stop.
    pub drain: Duration,
    /// A connection on which nothing is asked and nothing answered.
    pub idle_connection: Duration,
    /// Between two pings to a peer of HTTP/2, and how long its answer may take.
    pub ping: Duration,
    /// A reader that takes nothing of what is there for it; as long as it likes if zero.
    pub stalled_reader: Duration,
    /// How long a chat in OpenAI's API whose request has no key goes on without a reader; as long
    /// as it likes if zero.
    pub unread_chat: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            run: Duration::from_secs(3600),
            idle: Duration::from_secs(120),
            request: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            waiting: Duration::from_secs(300),
            // A hiccup is over by then, and nobody notices the wait.
            backoff: Duration::from_millis(500),
            drain: Duration::from_secs(10),
            // Longer than common proxies keep an idle connection, so that they close it first.
            idle_connection: Duration::from_secs(90),
            ping: Duration::from_secs(20),
            // As long as common proxies wait. Who reads again later goes on from its cursor.
            stalled_reader: Duration::from_secs(60),
            // An SDK that was cut off has tried again by then.
            unread_chat: Duration::from_secs(30),
        }
    }
}
