//! `/v1/console/…`: the routes of the console. See `console`.

mod about;
mod agents;
mod events;
mod faults;
mod numbers;
mod overview;
mod replicas;
mod runs;
mod sessions;
mod tenants;

use crate::Console;
use capstan_kit::openapi::Routes;

/// The console's routes. Each identifies its visitor: a tenant, an operator, or this machine.
pub fn routes() -> Routes<Console> {
    Routes::default()
        .get("/v1/console/me", about::me, &about::ME)
        .get("/v1/console/health", about::health, &about::HEALTH)
        .get("/v1/console/overview", overview::overview, &overview::OVERVIEW)
        .get("/v1/console/faults", faults::faults, &faults::FAULTS)
        .get("/v1/console/agents", agents::agents, &agents::AGENTS)
        .get("/v1/console/tenants", tenants::tenants, &tenants::TENANTS)
        .get("/v1/console/replicas", replicas::replicas, &replicas::REPLICAS)
        .get("/v1/console/events", events::events, &events::EVENTS)
        .get("/v1/console/find", runs::find, &runs::FIND)
        .get("/v1/console/runs", runs::list, &runs::LIST)
        .get("/v1/console/runs/{id}", runs::details, &runs::DETAILS)
        .delete("/v1/console/runs/{id}", runs::purge, &runs::PURGE)
        .get("/v1/console/runs/{id}/marks", runs::marks, &runs::MARKS)
        .get("/v1/console/runs/{id}/frames", runs::frames, &runs::FRAMES)
        .get("/v1/console/runs/{id}/body", runs::body, &runs::BODY)
        .post("/v1/console/runs/{id}/stop", runs::stop, &runs::STOP)
        .get("/v1/console/sessions/{tenant}/{session}", sessions::read, &sessions::READ)
        .delete("/v1/console/sessions/{tenant}/{session}", sessions::purge, &sessions::PURGE)
}
