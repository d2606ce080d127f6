//! What can be set. Every default is a named constant with its reason.

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

/// How the gateway behaves. Options are consuming setters on the fields' struct-update syntax.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who may use it; nobody in particular if empty (then it must listen on loopback only). A
    /// handle: keep a clone to replace them while the gateway serves.
    pub tenants: Tenants,
    /// Which tokens are taken beside keys, if any.
    pub jwt: Option<Jwt>,
    /// Who looks after it. A handle, as the tenants are.
    pub operators: Operators,
    /// Without tenants, whether others than this machine may use it: then any Host is answered to.
    pub open: bool,
    /// Origins of pages that may call it. Without tenants, pages on loopback may.
    pub cors_origins: Vec<String>,
    /// Where others find it, for what names its own address: `https://agents.example`. The
    /// request's Host otherwise.
    pub public_url: Option<String>,
    /// A key that may read `/metrics` from elsewhere than loopback.
    pub metrics_key: Option<KeyHash>,
    /// The certificate to show; plain HTTP without. A handle, as the tenants are.
    pub tls: Option<Tls>,
    /// Whether type names and causes may leave the process.
    pub exposure: Exposure,
    /// In AG-UI, a failure is also told as a text message, for front ends that ignore RUN_ERROR.
    /// Off: those that do not ignore it would show it twice.
    pub agui_error_text: bool,
    /// In OpenAI's API, a request without a key that an SDK says it repeats attaches to the run of
    /// the same body that nobody reads, instead of starting another. On: a retry should bill no
    /// second run.
    pub openai_repeats: bool,
    /// In OpenAI's API, responses may be asked for over a WebSocket. On: Codex tries that first.
    /// Off, it is told to go on by POST.
    pub openai_websocket: bool,
    /// The page for whoever looks after it, at `/console`.
    pub console: ConsoleSettings,
    /// How much, per tenant and in all.
    pub limits: Limits,
    /// How long.
    pub timeouts: Timeouts,
    /// How long streams, sessions and claims are kept, and how much of them.
    pub retention: Retention,
}

impl Settings {
    /// Whether there is a console.
    pub fn has_console(&self) -> bool {
        self.console.is_on(self.is_local(), self.open, &self.operators)
    }

    /// Whether the console shows what was said.
    pub fn console_content(&self) -> ContentRule {
        self.console.content_rule(self.is_local())
    }

    /// Whether everything belongs to one, who shows nothing: then only this machine may ask.
    pub fn is_local(&self) -> bool {
        self.tenants.is_empty() && self.jwt.is_none()
    }

    /// Whether tenants are kept apart on their way to the threads of this process: if there is more
    /// than one, and each has a share.
    fn has_tenant_shares(&self) -> bool {
        !self.is_local() && self.limits.share_per_tenant > 0
    }

    /// What can be set of single faces.
    pub(crate) fn for_faces(&self) -> FaceSettings {
        let Self { agui_error_text, openai_repeats, openai_websocket, .. } = *self;
        FaceSettings { agui_error_text, openai_repeats, openai_websocket }
    }

    /// Where the gateway is reached.
    pub(crate) fn site(&self) -> Site {
        Site {
            public_url: self.public_url.clone(),
            is_tls: self.tls.is_some(),
            has_tokens: self.jwt.is_some(),
            is_open: self.open,
        }
    }

    /// What the engine goes by.
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
