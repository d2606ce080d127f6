//! The models by name. Python's classes call this when they are built.

use capstan_protocol::decode::DecodeError;
use capstan_protocol::{Profile, model};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;

use crate::failure;

fn find(profile: &str, name: &str) -> PyResult<&'static model::Model> {
    let profile: Profile = profile.parse().map_err(PyValueError::new_err)?;
    model::find(profile, name)
        .ok_or_else(|| PyKeyError::new_err(format!("no model {name} in {profile}")))
}

/// The canonical JSON of a document. An error names the invalid member.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, profile: &str, name: &str, text: &str) -> PyResult<String> {
    let model = find(profile, name)?;
    model.canonical(text).map_err(|error: DecodeError| failure::invalid(py, &error))
}
