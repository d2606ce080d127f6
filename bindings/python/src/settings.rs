//! The settings of a client.

use std::time::Duration;

use capstan_client::Options;
use capstan_protocol::Profile;
use http::{HeaderMap, HeaderName, HeaderValue};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// No limit: longer than any program runs.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) fn duration(seconds: Option<f64>) -> PyResult<Duration> {
    let Some(seconds) = seconds else { return Ok(FOREVER) };
    let wrong = |e| PyValueError::new_err(format!("{seconds} is not a time: {e}"));
    Duration::try_from_secs_f64(seconds).map(|d| d.min(FOREVER)).map_err(wrong)
}

fn header_map(headers: Vec<(String, String)>) -> PyResult<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let wrong = || {
            PyValueError::new_err(format!(
                "headers[{name:?}]: no header can have this name, or carry this value"
            ))
        };
        let value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
        map.insert(HeaderName::try_from(name.as_str()).map_err(|_| wrong())?, value);
    }
    Ok(map)
}

/// The settings, with Python's names.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    read_timeout: Option<f64>,
    connect_timeout: Option<f64>,
    pub(crate) max_retries: u32,
    pub(crate) max_wait: f64,
    pub(crate) resume_patience: f64,
    pub(crate) deadline: Option<f64>,
    pub(crate) backoff_first: f64,
    pub(crate) backoff_max: f64,
    pub(crate) least_wait: f64,
    pub(crate) strict: bool,
    pub(crate) profile: String,
    path: String,
    headers: Vec<(String, String)>,
}

impl Settings {
    pub(crate) fn profile(&self) -> PyResult<Profile> {
        self.profile.parse().map_err(PyValueError::new_err)
    }

    pub(crate) fn options(self) -> PyResult<Options> {
        let options = match self.deadline {
            Some(seconds) => Options::new().deadline(duration(Some(seconds))?),
            None => Options::new(),
        };
        Ok(options
            .read_timeout(duration(self.read_timeout)?)
            .connect_timeout(duration(self.connect_timeout)?)
            .max_retries(self.max_retries)
            .max_wait(duration(Some(self.max_wait))?)
            .resume_patience(duration(Some(self.resume_patience))?)
            .backoff(duration(Some(self.backoff_first))?, duration(Some(self.backoff_max))?)
            .least_wait(duration(Some(self.least_wait))?)
            .strict(self.strict)
            .profile(self.profile()?)
            .path(self.path)
            .headers(header_map(self.headers)?))
    }
}
