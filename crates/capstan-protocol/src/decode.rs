//! Strict decoding with the place of the mistake: `p.severity: unknown variant "Transient",
//! expected FATAL, …`.
//!
//! The happy path is plain serde. Only when it fails is the text read a second time, slowly, to
//! find the path.

mod objects;
mod scan;
mod tagged;

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) use objects::Objects;
pub(crate) use scan::check;
pub(crate) use tagged::Tagged;

/// The deepest nesting of JSON. serde_json enforces the same limit while it builds values.
pub const MAX_DEPTH: usize = 128;

/// The deepest nesting that the data contract's reference reads. Only [`crate::model`], which gives
/// the reference's verdicts, uses it.
pub(crate) const REFERENCE_DEPTH: usize = 200;

/// The rule that a document broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// Not JSON, or JSON with trailing text.
    Syntax,
    /// A required member is absent.
    Missing,
    /// A member that this model does not have.
    UnknownMember,
    /// A member of a typed object that appears twice.
    Duplicate,
    /// A value of the wrong JSON type, or one outside the allowed set.
    Value,
    /// Nested deeper than [`MAX_DEPTH`].
    Depth,
}

/// Why a document was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    kind: DecodeErrorKind,
    path: String,
    what: String,
}

impl DecodeError {
    /// An error at `path` (dotted, `[n]` for array items, empty for the document itself).
    pub fn new(kind: DecodeErrorKind, path: impl Into<String>, what: impl Into<String>) -> Self {
        Self { kind, path: path.into(), what: what.into() }
    }

    /// A value that is well-formed JSON but breaks a rule of the model.
    pub fn value(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(DecodeErrorKind::Value, path, what)
    }

    /// The rule that the document broke.
    pub fn kind(&self) -> DecodeErrorKind {
        self.kind
    }

    /// The path of the offending member; empty for the document itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The description of the mistake.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The same error seen from one level up: `severity` inside `p` becomes `p.severity`.
    #[must_use]
    pub fn inside(mut self, parent: &str) -> Self {
        self.path = join(parent, &self.path);
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "document" } else { &self.path };
        write!(f, "{path}: {}", self.what)
    }
}

impl std::error::Error for DecodeError {}

/// Decodes one JSON document strictly into `T`.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    quick(text).ok_or_else(|| locate::<T>(text))
}

/// The value, or nothing and no reason why.
pub(crate) fn quick<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Objects(&mut reader)).ok()?;
    reader.end().ok().map(|()| value)
}

/// [`from_str`] for documents that may nest deeper than [`MAX_DEPTH`].
pub(crate) fn from_str_within<T: DeserializeOwned>(
    text: &str,
    depth: usize,
) -> Result<T, DecodeError> {
    check(text, depth)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let value = serde_path_to_error::deserialize(Objects(&mut reader))
        .map_err(|e| explain(&path_of(e.path()), &e.inner().to_string(), Some(e.inner())))?;
    reader.end().map_err(|e| explain("", &e.to_string(), Some(&e)))?;
    Ok(value)
}

/// [`from_str`] for bytes; text that is not UTF-8 is a syntax error.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        DecodeError::new(
            DecodeErrorKind::Syntax,
            "",
            format!("not UTF-8 at byte {}", e.valid_up_to()),
        )
    })?;
    from_str(text)
}

/// [`from_slice`] without the reason of a refusal, which takes a second pass to find. For callers
/// that try several models.
pub fn try_from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    quick(std::str::from_utf8(bytes).ok()?)
}

/// Decodes an already parsed value; the same rules apart from duplicate members, which a value
/// cannot hold.
pub fn from_value<T: DeserializeOwned>(value: &serde_json::Value) -> Result<T, DecodeError> {
    serde_path_to_error::deserialize(Objects(value))
        .map_err(|e| explain(&path_of(e.path()), &e.inner().to_string(), None))
}

/// Separates the parts of a [`DecodeError`] that travels through serde's text-only errors.
const SEAL: char = '\u{1f}';

/// Carries an error out of a hand-written `Deserialize` without losing its path.
pub(crate) fn nested<E: serde::de::Error>(error: DecodeError) -> E {
    E::custom(format_args!("{SEAL}{}{SEAL}{}", error.path, error.what))
}

fn unseal(message: &str) -> Option<(&str, &str)> {
    message.strip_prefix(SEAL)?.split_once(SEAL)
}

