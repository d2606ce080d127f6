//! Finds the known word that a user may have meant.

/// Below this similarity two words are unrelated.
const ALIKE: f64 = 0.7;
/// A comparison costs the product of the lengths, and a word may be as long as a request. No known
/// word is longer.
const LONGEST: usize = 40;

/// The known word that is closest to a mistyped one, in any case; none if none is close.
///
/// ```
/// let known = ["listen", "journal"];
/// assert_eq!(capstan_protocol::nearest("lisen", known), Some("listen"));
/// assert_eq!(capstan_protocol::nearest("xyzzy", known), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    near(word, known, 1).into_iter().next()
}

/// The known words that are close to a mistyped one, the closest first.
///
/// ```
/// let known = ["gpt-5", "gpt-5-mini", "claude"];
/// assert_eq!(capstan_protocol::near("gpt5", known, 3), ["gpt-5", "gpt-5-mini"]);
/// ```
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let word: String = word.chars().take(LONGEST).collect::<String>().to_lowercase();
    let scored =
        known.into_iter().map(|known| (strsim::jaro_winkler(&word, &known.to_lowercase()), known));
    let mut scored: Vec<_> = scored.filter(|(score, _)| *score > ALIKE).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(most).map(|(_, known)| known).collect()
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
