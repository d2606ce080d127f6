//! Adds routes together with their rows, so that none of the two can be missing.

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, delete, get, post};

use super::{Does, Row};
use crate::identity::caller::check_scopes;
use crate::identity::scopes::Operation;

/// Handlers with their rows.
pub struct Routes<S> {
    router: Router<S>,
    described: Vec<Described>,
}

/// A route and method, and its row.
pub struct Described {
    pub method: &'static str,
    pub path: &'static str,
    pub row: &'static Row,
    /// The route needs a tenant's key.
    pub needs_key: bool,
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self { router: Router::new(), described: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    pub fn get<H, T>(self, path: &'static str, handler: H, row: &'static Row) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.add("get", path, get(handler), row)
    }

    pub fn post<H, T>(self, path: &'static str, handler: H, row: &'static Row) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.add("post", path, post(handler), row)
    }

    pub fn delete<H, T>(self, path: &'static str, handler: H, row: &'static Row) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.add("delete", path, delete(handler), row)
    }

    /// A POST at another spelling of a path that has its row already.
    pub fn post_also<H, T>(mut self, path: &'static str, handler: H, row: &'static Row) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let described = std::mem::take(&mut self.described);
        Self { described, ..self.post(path, handler, row) }
    }

    /// Adds all routes of another set.
    pub fn merge(mut self, other: Self) -> Self {
        self.described.extend(other.described);
        Self { router: self.router.merge(other.router), ..self }
    }

    fn add(
        mut self,
        method: &'static str,
        path: &'static str,
        to: MethodRouter<S>,
        row: &'static Row,
    ) -> Self {
        self.described.push(Described { method, path, row, needs_key: false });
        let operation = match row.does {
            Does::Usual => Some(usual_operation(method)),
            Does::This(operation) => Some(operation),
            Does::AsRequested => None,
        };
        let to = match operation {
            Some(operation) => {
                to.route_layer(from_fn(move |request, next| check_scopes(operation, request, next)))
            }
            None => to,
        };
        Self { router: self.router.route(path, to), ..self }
    }

    /// Converts the routes to another state that contains this one.
    pub fn with_state<T: Clone + Send + Sync + 'static>(self, state: S) -> Routes<T> {
        Routes { router: self.router.with_state(state), described: self.described }
    }

    /// The router.
    pub fn into_router(self) -> Router<S> {
        self.router
    }

    /// The rows. `needs_key` if the routes need a tenant's key.
    pub fn described(self, needs_key: bool) -> impl Iterator<Item = Described> {
        self.described.into_iter().map(move |described| Described { needs_key, ..described })
    }
}

/// What a request does, unless the row says otherwise.
fn usual_operation(method: &str) -> Operation {
    match method {
        "get" => Operation::Read,
        "delete" => Operation::Stop,
        _ => Operation::Start,
    }
}
