//! Decodes tagged objects, whose members depend on one member (the tag), member by member.
//!
//! serde's own `tag` first builds a tree of the object, which takes many times its text and cannot
//! hold raw text. This decoder buffers only the members before the tag, as text, and decodes the
//! rest directly.

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer as _, MapAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;

use super::{Objects, explain, nested};

/// Decodes an enum from tagged objects. The enum's `Deserialize` must be the derived, externally
/// tagged one.
pub(crate) struct Tagged<D> {
    pub(crate) tag: &'static str,
    pub(crate) inner: D,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Tagged<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(TaggedVisitor { tag: self.tag, visitor })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

struct TaggedVisitor<V> {
    tag: &'static str,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for TaggedVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut after: A) -> Result<V::Value, A::Error> {
        let mut before = Vec::new();
        while let Some(name) = after.next_key::<String>()? {
            if name == self.tag {
                let members =
                    Members { tag: self.tag, before: before.into_iter(), value: None, after };
                return self.visitor.visit_enum(members);
            }
            before.push((name, after.next_value::<Box<RawValue>>()?));
        }
        Err(A::Error::missing_field(self.tag))
    }
}

/// The members of an object but its tag: those before it, then those after it. The tag's value is
/// read first.
struct Members<A> {
    tag: &'static str,
    before: std::vec::IntoIter<(String, Box<RawValue>)>,
    /// The name and text of the next member, if it came before the tag.
    value: Option<(String, Box<RawValue>)>,
    after: A,
}

impl<'de, A: MapAccess<'de>> EnumAccess<'de> for Members<A> {
    type Error = A::Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(
        mut self,
        seed: T,
    ) -> Result<(T::Value, Self), A::Error> {
        self.after.next_value_seed(seed).map(|kind| (kind, self))
    }
}

impl<'de, A: MapAccess<'de>> VariantAccess<'de> for Members<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        serde::Deserialize::deserialize(MapAccessDeserializer::new(self))
            .map(|serde::de::IgnoredAny| ())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        seed.deserialize(MapAccessDeserializer::new(self))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_map(self)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.value = self.before.next();
        let name = match &self.value {
            Some((name, _)) => Some(name.clone()),
            None => self.after.next_key::<String>()?,
        };
        let Some(name) = name else { return Ok(None) };
        if name == self.tag {
            return Err(A::Error::duplicate_field(self.tag));
        }
        let name: StringDeserializer<A::Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let Some((name, raw)) = self.value.take() else { return self.after.next_value_seed(seed) };
        let mut reader = serde_json::Deserializer::from_reader(raw.get().as_bytes());
        let value = seed.deserialize(Objects(&mut reader));
        // The caller's path already contains this member.
        value.map_err(|e| nested(explain(&name, &e.to_string(), Some(&e))))
    }
}
