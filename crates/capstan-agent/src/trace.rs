//! W3C trace context as it travels: read, checked, passed on. Nothing here knows what becomes of a
//! trace.

/// The place of a request in a distributed trace: `traceparent`, and `tracestate` if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    parent: String,
    state: Option<String>,
}

/// The length of a version 00 `traceparent`.
const LENGTH: usize = 55;
/// A `tracestate` up to this must be passed on; a longer one may be dropped.
const LONGEST_STATE: usize = 512;

impl TraceParent {
    /// The header that carries the place in the trace.
    pub const PARENT: &str = "traceparent";
    /// The header that carries what tracing systems add to it.
    pub const STATE: &str = "tracestate";

    /// Reads the two headers. `None` if `traceparent` is not one; a `tracestate` that is too long
    /// or not plain text is dropped, as the specification wants it.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let is_plain = |state: &&str| {
            (1..=LONGEST_STATE).contains(&state.len())
                && state.bytes().all(|b| matches!(b, b' '..=b'~'))
        };
        is_parent(parent).then(|| Self {
            parent: parent.to_owned(),
            state: state.filter(is_plain).map(str::to_owned),
        })
    }

    /// `<version>-<trace id>-<span id>-<flags>`.
    pub fn traceparent(&self) -> &str {
        &self.parent
    }

    /// The trace, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.parent.get(3..35).unwrap_or_default()
    }

    /// Data of tracing systems.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The headers by name.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.tracestate().map(|state| (Self::STATE, state));
        [(Self::PARENT, self.traceparent())].into_iter().chain(state)
    }
}

/// Checks for lower-case hexadecimal of fixed lengths, and ids other than zero. A later version may
/// have more text after the flags.
fn is_parent(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |part: &str| is_hex(part) && part.bytes().any(|b| b != b'0');
    let Some((known, rest)) = text.split_at_checked(LENGTH) else { return false };
    let parts: Vec<&str> = known.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { return false };
    [version, trace, span, flags].map(str::len) == [2, 32, 16, 2]
        && is_hex(version)
        && version != "ff"
        && is_id(trace)
        && is_id(span)
        && is_hex(flags)
        && (rest.is_empty() || (version != "00" && rest.starts_with('-')))
        && rest.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_context_is_forwarded_unchanged() {
        let context = TraceParent::parse(PARENT, Some("vendor=1,other=2")).unwrap();
        let headers: Vec<_> = context.headers().collect();
        assert_eq!(headers, [("traceparent", PARENT), ("tracestate", "vendor=1,other=2")]);
        let later = format!("cc{}-what-the-future-brings", &PARENT[2..]);
        assert_eq!(TraceParent::parse(&later, None).unwrap().traceparent(), later);
    }

    #[test]
    fn an_invalid_trace_context_is_ignored() {
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &PARENT.to_uppercase(),
            &PARENT.replace("00-", "ff-"),
            &PARENT.replace("b7ad6b7169203331", "0000000000000000"),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            &PARENT.replace("0af7", "0ag7"),
            &PARENT.replacen('-', "0", 1),
            &format!("{PARENT}-more"),
            &format!("cc{} more", &PARENT[2..]),
            &format!("{}é", &PARENT[..54]),
        ] {
            assert_eq!(TraceParent::parse(wrong, None), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_state_that_cannot_be_passed_on_is_dropped_alone() {
        for wrong in ["", "a=\n", "a=é", &"x".repeat(513)] {
            assert_eq!(TraceParent::parse(PARENT, Some(wrong)).unwrap().tracestate(), None);
        }
    }
}
