//! The canonical form of a JSON value, which its hash is made of: members sorted by name, each
//! value after a byte for its type. Spacing and the order of members do not count. It is written
//! while a text is read, or from a tree of which a face leaves members out.

use std::fmt;
use std::io::Write as _;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// Writes the canonical form of a value. Every run stores its hash, so the form of a given value
/// must never change.
#[derive(Default)]
pub struct Canonical {
    out: Vec<u8>,
    /// The members of the objects that are being written, the outer ones first.
    members: Vec<Member>,
    /// How many values were read. Each object or array counts as one value, and each comma
    /// separates two.
    values: usize,
    most: usize,
}

/// A member of an object, as offsets. Its name begins `HEAD` bytes after `start`.
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
}

/// The bytes before a text: its type and its length.
const HEAD: usize = 9;

impl Canonical {
    /// The form of a JSON text. `None` if serde_json cannot hold the value, for example a number
    /// out of range, or if it has more than `most` values.
    pub(super) fn of_text(text: &str, most: usize) -> Option<Self> {
        let mut form =
            Self { out: Vec::with_capacity(text.len()), values: 1, most, ..Self::default() };
        let mut reader = serde_json::Deserializer::from_str(text);
        Reading(&mut form).deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        (form.values <= most).then_some(form)
    }

    /// Hashes the value, with the agent in the path and the face.
    pub fn hash(self, agent: Option<&str>, face: &str) -> [u8; 32] {
        finish(self.digest(), agent, face)
    }

    pub(super) fn digest(&self) -> Sha256 {
        Sha256::new_with_prefix(&self.out)
    }

    /// Writes a value.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.out.push(b'n'),
            Value::Bool(is_true) => self.bool(*is_true),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.text(text),
            Value::Array(items) => self.array(items, |form, item| form.value(item)),
            Value::Object(members) => self.object(members, |form, _, value| form.value(value)),
        }
    }

    /// Writes a string.
    pub fn text(&mut self, text: &str) {
        self.marked(b'"', text);
    }

    /// Writes an array. `write` writes each item.
    pub fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        let (at, mut length) = (self.begin(b'['), 0);
        for item in items {
            write(self, item);
            length += 1;
        }
        self.set_length(at, length);
    }

    /// Writes an object. `write` writes the value of each member.
    pub fn object<N: AsRef<str>, T>(
        &mut self,
        members: impl IntoIterator<Item = (N, T)>,
        mut write: impl FnMut(&mut Self, &str, T),
    ) {
        let (at, base) = (self.begin(b'{'), self.members.len());
        for (name, value) in members {
            let (start, name_end) = self.name(name.as_ref());
            write(self, name.as_ref(), value);
            self.members.push(Member { start, name_end, end: self.out.len() });
        }
        self.end_object(at, base);
    }

    fn bool(&mut self, is_true: bool) {
        self.out.push(if is_true { b't' } else { b'f' });
    }

    fn number(&mut self, number: &Number) {
        let at = self.begin(b'#');
        // A write to a vector cannot fail.
        let _ = write!(self.out, "{number}");
        self.set_length(at, self.out.len() - at - 8);
    }

    /// Writes the name of a member. Returns the offsets at which the member and its value begin.
    fn name(&mut self, name: &str) -> (usize, usize) {
        let start = self.out.len();
        self.marked(b':', name);
        (start, self.out.len())
    }

    fn marked(&mut self, mark: u8, text: &str) {
        self.out.push(mark);
        self.out.extend_from_slice(&(text.len() as u64).to_be_bytes());
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Begins a value whose length is not known yet. Returns the offset of its length.
    fn begin(&mut self, mark: u8) -> usize {
        self.out.push(mark);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 8]);
        at
    }

    fn set_length(&mut self, at: usize, length: usize) {
        if let Some(place) = self.out.get_mut(at..at + 8) {
            place.copy_from_slice(&(length as u64).to_be_bytes());
        }
    }

    /// Ends an object whose members are those from `base` on. Sorts them by name. Of two members
    /// with the same name the later one counts.
    fn end_object(&mut self, at: usize, base: usize) {
        let Self { out, members, .. } = self;
        let own = members.get_mut(base..).unwrap_or_default();
        let name = |member: &Member| out.get(member.start + HEAD..member.name_end);
        let mut length = own.len();
        if !own.is_sorted_by(|a, b| name(a) < name(b)) {
            own.sort_by(|a, b| name(a).cmp(&name(b)).then(b.start.cmp(&a.start)));
            let first = own.iter().map(|member| member.start).min().unwrap_or_default();
            let read = out.split_off(first);
            let part = |from: usize, to: usize| read.get(from - first..to - first);
            let mut last = None;
            length = 0;
            for member in own {
                let name = part(member.start + HEAD, member.name_end);
                if name != last {
                    out.extend_from_slice(part(member.start, member.end).unwrap_or_default());
                    length += 1;
                }
                last = name;
            }
        }
        members.truncate(base);
        self.set_length(at, length);
    }

    fn count<E: Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > self.most { Err(E::custom("too many values")) } else { Ok(()) }
    }
}

