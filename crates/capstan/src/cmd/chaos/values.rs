//! Parses the values of flags. clap adds the flag's name to the error message.

use std::ops::RangeInclusive;
use std::time::Duration;

use capstan_chaos::{After, At, Then, When, With};

use capstan_protocol::nearest;

pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    rate.ok_or_else(|| "expected a number from 0 (never) to 1 (always)".to_owned())
}

/// Parses `5` or `0-20` packets, `100b` or `0-4096b` bytes.
pub(super) fn after(text: &str) -> Result<After, String> {
    let wrong = || "expected packets, as 5 or 0-20, or bytes, as 100b or 0-4096b".to_owned();
    let (numbers, is_bytes) =
        text.strip_suffix('b').map_or((text, false), |numbers| (numbers, true));
    let range = range(numbers, |number| number.parse::<u64>().ok()).ok_or_else(wrong)?;
    Ok(if is_bytes { After::Bytes(range) } else { After::Packets(range) })
}

/// Parses `500ms`, `2s`, `1.5s`, `1m`, or a range: `100ms-2s`.
pub(super) fn time(text: &str) -> Result<RangeInclusive<Duration>, String> {
    range(text, duration)
        .ok_or_else(|| "expected a time, as 500ms, 2s or 1m, or a range, as 100ms-2s".to_owned())
}

pub(super) fn status(text: &str) -> Result<u16, String> {
    let status = text.parse().ok().filter(|status| (400..600).contains(status));
    status.ok_or_else(|| "expected an HTTP status from 400 to 599, e.g. 503".to_owned())
}

pub(super) fn at(text: &str) -> Result<At, String> {
    let values = [
        ("exact", At::Exact),
        ("frame", At::Frame),
        ("character", At::Character),
        ("head", At::Head),
        ("any", At::Any),
    ];
    word(text, &values)
}

pub(super) fn with(text: &str) -> Result<With, String> {
    word(text, &[("reset", With::Reset), ("fin", With::Fin), ("any", With::Any)])
}

pub(super) fn then(text: &str) -> Result<Then, String> {
    word(text, &[("continue", Then::Continue), ("cut", Then::Cut), ("any", Then::Any)])
}

pub(super) fn when(text: &str) -> Result<When, String> {
    word(text, &[("any", When::Any), ("resuming", When::Resuming)])
}

fn word<T: Copy>(text: &str, values: &[(&str, T)]) -> Result<T, String> {
    let known = values.iter().map(|(word, _)| *word);
    match values.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(*value),
        None => Err(match nearest(text, known.clone()) {
            Some(close) => format!("did you mean {close}?"),
            None => format!("expected one of {}", known.collect::<Vec<_>>().join(", ")),
        }),
    }
}

/// Parses one value, or two with a dash between, the smaller first.
fn range<T: PartialOrd + Clone>(
    text: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<RangeInclusive<T>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (parse(from)?, parse(to)?);
    (from <= to).then_some(from..=to)
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at_checked(unit)?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(rate("0.25"), Ok(0.25));
        assert_eq!(after("5"), Ok(After::Packets(5..=5)));
        assert_eq!(after("0-4096b"), Ok(After::Bytes(0..=4096)));
        assert_eq!(time("100ms-2s"), Ok(Duration::from_millis(100)..=Duration::from_secs(2)));
        assert_eq!(time("1.5m").unwrap().end(), &Duration::from_secs(90));
        assert_eq!(at("head"), Ok(At::Head));
    }

    #[test]
    fn strange_values_are_refused_with_a_remedy() {
        for text in ["2", "-1", "NaN", "x", ""] {
            assert!(rate(text).unwrap_err().contains("0 (never) to 1 (always)"), "{text}");
        }
        for text in ["", "b", "5-", "9-1", "x", "1-2-3", "-5"] {
            assert!(after(text).is_err(), "{text}");
        }
        for text in ["", "5", "s", "5h", "-5s", "2s-1s", "NaNs", "infs", "1e99m"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(status("200").is_err());
        assert_eq!(with("rest"), Err("did you mean reset?".to_owned()));
        assert_eq!(when("zzz"), Err("expected one of any, resuming".to_owned()));
    }
}
