//! Tokens that carry the time of their sending: `@<microseconds since 1970>@`, whatever wire they
//! travel on.

use std::time::{SystemTime, UNIX_EPOCH};

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The stamps in what has come so far, and what is left over of one that has not come whole.
pub fn take(rest: &mut Vec<u8>, mut found: impl FnMut(u64)) {
    let mut done = 0;
    while let Some(start) = memchr::memchr(b'@', &rest[done..]).map(|at| done + at) {
        let Some(len) = memchr::memchr(b'@', &rest[start + 1..]) else {
            rest.drain(..start);
            return;
        };
        let digits = std::str::from_utf8(&rest[start + 1..start + 1 + len]).unwrap_or_default();
        if let Ok(sent) = digits.parse() {
            found(sent);
        }
        done = start + len + 2;
    }
    rest.clear();
}

/// A percentile of times in microseconds, in milliseconds.
pub fn percentile(times: &mut [u64], share: f64) -> f64 {
    times.sort_unstable();
    times
        .get((times.len().saturating_sub(1) as f64 * share) as usize)
        .map_or(f64::NAN, |micros| *micros as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_wherever_a_read_ends() {
        let text = b"data: {\"p\":\"@12@\"}\n\n@345@ and @6".to_vec();
        for cut in 0..text.len() {
            let (mut rest, mut found) = (text[..cut].to_vec(), Vec::new());
            take(&mut rest, |stamp| found.push(stamp));
            rest.extend_from_slice(&text[cut..]);
            take(&mut rest, |stamp| found.push(stamp));
            assert_eq!((found, rest.as_slice()), (vec![12, 345], &b"@6"[..]), "cut at {cut}");
        }
    }
}
