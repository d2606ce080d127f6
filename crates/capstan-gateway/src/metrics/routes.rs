//! Metrics of routes, by route and member. Both come from the configuration, so their number is
//! bounded.

use std::time::Duration;

use capstan_agent::{BreakerState, CallEnded, CallOutcome, MemberState};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Member {
    route: String,
    member: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    route: String,
    member: String,
    outcome: String,
}

type Times = Family<Member, Histogram, fn() -> Histogram>;

/// The metrics of all routes.
pub(crate) struct RouteMetrics {
    calls: Family<Called, Counter>,
    fallbacks: Family<Member, Counter>,
    first_token: Times,
    rate: Times,
    breaker: Family<Member, Gauge>,
}

impl RouteMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let calls = Family::<Called, Counter>::default();
        registry.register(
            "route_calls",
            "Calls of a route's members, by route, member and outcome",
            calls.clone(),
        );
        let fallbacks = Family::<Member, Counter>::default();
        registry.register(
            "route_fallbacks",
            "Times that a route went on to another member, by route and member",
            fallbacks.clone(),
        );
        let first_token: Times =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.02, 2.0, 14)));
        let help = "Time from a call to its first token, by route and member";
        registry.register("route_first_token_seconds", help, first_token.clone());
        let rate: Times =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(1.0, 2.0, 14)));
        let help = "Tokens per second of complete answers, by route and member";
        registry.register("route_tokens_per_second", help, rate.clone());
        let breaker = Family::<Member, Gauge>::default();
        let help = "0 if a member is called, 1 if it is probed, 2 if it is not called, by route \
         and member";
        registry.register("route_breaker", help, breaker.clone());
        Self { calls, fallbacks, first_token, rate, breaker }
    }

    /// Counts a finished call. `tokens` is the usage of its answer, if it is known.
    pub(crate) fn call_ended(&self, route: &str, call: &CallEnded, tokens: Option<u64>) {
        let member = Member { route: route.to_owned(), member: call.member.to_string() };
        let called = Called {
            route: member.route.clone(),
            member: member.member.clone(),
            outcome: call.outcome.as_str().to_owned(),
        };
        self.calls.get_or_create(&called).inc();
        if call.is_left {
            self.fallbacks.get_or_create(&member).inc();
        }
        let Some(first) = call.first_token else { return };
        self.first_token.get_or_create(&member).observe(first.as_secs_f64());
        if call.outcome == CallOutcome::Answered {
            let speaking = call.took.saturating_sub(first).max(Duration::from_millis(1));
            #[allow(clippy::cast_precision_loss)]
            let tokens = tokens.unwrap_or(call.pieces) as f64;
            self.rate.get_or_create(&member).observe(tokens / speaking.as_secs_f64());
        }
    }

    /// Sets the present state of a route's members.
    pub(crate) fn set_states(&self, route: &str, members: &[MemberState]) {
        for state in members {
            let member = Member { route: route.to_owned(), member: state.name.to_string() };
            let value = match state.breaker {
                BreakerState::Closed => 0,
                BreakerState::HalfOpen => 1,
                BreakerState::Open => 2,
            };
            self.breaker.get_or_create(&member).set(value);
        }
    }
}
