//! The gateway's settings. Every default is a named constant with its reason.

use capstan_journal::Retention;
use capstan_protocol::Exposure;

use crate::face::Site;
use crate::identity::jwt::Jwt;
use crate::identity::operators::Operators;
use crate::identity::tenants::{KeyHash, Tenants};
use crate::tls::Tls;
use capstan_console::{ConsoleSettings, ContentRule};
use capstan_engine::settings::EngineSettings;
pub use capstan_engine::settings::{Limits, Timeouts};
use capstan_faces::FaceSettings;

/// The settings of a gateway. Set fields with struct-update syntax.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The tenants. If there are none, the gateway must listen on loopback only. A handle: keep a
    /// clone to replace them while the gateway serves.
    pub tenants: Tenants,
    /// The accepted tokens besides keys, if any.
    pub jwt: Option<Jwt>,
    /// The operators. A handle, like the tenants.
    pub operators: Operators,
    /// Without tenants, whether other machines may use the gateway. Then any Host is accepted.
    pub open: bool,
    /// Origins of pages that may call the gateway. Without tenants, pages on loopback may.
    pub cors_origins: Vec<String>,
    /// The public address, for documents with the gateway's own address: `https://agents.example`.
    /// Without it, the request's Host.
    pub public_url: Option<String>,
    /// A key that may read `/metrics` from other machines.
    pub metrics_key: Option<KeyHash>,
    /// The TLS certificate; plain HTTP without one. A handle, like the tenants.
    pub tls: Option<Tls>,
    /// Whether type names and causes may leave the process.
    pub exposure: Exposure,
    /// In AG-UI, a failure is also sent as a text message, for front ends that ignore RUN_ERROR.
    /// Off by default: other front ends would show it twice.
    pub agui_error_text: bool,
    /// In OpenAI's API, a request without a key that an SDK marks as a retry attaches to the unread
    /// run with the same body. On by default: a retry should not bill a second run.
    pub openai_repeats: bool,
    /// In OpenAI's API, clients may request responses over a WebSocket. On by default, because
    /// Codex tries that first. If it is off, Codex uses POST.
    pub openai_websocket: bool,
    /// The operators' page at `/console`.
    pub console: ConsoleSettings,
    /// Limits per tenant and in total.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// How long streams, sessions and claims are stored, and how many bytes of them.
    pub retention: Retention,
}

impl Settings {
    /// Whether there is a console.
    pub fn has_console(&self) -> bool {
        self.console.is_on(self.is_local(), self.open, &self.operators)
    }

    /// Whether the console shows content.
    pub fn console_content(&self) -> ContentRule {
        self.console.content_rule(self.is_local())
    }

    /// Whether there are no tenants and no public access: then only this machine may send requests.
    pub fn is_local(&self) -> bool {
        self.tenants.is_empty() && self.jwt.is_none()
    }

    /// Whether tenants share the process's threads fairly: if there is more than one tenant, and
    /// each has a share.
    fn has_tenant_shares(&self) -> bool {
        !self.is_local() && self.limits.share_per_tenant > 0
    }

    /// The settings of single faces.
    pub(crate) fn for_faces(&self) -> FaceSettings {
        let Self { agui_error_text, openai_repeats, openai_websocket, .. } = *self;
        FaceSettings { agui_error_text, openai_repeats, openai_websocket }
    }

    /// The gateway's address.
    pub(crate) fn site(&self) -> Site {
        Site {
            public_url: self.public_url.clone(),
            is_tls: self.tls.is_some(),
            has_tokens: self.jwt.is_some(),
            is_open: self.open,
        }
    }

    /// The engine's settings.
    pub(crate) fn for_engine(&self) -> EngineSettings {
        EngineSettings {
            limits: self.limits.clone(),
            timeouts: self.timeouts.clone(),
            retention: self.retention.clone(),
            exposure: self.exposure,
            has_tenant_shares: self.has_tenant_shares(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tenants: Tenants::default(),
            jwt: None,
            operators: Operators::default(),
            open: false,
            cors_origins: Vec::new(),
            public_url: None,
            metrics_key: None,
            tls: None,
            exposure: Exposure::Production,
            agui_error_text: false,
            openai_repeats: true,
            openai_websocket: true,
            console: ConsoleSettings::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            retention: Retention::default(),
        }
    }
}
