//! Who looks at the console, and at what: a tenant at its own, an operator at what it looks after,
//! this machine at everything where there are no tenants. What is out of sight answers exactly as
//! what does not exist.

use axum::extract::FromRequestParts;
use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind};
use http::request::Parts;
use http::{Method, header};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::Console;
use crate::settings::ContentRule;
use capstan_engine::faults::journal_fault;
use capstan_engine::tenant_scheduler::TaskSlot;
use capstan_kit::access::{self, bearer};
use capstan_kit::accounted_body::Payer;
use capstan_kit::identity::audit::{Actor, Target};
use capstan_kit::identity::caller::{Caller, LOCAL};
use capstan_kit::identity::operators::{EVERY_TENANT, Operator, Right};
use capstan_kit::identity::scopes::Operation;
use capstan_kit::identity::tenants::{deliveries_of, owner_of};
use capstan_kit::refusal::Refusal;

/// Whoever looks.
#[derive(Debug, Clone)]
pub(crate) enum Visitor {
    /// With a tenant's key or token.
    Tenant(Caller),
    /// With an operator's key.
    Operator(Operator),
    /// From this machine, without tenants.
    Local(Caller),
}

/// Who looks.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VisitorKind {
    /// A tenant's key or token.
    Tenant,
    /// An operator's key.
    Operator,
    /// This machine, without keys.
    Local,
}

/// What of a run is looked at, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Frames,
    Body,
    Session,
}

impl Look {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Body => "body",
            Self::Session => "session",
        }
    }
}

/// What is done to a run, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Stop,
    Purge,
}

impl Act {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Purge => "purge",
        }
    }

    fn operation(self) -> Operation {
        match self {
            Self::Stop => Operation::Stop,
            Self::Purge => Operation::Purge,
        }
    }
}

impl Visitor {
    pub(crate) fn kind(&self) -> VisitorKind {
        match self {
            Self::Tenant(_) => VisitorKind::Tenant,
            Self::Operator(_) => VisitorKind::Operator,
            Self::Local(_) => VisitorKind::Local,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Tenant(caller) | Self::Local(caller) => &caller.tenant,
            Self::Operator(operator) => &operator.name,
        }
    }

    /// Whose memory its answers are: a tenant's own, or the operator's, which is no tenant's
    /// whatever its name.
    pub(crate) fn payer(&self) -> String {
        match self {
            Self::Tenant(caller) | Self::Local(caller) => caller.tenant.clone(),
            Self::Operator(operator) => format!("operator {}", operator.name),
        }
    }

    pub(crate) fn is_operator(&self) -> bool {
        matches!(self, Self::Operator(_))
    }

    pub(crate) fn actor(&self) -> Actor {
        match self {
            Self::Tenant(caller) | Self::Local(caller) => Actor::from(caller),
            Self::Operator(operator) => Actor::operator(operator),
        }
    }

    /// The tenants in sight; all if `None`.
    pub(crate) fn tenants(&self) -> Option<Vec<String>> {
        match self {
            Self::Tenant(caller) => Some(vec![caller.tenant.clone()]),
            Self::Operator(operator)
                if operator.tenants.iter().any(|name| name == EVERY_TENANT) =>
            {
                None
            }
            Self::Operator(operator) => Some(operator.tenants.clone()),
            Self::Local(_) => None,
        }
    }

