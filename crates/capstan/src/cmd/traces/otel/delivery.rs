//! How spans get to the collector: over our own HTTP client, watched, so that trouble is told once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_agent::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use reqwest::redirect::Policy;
use tokio::runtime::Handle;

use super::settings;
use crate::cmd::Failure;

/// The exporter that the variables describe.
pub(super) fn exporter(runtime: &Handle) -> Result<impl SpanExporter + 'static, Failure> {
    let client = capstan_client::transport::http_client()
        .timeout(settings::timeout())
        // The headers hold a key, which is for this server alone.
        .redirect(Policy::none())
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Failure::usage(format!("the HTTP client for traces cannot be built: {error}")))?;
    let inner = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Courier { client, runtime: runtime.clone() })
        .with_protocol(Protocol::HttpBinary)
        .build()
        .map_err(|_| settings::unusable_endpoint())?;
    Ok(Watched { inner, is_failing: AtomicBool::new(false) })
}

/// Our HTTP client. The SDK exports from a thread of its own, which has no reactor; the server's runtime has one.
#[derive(Debug)]
struct Courier {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Courier {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The collector's key is among them, and whatever is below us may log.
        request.headers_mut().values_mut().for_each(|value| value.set_sensitive(true));
        let (client, request) = (self.client.clone(), request.try_into()?);
        let answer = self.runtime.spawn(async move { client.execute(request).await }).await??;
        // What the collector has to say beside its status would only be logged, and it may repeat what was sent.
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok(response)
    }
}

/// An exporter that tells once that spans do not arrive, and once that they do again.
struct Watched {
    inner: opentelemetry_otlp::SpanExporter,
    is_failing: AtomicBool,
}

impl SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let outcome = self.inner.export(batch).await;
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        match &outcome {
            // Its words hold a status at most, no address and no header.
            Err(error) if !was_failing => {
                tracing::warn!(%error, "traces cannot be exported and are dropped; runs are not affected");
            }
            Ok(()) if was_failing => tracing::info!("traces are exported again"),
            Ok(()) | Err(_) => {}
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.inner.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// By hand: the exporter's own would show its headers.
impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}
