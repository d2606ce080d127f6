//! Objects of a provider's stream as they stand on the wire, without a tree. A decoder reads the
//! members that it knows; all others stay text.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json_text::{Raw, value};

/// Members that the decoder does not know. None is null.
#[derive(Debug, Default)]
pub(crate) struct Others<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Others<'a> {
    pub(crate) fn push(&mut self, name: Cow<'a, str>, value: Raw<'a>) {
        self.0.extend(value.map(|value| (name, value)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    pub(crate) fn to_map(&self) -> Map<String, Value> {
        self.iter().map(|(name, raw)| (name.to_owned(), value(raw))).collect()
    }
}

/// A member's name, borrowed where it has no escapes.
pub(crate) struct Name<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Declares an object: its known members, those that are passed over, and all others as text. A
/// member whose name is a keyword has its name after `as`.
macro_rules! object {
    (@name $member:ident) => { stringify!($member) };
    (@name $member:ident $name:literal) => { $name };
    ($(#[$about:meta])* $object:ident {
        $($(#[$note:meta])* $member:ident $(as $name:literal)?: $kind:ty,)*
        - $($ignored:literal)|*
    }) => {
        $(#[$about])*
        #[derive(Default)]
        pub(super) struct $object<'a> {
            $($(#[$note])* pub(super) $member: $kind,)*
            pub(super) others: $crate::json_object::Others<'a>,
        }

        impl<'de: 'a, 'a> serde::Deserialize<'de> for $object<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                struct Members;

                impl<'de> serde::de::Visitor<'de> for Members {
                    type Value = $object<'de>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut members: A,
                    ) -> Result<$object<'de>, A::Error> {
                        use $crate::json_object::{Name, object};
                        const IGNORED: &[&str] = &[$($ignored),*];
                        let mut object = $object::default();
                        while let Some(Name(name)) = members.next_key()? {
                            match name.as_ref() {
                                $(object!(@name $member $($name)?) => {
                                    object.$member = members.next_value()?;
                                })*
                                name if IGNORED.contains(&name) => {
                                    members.next_value::<serde::de::IgnoredAny>()?;
                                }
                                _ => object.others.push(name, members.next_value()?),
                            }
                        }
                        Ok(object)
                    }
                }

                deserializer.deserialize_map(Members)
            }
        }
    };
}

pub(crate) use object;