    /// Under which names that is kept which is theirs.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let own = self.tenants()?;
        Some(own.iter().map(|name| deliveries_of(name)).chain(own.clone()).collect())
    }

    /// The same by name, as far as names are known: where all are in sight, those that are
    /// configured or have run.
    pub(crate) fn known_tenants(&self, console: &Console) -> Vec<String> {
        self.tenants().unwrap_or_else(|| {
            let named: Vec<_> =
                console.cx.tenants.current().iter().map(|tenant| tenant.name.clone()).collect();
            if named.is_empty() { vec![LOCAL.to_owned()] } else { named }
        })
    }

    /// Whether what is this tenant's is in sight.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        let tenant = owner_of(tenant);
        match self {
            Self::Tenant(caller) => caller.tenant == tenant,
            Self::Operator(operator) => operator.may_to(Right::Look, tenant),
            Self::Local(_) => true,
        }
    }

    /// Whether the server itself is in sight, with what belongs to nobody in particular.
    pub(crate) fn sees_server(&self) -> bool {
        !matches!(self, Self::Tenant(_))
    }

    /// Whether a refusal is in sight. One that is nobody's is for those who see everything.
    pub(crate) fn sees_refusal(&self, tenant: Option<&str>) -> bool {
        match tenant {
            Some(tenant) => self.sees(tenant),
            None => self.tenants().is_none(),
        }
    }

    /// Whether sessions of this tenant have names that may be told.
    pub(crate) fn sees_sessions_of(&self, console: &Console, tenant: &str) -> bool {
        self.sees(tenant) && !(self.is_operator() && console.cx.tenants.is_unstored(tenant))
    }

    /// Whether it may see what was said in this tenant's runs.
    pub(crate) fn may_read(&self, console: &Console, tenant: &str) -> bool {
        if console.content() == ContentRule::Never || !self.sees(tenant) {
            return false;
        }
        match self {
            Self::Tenant(_) | Self::Local(_) => true,
            Self::Operator(operator) => {
                let rules = console.cx.tenants.named(tenant);
                operator.may_to(Right::Content, tenant) && rules.console_content && !rules.no_store
            }
        }
    }

    /// Whether it may do this to this tenant's runs.
    pub(crate) fn may_act(&self, console: &Console, act: Act, tenant: &str) -> bool {
        console.settings.actions
            && match self {
                Self::Tenant(caller) | Self::Local(caller) => {
                    self.sees(tenant) && caller.scopes.lacks(act.operation()).is_none()
                }
                Self::Operator(operator) => operator.may_to(Right::Act, tenant),
            }
    }

    /// A run in sight.
    pub(crate) async fn run(&self, console: &Console, id: &str) -> Result<Run, Fault> {
        let unknown = || Fault::new(FaultKind::StreamNotFound);
        let stream: Uuid = id.parse().map_err(|_| unknown())?;
        let store = console.engine.journal.store();
        // What is delivered for a tenant is in its sight as well.
        let run =
            store.run(stream).await.map_err(journal_fault)?.filter(|run| self.sees(&run.tenant));
        if let (None, Self::Tenant(caller)) = (&run, self)
            && store.is_expired(&caller.tenant, stream).await.map_err(journal_fault)?
        {
            return Err(Fault::new(FaultKind::StreamExpired));
        }
        run.ok_or_else(unknown)
    }

    /// Refuses whoever may not see what was said; whoever may is noted.
    pub(crate) fn look(
        &self,
        console: &Console,
        look: Look,
        tenant: &str,
        stream: Option<Uuid>,
    ) -> Result<(), Fault> {
        if console.content() == ContentRule::Never {
            return Err(forbidden(
                "This console shows nobody what was said: `console.content` is \"never\".",
            ));
        }
        if !self.may_read(console, tenant) {
            return Err(forbidden(
                "What was said is not shown to you: it takes the right `content`, and a tenant \
                that lets it be seen.",
            ));
        }
        if self.is_operator() {
            console.access.audit.console_looked(&self.actor(), look.word(), tenant, stream);
        }
        console.count(look.word());
        Ok(())
    }

    /// Refuses whoever may not do this.
    pub(crate) fn check_act(&self, console: &Console, act: Act, tenant: &str) -> Result<(), Fault> {
        if !console.settings.actions {
            return Err(forbidden(
                "Nothing is stopped or erased from this console: `console.actions` is off.",
            ));
        }
        let may = self.may_act(console, act, tenant);
        may.then_some(()).ok_or_else(|| forbidden("You may look, but neither stop nor erase."))
    }

    /// Notes what was done.
    pub(crate) fn did(&self, console: &Console, act: Act, tenant: &str, to: Target<'_>) {
        console.access.audit.console_did(&self.actor(), act.word(), tenant, to);
        console.count(act.word());
    }
}

fn forbidden(message: &str) -> Fault {
    Fault::new(FaultKind::TenantUnauthorized).with_message(message)
}

/// Without keys a page of another port of this machine could ask in its visitor's name: what
/// changes anything must come from the console's own page, or from no page at all.
fn check_same_origin(parts: &Parts) -> Result<(), Fault> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let is_own = match parts.headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => !parts.headers.contains_key(header::ORIGIN),
    };
    is_own.then_some(()).ok_or_else(|| forbidden("Only the console's own page may ask for this."))
}

async fn visitor(console: &Console, parts: &Parts) -> Result<Visitor, Fault> {
    access::check_url(&parts.uri)?;
    let shown = bearer(&parts.headers);
    if let Some(operator) = shown.and_then(|key| console.access.operators.holder_of(key)) {
        let may_look = operator.may(Right::Look);
        return may_look
            .then_some(Visitor::Operator(operator))
            .ok_or_else(|| forbidden("This operator may not `look`."));
    }
    if console.access.is_local() && console.access.is_open {
        let kind =
            if shown.is_some() { FaultKind::TenantUnauthorized } else { FaultKind::TenantRequired };
        return Err(Fault::new(kind).with_message("This is for operators."));
    }
    let caller = access::caller(&console.access, parts).await?;
    if console.access.is_local() {
        check_same_origin(parts)?;
        return Ok(Visitor::Local(caller));
    }
    caller.check(Operation::Read)?;
    Ok(Visitor::Tenant(caller))
}

impl FromRequestParts<Console> for Visitor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Refusal> {
        if !console.is_on() {
            return Err(FaultKind::RouteNotFound.into());
        }
        let visitor = visitor(console, parts).await;
        if let Ok(Self::Tenant(caller)) = &visitor {
            console.engine.scheduler.enter(&caller.tenant);
            TaskSlot::next_turn().await;
        }
        visitor.inspect(|visitor| Payer::name(&parts.extensions, &visitor.payer())).map_err(
            |fault| {
                let who = Actor::unknown(bearer(&parts.headers));
                if matches!(fault.kind(), FaultKind::TenantRequired | FaultKind::TenantUnauthorized)
                {
                    console.access.audit.refused(who, &fault, &parts.method, parts.uri.path());
                }
                fault.into()
            },
        )
    }
}
