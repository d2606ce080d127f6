//! A member that is a text or a list, as in the protocols of model providers.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Visitor};

/// A text, or several values. It is decoded without a tree in memory.
#[derive(Debug)]
pub(crate) enum TextOr<T> {
    Text(String),
    Many(Vec<T>),
}

impl<T> Default for TextOr<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

struct TextOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
    type Value = TextOr<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an array")
    }

    fn visit_str<E>(self, text: &str) -> Result<TextOr<T>, E> {
        Ok(TextOr::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<TextOr<T>, E> {
        Ok(TextOr::Text(text))
    }

    fn visit_unit<E>(self) -> Result<TextOr<T>, E> {
        Ok(TextOr::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<TextOr<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(TextOr::Many)
    }
}
