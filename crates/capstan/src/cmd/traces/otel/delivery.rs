//! Sends spans to the collector over our HTTP client, and logs each outage once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode, Url};
use tokio::runtime::Handle;

use super::{SCOPE, settings, wire};
use crate::cmd::Failure;

/// The waits between tries, unless the collector names one.
const WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];

/// The exporter for the configured endpoint.
pub(super) fn exporter(runtime: &Handle) -> Result<impl SpanExporter + 'static, Failure> {
    let timeout = settings::timeout();
    let client = capstan_client::transport::http_client()
        .timeout(timeout)
        .default_headers(settings::headers())
        // The headers hold a key for this server alone.
        .redirect(Policy::none())
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| {
            Failure::usage(format!("the HTTP client for traces cannot be built: {error}"))
        })?;
    Ok(Exporter {
        courier: Courier { client, endpoint: settings::endpoint()?, timeout },
        runtime: runtime.clone(),
        resource: Resource::builder_empty().build(),
        is_failing: AtomicBool::new(false),
    })
}

/// Sends a batch to the collector.
#[derive(Clone)]
struct Courier {
    client: reqwest::Client,
    endpoint: Url,
    timeout: Duration,
}

/// Why a batch did not arrive. It contains no address, header or text of the collector, because
/// they may hold a key.
enum Undelivered {
    Unreachable,
    Refused { status: StatusCode, wait: Option<Duration> },
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("the collector does not answer"),
            Self::Refused { status, .. } => write!(f, "the collector answers {status}"),
        }
    }
}

impl Undelivered {
    fn by(answer: &Response) -> Self {
        let wait = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Self::Refused { status: answer.status(), wait: wait.map(Duration::from_secs) }
    }

    /// The wait before another try, if the protocol allows one.
    fn wait(&self, usual: Duration) -> Option<Duration> {
        match self {
            Self::Unreachable => Some(usual),
            Self::Refused { status, wait } => {
                matches!(status.as_u16(), 429 | 502 | 503 | 504).then(|| wait.unwrap_or(usual))
            }
        }
    }
}

impl Courier {
    /// Sends the batch, in several tries if necessary, within the time limit.
    async fn deliver(&self, batch: Bytes) -> Result<(), Undelivered> {
        let begin = Instant::now();
        for usual in WAITS {
            let Err(failed) = self.try_once(batch.clone()).await else { return Ok(()) };
            match failed.wait(usual) {
                Some(wait) if begin.elapsed() + wait < self.timeout => {
                    tokio::time::sleep(wait).await
                }
                _ => return Err(failed),
            }
        }
        self.try_once(batch).await
    }

    async fn try_once(&self, batch: Bytes) -> Result<(), Undelivered> {
        let request = self
            .client
            .post(self.endpoint.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(batch);
        match request.send().await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(Undelivered::by(&answer)),
            Err(_) => Err(Undelivered::Unreachable),
        }
    }
}

/// An exporter that logs once that spans do not arrive, and once that they arrive again.
struct Exporter {
    courier: Courier,
    /// The SDK exports from a thread of its own without a reactor, so the exporter uses the
    /// server's runtime.
    runtime: Handle,
    resource: Resource,
    is_failing: AtomicBool,
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let body = wire::request(&self.resource, SCOPE, &batch).into();
        let courier = self.courier.clone();
        let delivery = self.runtime.spawn(async move { courier.deliver(body).await });
        let failed = match delivery.await {
            Ok(Ok(())) => None,
            Ok(Err(failed)) => Some(failed.to_string()),
            Err(error) => Some(error.to_string()),
        };
        let was_failing = self.is_failing.swap(failed.is_some(), Ordering::Relaxed);
        match failed {
            Some(error) => {
                if !was_failing {
                    tracing::warn!(
                        error,
                        "traces cannot be exported and are dropped; runs are not affected"
                    );
                }
                Err(OTelSdkError::InternalFailure(error))
            }
            None => {
                if was_failing {
                    tracing::info!("traces are exported again");
                }
                Ok(())
            }
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.clone();
    }
}

/// Manual, because the client's own would show its headers.
impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}
