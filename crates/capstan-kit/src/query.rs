//! Parses the query of a request into a struct. An error names the parameter.

use std::error::Error as _;

use axum::extract::{FromRequestParts, Query as AxumQuery};
use capstan_protocol::{Fault, FaultKind};
use http::Uri;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// The parsed query.
pub struct Query<T>(pub T);

/// Reads the query of an address.
pub fn parse<T: DeserializeOwned>(uri: &Uri) -> Result<T, Fault> {
    let rejection = match AxumQuery::<T>::try_from_uri(uri) {
        Ok(AxumQuery(query)) => return Ok(query),
        Err(rejection) => rejection,
    };
    // If the error is about one parameter, its source names it.
    let why = rejection.source().map_or_else(|| rejection.to_string(), ToString::to_string);
    let message = if why.contains(": ") { why } else { format!("query: {why}") };
    Err(Fault::new(FaultKind::InvalidRequest).with_message(message))
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self(parse(&parts.uri)?))
    }
}
