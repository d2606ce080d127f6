//! Limits and timeouts. Each default has its reason.

use std::time::Duration;

use capstan_journal::Retention;
use capstan_protocol::Exposure;

/// The engine's settings.
#[derive(Debug, Clone, Default)]
pub struct EngineSettings {
    /// Limits of size and number.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// What is kept and how long.
    pub retention: Retention,
    /// How much of a fault's cause clients see.
    pub exposure: Exposure,
    /// Whether each tenant gets a share of the threads of this process.
    pub has_tenant_shares: bool,
}

/// Limits of size and number. Limits per tenant are checked only when a POST would start a run,
/// most of them by the journal in the claim.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests per minute and tenant; no limit if zero.
    pub requests_per_minute: u32,
    /// Tokens per minute and tenant, unless the tenant has its own limit; no limit if zero.
    pub tokens_per_minute: u64,
    /// Tokens per day (UTC) and tenant, unless the tenant has its own limit; no limit if zero.
    pub tokens_per_day: u64,
    /// Sessions per tenant; no limit if zero.
    pub sessions: u64,
    /// Turns per session.
    pub messages_per_session: usize,
    /// Concurrent runs per tenant.
    pub runs_per_tenant: usize,
    /// Undelivered webhooks and push notifications per tenant. Further ones are not recorded.
    pub deliveries_per_tenant: usize,
    /// Runs that wait for their client, per tenant. At the limit, a run ends instead of waiting.
    pub waiting_per_tenant: usize,
    /// Bytes of a session's turns, and of the bodies of its open runs.
    pub bytes_per_session: u64,
    /// Bytes that the journal keeps of a tenant: packets, bodies, turns; no limit if zero.
    pub bytes_per_tenant: u64,
    /// Bytes that are kept of a `no_store` tenant. They take memory.
    pub unstored_bytes_per_tenant: u64,
    /// Bytes of memory that a tenant's open requests may take: bodies that are being read, the
    /// memory of runs and their histories, and answers that are collected into one object.
    pub bytes_in_flight_per_tenant: usize,
    /// The same for all tenants together.
    pub bytes_in_flight: usize,
    /// The share of all processors, in percent, that the requests of one tenant may use while other
    /// tenants have work; no limit if zero.
    pub share_per_tenant: u32,
    /// Concurrent runs in total.
    pub runs: usize,
    /// Open responses per tenant.
    pub readers_per_tenant: usize,
    /// Concurrent connections. Further ones wait in the kernel's queue.
    pub connections: usize,
    /// Concurrent connections from one address; half of all if zero.
    pub connections_per_address: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes per second that are read of a tenant's bodies; no limit if zero.
    pub body_bytes_per_second: usize,
    /// JSON values in a request. A parsed value takes far more memory than its text.
    pub body_values: usize,
    /// Bytes of an answer that is one JSON object.
    pub whole_bytes: usize,
    /// Packets per stream.
    pub packets_per_stream: u64,
    /// Bytes per stream.
    pub bytes_per_stream: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Off: a private gateway needs no limit, and a public one sets its own.
            requests_per_minute: 0,
            // Off: only the operator knows what a token costs.
            tokens_per_minute: 0,
            tokens_per_day: 0,
            // Off: retention deletes old sessions.
            sessions: 0,
            messages_per_session: 10_000,
            runs_per_tenant: 1_000,
            // Enough for a receiver that is down for an hour while runs end every few seconds.
            deliveries_per_tenant: 1_000,
            // The same as concurrent runs: all of them fail together when an upstream does.
            waiting_per_tenant: 1_000,
            // A few pictures in base64, or more text than any model reads. Each run of the session
            // reads all of it.
            bytes_per_session: 32 * 1024 * 1024,
            // Off: retention limits the journal's size.
            bytes_per_tenant: 0,
            // Thousands of answers. Retention deletes the oldest when half of it is used.
            unstored_bytes_per_tenant: 256 * 1024 * 1024,
            // Twenty runs with a picture each, or thousands of the usual size.
            bytes_in_flight_per_tenant: 256 * 1024 * 1024,
            // Four tenants at their limits, on a small machine.
            bytes_in_flight: 1024 * 1024 * 1024,
            // Half of one processor of two. The rest is enough for other tenants.
            share_per_tenant: 25,
            // With more runs a small machine thrashes. It answers 503 instead.
            runs: 10_000,
            readers_per_tenant: 100_000,
            connections: 20_000,
            // A proxy is one address, and so is an attacker. Neither gets all connections.
            connections_per_address: 0,
            // Room for a picture in base64.
            body_bytes: 4 * 1024 * 1024,
            // Eight of the largest bodies a second, or a quarter of a small uplink. Reading,
            // checking and writing them takes at most half of a core, so one tenant cannot fill the
            // machine.
            body_bytes_per_second: 32 * 1024 * 1024,
            // A long conversation has some ten thousand.
            body_values: 250_000,
            // Clients with longer answers read the stream, which takes no memory.
            whole_bytes: 32 * 1024 * 1024,
            // As long as a book. An agent that writes more is in a loop.
            packets_per_stream: 2_000_000,
            bytes_per_stream: 256 * 1024 * 1024,
        }
    }
}

/// Timeouts and intervals.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// A whole run: the sum of its attempts, without the waits between them.
    pub run: Duration,
    /// An agent that sends nothing.
    pub idle: Duration,
    /// Reading a request's head and body.
    pub request: Duration,
    /// The interval of heartbeats in an idle response. It is below the idle timeout of common
    /// proxies.
    pub heartbeat: Duration,
    /// How long a run waits for its client to repeat the request.
    pub waiting: Duration,
    /// The delay before the second attempt, unless the fault names a longer one. It doubles with
    /// each attempt.
    pub backoff: Duration,
    /// How long a shutdown lets runs and open responses go on.
    pub drain: Duration,
    /// An idle connection.
    pub idle_connection: Duration,
    /// The interval of HTTP/2 pings, and the timeout of their answers.
    pub ping: Duration,
    /// A reader that does not read although data is ready; no limit if zero.
    pub stalled_reader: Duration,
    /// How long a chat of OpenAI's API without an idempotency key goes on without a reader; no
    /// limit if zero.
    pub unread_chat: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            run: Duration::from_secs(3600),
            idle: Duration::from_secs(330),
            request: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            waiting: Duration::from_secs(300),
            // Most short outages are over by then, and users do not notice the delay.
            backoff: Duration::from_millis(500),
            drain: Duration::from_secs(10),
            // Longer than common proxies keep an idle connection, so that the proxy closes it
            // first.
            idle_connection: Duration::from_secs(90),
            ping: Duration::from_secs(20),
            // The same as common proxies. A reader that comes back resumes at its cursor.
            stalled_reader: Duration::from_secs(60),
            // An SDK that lost its connection has retried by then.
            unread_chat: Duration::from_secs(30),
        }
    }
}
