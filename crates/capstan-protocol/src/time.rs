//! Timestamps of the wire: RFC 3339 with an offset, to the microsecond.
//!
//! Stricter than RFC 3339 where the data contract is: years 0001 to 9999, no leap second, offsets
//! under a day.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, and the offset from UTC in which it was written. Two of them are equal if they are the
/// same moment.
#[derive(Clone, Copy)]
pub struct Timestamp {
    /// Microseconds since 1970-01-01T00:00:00Z.
    micros: i64,
    offset_minutes: i16,
}

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl Timestamp {
    /// The time of this machine's clock, in UTC.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// A moment in UTC, clamped to the years 0001 to 9999.
    pub fn from_micros(micros: i64) -> Self {
        const FIRST: i64 = -62_135_596_800 * MICROS_PER_SECOND;
        const LAST: i64 = 253_402_300_799 * MICROS_PER_SECOND + 999_999;
        Self { micros: micros.clamp(FIRST, LAST), offset_minutes: 0 }
    }

    /// Microseconds since the Unix epoch.
    pub fn as_micros(self) -> i64 {
        self.micros
    }

    /// Milliseconds since the Unix epoch, rounded down: the unit of AG-UI's timestamps.
    pub fn as_millis(self) -> i64 {
        self.micros.div_euclid(1000)
    }

    /// Parses RFC 3339 text such as `2026-02-03T10:15:37.5+05:30`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_bytes(text.as_bytes())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (timestamp, rest) = Self::take(bytes)?;
        rest.is_empty().then_some(timestamp)
    }

    /// Reads a timestamp at the start of `bytes`; returns it and what follows.
    pub(crate) fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (date_time, rest) = bytes.split_first_chunk::<19>()?;
        let [
            y1,
            y2,
            y3,
            y4,
            b'-',
            m1,
            m2,
            b'-',
            d1,
            d2,
            b'T' | b't' | b' ',
            h1,
            h2,
            b':',
            n1,
            n2,
            b':',
            s1,
            s2,
        ] = *date_time
        else {
            return None;
        };
        let [century, year, month, day] = pairs([y1, y2, y3, y4, m1, m2, d1, d2])?;
        let [hour, minute, second, _] = pairs([h1, h2, n1, n2, s1, s2, b'0', b'0'])?;
        let year = century * 100 + year;
        let in_range =
            year >= 1 && (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
        if !in_range || day < 1 || day > days_in_month(year, month) {
            return None;
        }
        let (fraction, rest) = take_fraction(rest)?;
        let (offset, rest) = take_offset(rest)?;
        let days = days_from_civil(year, month, day);
        let seconds =
            days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - i64::from(offset) * 60;
        Some((
            Self { micros: seconds * MICROS_PER_SECOND + fraction, offset_minutes: offset },
            rest,
        ))
    }

    /// Writes the canonical form: six digits of fraction or none, `Z` for a zero offset.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let local = self.micros + i64::from(self.offset_minutes) * 60 * MICROS_PER_SECOND;
        let (seconds, micros) =
            (local.div_euclid(MICROS_PER_SECOND), local.rem_euclid(MICROS_PER_SECOND));
        let (days, second) =
            (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        push_digits(out, year, 4);
        for (sign, value) in [
            (b'-', month),
            (b'-', day),
            (b'T', second / 3600),
            (b':', second / 60 % 60),
            (b':', second % 60),
        ] {
            out.push(sign);
            push_digits(out, value, 2);
        }
        if micros != 0 {
            out.push(b'.');
            push_digits(out, micros, 6);
        }
        if self.offset_minutes == 0 {
            return out.push(b'Z');
        }
        let offset = i64::from(self.offset_minutes.abs());
        out.push(if self.offset_minutes < 0 { b'-' } else { b'+' });
        push_digits(out, offset / 60, 2);
        out.push(b':');
        push_digits(out, offset % 60, 2);
    }
}

