//! The visitors of the console, and what each may see: a tenant its own runs, an operator the runs
//! of its tenants, this machine everything if there are no tenants. A run that a visitor may not
//! see looks like one that does not exist.

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
use capstan_engine::ports::{self, Requester};
use capstan_engine::tenant_scheduler::TaskSlot;
use capstan_kit::access::{self, bearer};
use capstan_kit::accounted_body::Payer;
use capstan_kit::identity::audit::Actor;
use capstan_kit::identity::caller::{Caller, LOCAL};
use capstan_kit::identity::operators::{EVERY_TENANT, Operator, Right};
use capstan_kit::identity::scopes::Operation;
use capstan_kit::identity::tenants::{deliveries_of, owner_of};
use capstan_kit::refusal::Refusal;

/// A visitor of the console.
#[derive(Debug, Clone)]
pub(crate) enum Visitor {
    /// With a tenant's key or token.
    Tenant(Caller),
    /// With an operator's key.
    Operator(Operator),
    /// From this machine, without tenants.
    Local(Caller),
}

/// The kind of visitor.
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

/// The content that a visitor reads, for the audit.
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

/// The act of a visitor, for the audit.
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

    /// The name under which its answers count as memory: the tenant, or the operator. The latter
    /// equals no tenant's name.
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

    /// The tenants that the visitor may see; `None` for all.
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

    /// The names under which their records are stored.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let own = self.tenants()?;
        Some(own.iter().map(|name| deliveries_of(name)).chain(own.clone()).collect())
    }

    /// The names of visible tenants. If all are visible: those that are configured or have runs.
    pub(crate) fn known_tenants(&self, console: &Console) -> Vec<String> {
        self.tenants().unwrap_or_else(|| {
            let named: Vec<_> =
                console.cx.tenants.current().iter().map(|tenant| tenant.name.clone()).collect();
            if named.is_empty() { vec![LOCAL.to_owned()] } else { named }
        })
    }

    /// Whether the visitor may see a tenant's runs.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        let tenant = owner_of(tenant);
        match self {
            Self::Tenant(caller) => caller.tenant == tenant,
            Self::Operator(operator) => operator.may_to(Right::Look, tenant),
            Self::Local(_) => true,
        }
    }

    /// Whether the visitor may see the server itself and what belongs to no tenant.
    pub(crate) fn sees_server(&self) -> bool {
        !matches!(self, Self::Tenant(_))
    }

    /// Whether the visitor may see a refusal. One without a tenant is for visitors who may see
    /// everything.
    pub(crate) fn sees_refusal(&self, tenant: Option<&str>) -> bool {
        match tenant {
            Some(tenant) => self.sees(tenant),
            None => self.tenants().is_none(),
        }
    }

    /// Whether the visitor may see the names of a tenant's sessions.
    pub(crate) fn sees_sessions_of(&self, console: &Console, tenant: &str) -> bool {
        self.sees(tenant) && !(self.is_operator() && console.cx.tenants.is_unstored(tenant))
    }

    /// Whether the visitor may see the content of a tenant's runs.
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

    /// Whether the visitor may do this to a tenant's runs.
    pub(crate) fn may_act(&self, console: &Console, act: Act, tenant: &str) -> bool {
        console.settings.actions
            && match self {
                Self::Tenant(caller) | Self::Local(caller) => {
                    self.sees(tenant) && caller.scopes.lacks(act.operation()).is_none()
                }
                Self::Operator(operator) => operator.may_to(Right::Act, tenant),
            }
    }

    /// Finds a run that the visitor may see.
    pub(crate) async fn run(&self, console: &Console, id: &str) -> Result<Run, Fault> {
        let unknown = || Fault::new(FaultKind::StreamNotFound);
        let stream: Uuid = id.parse().map_err(|_| unknown())?;
        let store = console.engine.store();
        // A tenant may see its deliveries as well.
        let run =
            store.run(stream).await.map_err(journal_fault)?.filter(|run| self.sees(&run.tenant));
        if let (None, Self::Tenant(caller)) = (&run, self)
            && store.is_expired(&caller.tenant, stream).await.map_err(journal_fault)?
        {
            return Err(Fault::new(FaultKind::StreamExpired));
        }
        run.ok_or_else(unknown)
    }

    /// Refuses a visitor who may not see content. The audit records one who may.
    pub(crate) fn look(
        &self,
        console: &Console,
        look: Look,
        tenant: &str,
        stream: Option<Uuid>,
    ) -> Result<(), Fault> {
        if console.content() == ContentRule::Never {
            return Err(forbidden(
                "This console shows no content: `console.content` is \"never\".",
            ));
        }
        if !self.may_read(console, tenant) {
            return Err(forbidden(
                "You may not see this content. It needs the right `content`, and a tenant that \
                 allows it.",
            ));
        }
        if self.is_operator() {
            console.access.audit.console_looked(&self.actor(), look.word(), tenant, stream);
        }
        console.count(look.word());
        Ok(())
    }

    /// Refuses a visitor who may not do this.
    pub(crate) fn check_act(&self, console: &Console, act: Act, tenant: &str) -> Result<(), Fault> {
        if !console.settings.actions {
            return Err(forbidden(
                "This console cannot stop or erase runs: `console.actions` is off.",
            ));
        }
        let may = self.may_act(console, act, tenant);
        may.then_some(()).ok_or_else(|| forbidden("You may neither stop nor erase runs here."))
    }

    /// Names the visitor to the engine, which reports each act that is done.
    pub(crate) fn requester<'a>(&self, console: &'a Console) -> ConsoleRequester<'a> {
        ConsoleRequester { console, actor: self.actor() }
    }
}

/// A visitor who stops or erases something. The audit records the act, and a metric counts it.
pub(crate) struct ConsoleRequester<'a> {
    console: &'a Console,
    actor: Actor,
}

impl Requester for ConsoleRequester<'_> {
    fn acted(&self, done: &ports::Act<'_>) {
        let what = match done {
            ports::Act::Stopped(_) => Act::Stop,
            ports::Act::PurgedStream(_) | ports::Act::PurgedSession { .. } => Act::Purge,
        };
        self.console.access.audit.console_did(&self.actor, what.word(), done);
        self.console.count(what.word());
    }
}

fn forbidden(message: &str) -> Fault {
    Fault::new(FaultKind::TenantUnauthorized).with_message(message)
}

/// Without keys, a page of another port of this machine could act for its visitor. So a request
/// that changes something must come from the console's own page, or from no page.
fn check_same_origin(parts: &Parts) -> Result<(), Fault> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let is_own = match parts.headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => !parts.headers.contains_key(header::ORIGIN),
    };
    is_own
        .then_some(())
        .ok_or_else(|| forbidden("Only the console's own page may send this request."))
}

async fn visitor(console: &Console, parts: &Parts) -> Result<Visitor, Fault> {
    access::check_url(&parts.uri)?;
    let shown = bearer(&parts.headers);
    if let Some(operator) = shown.and_then(|key| console.access.operators.holder_of(key)) {
        let may_look = operator.may(Right::Look);
        return may_look
            .then_some(Visitor::Operator(operator))
            .ok_or_else(|| forbidden("This operator does not have the right `look`."));
    }
    if console.access.is_local() && console.access.is_open {
        let kind =
            if shown.is_some() { FaultKind::TenantUnauthorized } else { FaultKind::TenantRequired };
        return Err(Fault::new(kind).with_message("Only operators may see this."));
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
            console.engine.enter(&caller.tenant);
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
