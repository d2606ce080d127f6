//! Converts JSON text to Python values. Python's own parser would take longer for an event than all
//! other work together.
//!
//! Values that the two parsers could read differently are left to Python's: whole numbers of any
//! size, `-0`, and values that serde cannot hold.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::imports;

/// Converts JSON text to Python values. Whole numbers of any size stay exact.
pub(crate) fn read<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    match quick(py, text) {
        Some(value) => Ok(value),
        None => imports::json_loads(py)?.call1((text,)),
    }
}

fn quick<'py>(py: Python<'py>, text: &str) -> Option<Bound<'py, PyAny>> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Value(py).deserialize(&mut reader).ok()?;
    reader.end().ok().map(|()| value)
}

/// Any value.
#[derive(Clone, Copy)]
struct Value<'py>(Python<'py>);

impl<'de, 'py> DeserializeSeed<'de> for Value<'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for Value<'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(self.0.None().into_bound(self.0))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(PyBool::new(self.0, value).to_owned().into_any())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(PyInt::new(self.0, value).into_any())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(PyInt::new(self.0, value).into_any())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        // `-0` and whole numbers beyond 64 bits also arrive as floats, and cannot be distinguished
        // from floats.
        let is_whole = value.abs() >= i64::MAX as f64 || (value == 0.0 && value.is_sign_negative());
        if is_whole {
            Err(E::custom("for Python to read"))
        } else {
            Ok(PyFloat::new(self.0, value).into_any())
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.0, text).into_any())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let list = PyList::empty(self.0);
        while let Some(item) = items.next_element_seed(self)? {
            list.append(item).map_err(A::Error::custom)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.0);
        while let Some(name) = members.next_key_seed(Name(self.0))? {
            dict.set_item(name, members.next_value_seed(self)?).map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

/// A member's name.
struct Name<'py>(Python<'py>);

impl<'de, 'py> DeserializeSeed<'de> for Name<'py> {
    type Value = Bound<'py, PyString>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'py> Visitor<'_> for Name<'py> {
    type Value = Bound<'py, PyString>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.0, name))
    }
}
