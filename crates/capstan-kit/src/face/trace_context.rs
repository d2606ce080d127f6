//! The trace that a request is a part of, as its headers say.

use capstan_agent::TraceParent;
use http::HeaderMap;

/// The trace that a request is a part of, if its headers say so. More than one `traceparent` is
/// none.
pub(super) fn context_of(headers: &HeaderMap) -> Option<TraceParent> {
    let mut parents = headers.get_all(TraceParent::PARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    let states = headers.get_all(TraceParent::STATE).iter().map(|state| state.to_str());
    let state = states.collect::<Result<Vec<_>, _>>().map(|states| states.join(",")).ok();
    TraceParent::parse(parent.to_str().ok()?, state.as_deref())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_request_is_a_part_of_one_trace_or_none() {
        assert_eq!(context_of(&headers(&[])), None);
        assert_eq!(context_of(&headers(&[("traceparent", PARENT), ("traceparent", PARENT)])), None);
        assert_eq!(
            context_of(&headers(&[("traceparent", "nonsense"), ("tracestate", "a=1")])),
            None
        );
        let both = context_of(&headers(&[
            ("traceparent", PARENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ]));
        assert_eq!(both, TraceParent::parse(PARENT, Some("a=1,b=2")));
    }
}
