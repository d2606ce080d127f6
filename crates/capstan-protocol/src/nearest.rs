//! The known word that somebody may have meant.

/// Below this two words have little in common but luck.
const ALIKE: f64 = 0.7;
/// Comparing costs the product of the lengths, and a word may be as long as a request. No known
/// word is longer.
const LONGEST: usize = 40;

/// The known word that is closest to a mistyped one, whatever its case; none if none is close.
///
/// ```
/// let known = ["listen", "journal"];
/// assert_eq!(capstan_protocol::nearest("lisen", known), Some("listen"));
/// assert_eq!(capstan_protocol::nearest("xyzzy", known), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.chars().take(LONGEST).collect::<String>().to_lowercase();
    let scored =
        known.into_iter().map(|known| (strsim::jaro_winkler(&word, &known.to_lowercase()), known));
    scored
        .filter(|(score, _)| *score > ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_that_is_alike_is_proposed() {
        let known = ["/help", "/tokens", "RATE_LIMITED"];
        assert_eq!(nearest("/tokns", known), Some("/tokens"));
        assert_eq!(nearest("rate_limted", known), Some("RATE_LIMITED"), "case does not count");
        assert_eq!(nearest("xyzzy", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("word", []), None);
    }

    #[test]
    fn the_closest_of_several_wins() {
        assert_eq!(nearest("run", ["runs_per_tenant", "runs", "run"]), Some("run"));
    }

    #[test]
    fn a_word_as_long_as_a_request_is_compared_in_part() {
        assert_eq!(nearest(&"ü".repeat(10_000_000), ["ü"]), nearest(&"ü".repeat(LONGEST), ["ü"]));
    }
}