/// Adds the agent and the face to the digest of a value.
pub(super) fn finish(mut digest: Sha256, agent: Option<&str>, face: &str) -> [u8; 32] {
    for part in [agent.unwrap_or_default(), face] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Writes the form of a value that is being read.
struct Reading<'a>(&'a mut Canonical);

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.out.push(b'n');
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.bool(value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.number(&value.into());
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.number(&value.into());
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.number(&Number::from_f64(value).ok_or_else(|| E::custom("not a number"))?);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.text(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let form = self.0;
        form.count()?;
        let (at, mut length) = (form.begin(b'['), 0);
        while items.next_element_seed(Reading(form))?.is_some() {
            if length > 0 {
                form.count()?;
            }
            length += 1;
        }
        form.set_length(at, length);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let form = self.0;
        form.count()?;
        let (at, base) = (form.begin(b'{'), form.members.len());
        while let Some((start, name_end)) = members.next_key_seed(ReadingName(form))? {
            if form.members.len() > base {
                form.count()?;
            }
            members.next_value_seed(Reading(form))?;
            form.members.push(Member { start, name_end, end: form.out.len() });
        }
        form.end_object(at, base);
        Ok(())
    }
}

/// Writes the name of a member that is being read.
struct ReadingName<'a>(&'a mut Canonical);

impl<'de> DeserializeSeed<'de> for ReadingName<'_> {
    type Value = (usize, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for ReadingName<'_> {
    type Value = (usize, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.name(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form as it was first computed, from a tree. A client that returns after an upgrade must
    /// find its run, so the result may not change.
    fn form_of_tree(out: &mut Vec<u8>, value: &Value) {
        let text = |out: &mut Vec<u8>, mark: u8, text: &str| {
            out.push(mark);
            out.extend((text.len() as u64).to_be_bytes());
            out.extend(text.as_bytes());
        };
        match value {
            Value::Null => out.push(b'n'),
            Value::Bool(b) => out.push(if *b { b't' } else { b'f' }),
            Value::Number(n) => text(out, b'#', &n.to_string()),
            Value::String(s) => text(out, b'"', s),
            Value::Array(items) => {
                out.push(b'[');
                out.extend((items.len() as u64).to_be_bytes());
                items.iter().for_each(|item| form_of_tree(out, item));
            }
            Value::Object(members) => {
                out.push(b'{');
                out.extend((members.len() as u64).to_be_bytes());
                let mut names: Vec<&String> = members.keys().collect();
                names.sort();
                for name in names {
                    text(out, b':', name);
                    form_of_tree(out, &members[name]);
                }
            }
        }
    }

    #[test]
    fn stored_hashes_stay_what_they_were() {
        for text in [
            "null",
            r#"{"b":{"z":1,"a":[true,false,null]},"a":-0.0,"é":"\u00e9\n","":1.5e300,"aa":-7}"#,
            r#"{"b":1,"a":2,"b":{"y":3,"x":[]},"c":18446744073709551615,"d":1e20,"e":123456789012345678901234567890}"#,
            r#"{"b":{"c":1,"b":2,"c":3},"b":{"d":4,"c":5,"b":6},"a":{"a":{}}}"#,
            r#"[{"a":{}},{"a":{}},{},[],[[]],"\ud83d\ude00",-0,0.1,1E2]"#,
        ] {
            let (value, mut expected): (Value, _) =
                (serde_json::from_str(text).unwrap(), Vec::new());
            form_of_tree(&mut expected, &value);
            assert_eq!(Canonical::of_text(text, usize::MAX).unwrap().out, expected, "{text}");
            let mut form = Canonical::default();
            form.value(&value);
            assert_eq!(form.out, expected, "{text}");
        }
    }
}