/// Reads the text again, this time keeping track of the path.
fn locate<T: DeserializeOwned>(text: &str) -> DecodeError {
    let mut reader = serde_json::Deserializer::from_str(text);
    let failed = match serde_path_to_error::deserialize::<_, T>(Objects(&mut reader)) {
        Err(e) => explain(&path_of(e.path()), &e.inner().to_string(), Some(e.inner())),
        // `deserialize` stops at the end of the value; what follows it is the mistake.
        Ok(_) => match reader.end() {
            Err(e) => explain("", &e.to_string(), Some(&e)),
            Ok(()) => DecodeError::value("", "refused"),
        },
    };
    debug_assert!(!failed.what.is_empty());
    failed
}

fn path_of(path: &serde_path_to_error::Path) -> String {
    let text = path.to_string();
    // The crate prints `.` for the root and `?` for a segment it could not name.
    if text == "." {
        String::new()
    } else {
        text.trim_end_matches(".?").trim_end_matches('?').to_owned()
    }
}

/// Turns serde's wording into ours; one place, so that every model speaks alike.
fn explain(path: &str, message: &str, json: Option<&serde_json::Error>) -> DecodeError {
    use DecodeErrorKind as Kind;
    let message = strip_position(message);
    if message.contains("recursion limit exceeded") {
        return DecodeError::new(
            Kind::Depth,
            path,
            format!("nested deeper than {MAX_DEPTH} levels"),
        );
    }
    if json.is_some_and(|e| e.is_syntax() || e.is_eof()) {
        let place = json
            .map(|e| format!(" at line {} column {}", e.line(), e.column()))
            .unwrap_or_default();
        return DecodeError::new(Kind::Syntax, path, format!("not valid JSON: {message}{place}"));
    }
    if let Some((inner, what)) = unseal(message) {
        return DecodeError::new(Kind::Value, join(path, inner), what);
    }
    if let Some(name) = quoted(message, "missing field ") {
        return DecodeError::new(Kind::Missing, join(path, name), "required member is absent");
    }
    if let Some(name) = quoted(message, "duplicate field ") {
        return DecodeError::new(Kind::Duplicate, child(path, name), "member appears twice");
    }
    if let Some(name) = quoted(message, "unknown field ") {
        let what = format!("unknown member{}", expected(message, "or").unwrap_or_default());
        return DecodeError::new(Kind::UnknownMember, child(path, name), what);
    }
    if let Some(name) = quoted(message, "unknown variant ") {
        let what =
            format!("unknown variant {name:?}{}", expected(message, "or").unwrap_or_default());
        return DecodeError::new(Kind::Value, path, what);
    }
    for prefix in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((found, wanted)) =
            message.strip_prefix(prefix).and_then(|m| m.split_once(", expected "))
        {
            let found = found.replace('`', "");
            let wanted =
                if wanted.starts_with("struct ") { "an object" } else { plain_type(wanted) };
            return DecodeError::new(
                Kind::Value,
                path,
                format!("expected {wanted}, found {found}"),
            );
        }
    }
    DecodeError::new(Kind::Value, path, message)
}

/// Replaces Rust's names of number types, which mean nothing to the author of the JSON.
fn plain_type(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" => "a whole number that is not negative",
        "i64" | "i128" => "a whole number",
        "f64" => "a number",
        other => other,
    }
}

/// serde_json ends its messages with the position; ours name the member instead.
fn strip_position(message: &str) -> &str {
    message.rfind(" at line ").map_or(message, |at| message.get(..at).unwrap_or(message))
}

fn quoted<'a>(message: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = message.strip_prefix(prefix)?.strip_prefix('`')?;
    // The name itself may hold a back-tick, serde's list after it never does before ", expected".
    let end = rest.find("`, expected ").or_else(|| rest.rfind('`'))?;
    rest.get(..end)
}

/// "`a`, `b`, `c`" as ", expected a, b or c".
fn expected(message: &str, last: &str) -> Option<String> {
    let list = message.rsplit_once(", expected ")?.1;
    let names: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    match names.split_last()? {
        (only, []) => Some(format!(", expected {only}")),
        (end, rest) => Some(format!(", expected {} {last} {end}", rest.join(", "))),
    }
}

/// Appends a member unless serde's path already ends in it.
fn child(path: &str, name: &str) -> String {
    let named = path == name || path.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    if named { path.to_owned() } else { join(path, name) }
}

fn join(parent: &str, child: &str) -> String {
    match (parent.is_empty(), child.is_empty()) {
        (true, _) => child.to_owned(),
        (_, true) => parent.to_owned(),
        _ if child.starts_with('[') => format!("{parent}{child}"),
        _ => format!("{parent}.{child}"),
    }
}