/// `.5` to microseconds, and what follows. Digits past the sixth are cut, at most nine are read.
fn take_fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = rest.strip_prefix(b".") else { return Some((0, rest)) };
    // The form that we write: six digits, in UTC.
    if let [f1, f2, f3, f4, f5, f6, b'Z', ..] = *digits {
        let [high, middle, low, _] = pairs([f1, f2, f3, f4, f5, f6, b'0', b'0'])?;
        return Some((high * 10_000 + middle * 100 + low, digits.get(6..)?));
    }
    let len = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    if !(1..=9).contains(&len) {
        return None;
    }
    let (digits, rest) = digits.split_at_checked(len)?;
    let mut micros = 0;
    for place in 0..6 {
        micros = micros * 10 + digits.get(place).map_or(0, |b| i64::from(b - b'0'));
    }
    Some((micros, rest))
}

/// `Z` or `+05:30` to minutes, and what follows.
fn take_offset(zone: &[u8]) -> Option<(i16, &[u8])> {
    match *zone {
        [b'Z' | b'z', ref rest @ ..] => Some((0, rest)),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ref rest @ ..] => {
            let [hours, minutes, ..] = pairs([h1, h2, m1, m2, b'0', b'0', b'0', b'0'])?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = i16::try_from(hours * 60 + minutes).ok()?;
            Some((if sign == b'-' { -offset } else { offset }, rest))
        }
        _ => None,
    }
}

/// Four numbers of two digits. Every packet has three such fours, so their digits are checked and
/// added side by side in one word, the first digit in its lowest byte.
fn pairs(digits: [u8; 8]) -> Option<[i64; 4]> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(digits).wrapping_sub(EACH * 0x30);
    // A byte below `0` has wrapped and one above `9` reaches 0x80 with 0x76 more: either way its
    // high bit is set.
    if (word | word.wrapping_add(EACH * 0x76)) & (EACH * 0x80) != 0 {
        return None;
    }
    let [a, _, b, _, c, _, d, _] = (word * 10 + (word >> 8)).to_le_bytes();
    Some([a, b, c, d].map(i64::from))
}

fn push_digits(out: &mut Vec<u8>, value: i64, width: u32) {
    for place in (0..width).rev() {
        let digit = value / 10_i64.pow(place) % 10;
        out.push(b'0' + u8::try_from(digit).unwrap_or(0));
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counted in 400-year eras that start
/// in March. `year` is at least 1, so plain division will do.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.micros == other.micros
    }
}
impl Eq for Timestamp {}
impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.micros.cmp(&other.micros)
    }
}
impl std::hash::Hash for Timestamp {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.micros.hash(state);
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(32);
        self.write(&mut text);
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Timestamp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 timestamp with an offset, such as 2026-02-03T10:15:37Z")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                Timestamp::parse(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form_has_six_digits_or_none_and_keeps_the_offset() {
        for (given, canonical) in [
            ("2026-02-03T10:15:37+00:00", "2026-02-03T10:15:37Z"),
            ("2026-02-03T10:15:37.5Z", "2026-02-03T10:15:37.500000Z"),
            ("2026-02-03T10:15:37+05:30", "2026-02-03T10:15:37+05:30"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
            ("2024-02-29T23:59:59-05:00", "2024-02-29T23:59:59-05:00"),
        ] {
            assert_eq!(Timestamp::parse(given).map(|t| t.to_string()).as_deref(), Some(canonical));
        }
    }

    #[test]
    fn dates_that_do_not_exist_are_refused() {
        for wrong in [
            "2016-12-31T23:59:60Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "2026-02-03T24:00:00Z",
            "2026-02-03T10:15:37+24:00",
            "2026-02-03T10:15:37",
            "2026-02-03T10:15:37.Z",
            "now",
            "",
        ] {
            assert_eq!(Timestamp::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pairs_are_digits_and_nothing_else() {
        assert_eq!(pairs(*b"12003499"), Some([12, 0, 34, 99]));
        for place in 0..8 {
            for byte in 0..=u8::MAX {
                let mut digits = *b"90099009";
                digits[place] = byte;
                assert_eq!(pairs(digits).is_some(), byte.is_ascii_digit(), "{digits:?}");
            }
        }
    }

    #[test]
    fn every_day_of_ten_thousand_years_survives_the_round_trip() {
        let last = days_from_civil(9999, 12, 31);
        for day in days_from_civil(1, 1, 1)..=last {
            let (year, month, dom) = civil_from_days(day);
            assert_eq!(days_from_civil(year, month, dom), day);
            assert!((1..=days_in_month(year, month)).contains(&dom));
        }
    }
}
