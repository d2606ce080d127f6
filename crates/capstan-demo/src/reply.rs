//! The answer to plain text: a few sentences with words of the question.
//!
//! A stable hash of the message chooses the sentences: the same message gives the same text in
//! every process, version of Rust and attempt.

use capstan_protocol::Role;

use capstan_agent::Turn;

/// The subject of the sentences.
struct Topic {
    /// The most important word of the question.
    main: String,
    /// Another one, if there is one.
    other: String,
    words: usize,
}

type Sentence = fn(&Topic) -> String;

const OPENINGS: &[Sentence] = &[
    |t| format!("Ah, {}: a fine thing to ask about.", t.main),
    |t| format!("You ask about {}, and I have been waiting for somebody to.", t.main),
    |t| format!("Let us begin with {}, as sensible people do.", t.main),
    |t| format!("Few questions give {} the room that yours does.", t.main),
    |t| format!("I turned your question over, and under it lay {}.", t.main),
];
const MUSINGS: &[Sentence] = &[
    |t| format!("Those who know {} well will say that {} is half of it.", t.main, t.other),
    |t| format!("On a calm day {} comes first, and in a storm {} does.", t.other, t.main),
    |t| format!("Old hands hold that {} without {} is a rope without an end.", t.main, t.other),
    |t| format!("Give {} a quarter turn and {} begins to look quite different.", t.other, t.main),
    |t| {
        format!(
            "There is a knot in the middle of it, and the knot is called {}; {} only pulls.",
            t.other, t.main
        )
    },
];
const CLOSINGS: &[Sentence] = &[
    |t| {
        format!(
            "That is as much as I can spin from {}; `/help` shows my other tricks.",
            count(t.words, "word")
        )
    },
    |_| {
        "A real model would now know more, but hardly sooner; `/help` shows what else I can do."
            .to_owned()
    },
    |t| {
        format!(
            "Ask me about {} again and I will say the same, which is more than most can promise; \
             see `/help`.",
            t.main
        )
    },
    |_| {
        "I am only the demo, but I never lose my thread; `/help` lists the ways to make me try."
            .to_owned()
    },
];
/// Goes with every topic.
const LONE_WORDS_FRIEND: &str = "patience";
const SILENCE: &str = "You said nothing, and said it well. Ask me anything, or see `/help`.";

/// Words that cannot be the subject of a sentence.
const SMALL_WORDS: &[&str] = &[
    "a", "about", "am", "an", "and", "are", "as", "at", "be", "but", "by", "can", "could", "did",
    "do", "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "is", "it", "its",
    "me", "my", "no", "not", "of", "on", "or", "please", "should", "so", "tell", "that", "the",
    "their", "them", "then", "there", "they", "this", "to", "was", "we", "were", "what", "when",
    "where", "which", "who", "why", "will", "with", "would", "you", "your",
];

/// Answers a turn of plain text.
pub(super) fn compose(turn: &Turn) -> String {
    let text = turn.text();
    let seed = fnv(text.trim());
    let Some(topic) = Topic::of(&text, seed) else { return SILENCE.to_owned() };
    // Each set gets its own bits of the hash, so that the choices do not go together.
    let sentences = [
        pick(OPENINGS, seed).map(|sentence| sentence(&topic)),
        pick(MUSINGS, seed >> 16).map(|sentence| sentence(&topic)),
        turns_before(turn),
        pick(CLOSINGS, seed >> 32).map(|sentence| sentence(&topic)),
    ];
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Counts the user's messages: each turn has one.
fn turns_before(turn: &Turn) -> Option<String> {
    let before = turn.history.iter().filter(|message| message.role == Role::User).count();
    (before > 0).then(|| {
        format!("We have had {} before this one, and I kept count.", count(before, "turn"))
    })
}

impl Topic {
    /// `None` if there is no word.
    fn of(text: &str, seed: u64) -> Option<Self> {
        let mut candidates = weighty_words(text);
        let words = text.split_whitespace().count();
        if candidates.is_empty() {
            candidates = text.split_whitespace().take(1).map(shorten).collect();
        }
        let main = pick(&candidates, seed >> 48)?.clone();
        candidates.retain(|word| *word != main);
        let other =
            pick(&candidates, seed >> 40).cloned().unwrap_or_else(|| LONE_WORDS_FRIEND.to_owned());
        // Quoted, a verb or an adjective can stand where a sentence wants a noun.
        let quote = |word| format!("“{word}”");
        Some(Self { main: quote(main), other: quote(other), words })
    }
}

/// The important words in their order, each once.
fn weighty_words(text: &str) -> Vec<String> {
    /// A question may be as long as a request; its beginning is enough.
    const ENOUGH: usize = 200;
    let mut found: Vec<String> = Vec::new();
    for word in text.split_whitespace().take(ENOUGH) {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_small = SMALL_WORDS.iter().any(|small| small.eq_ignore_ascii_case(word));
        let word = shorten(word);
        if !word.is_empty() && !is_small && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}

/// Languages without spaces, and pasted data, contain words that are too long for a sentence.
fn shorten(word: &str) -> String {
    const LONGEST: usize = 24;
    match word.char_indices().nth(LONGEST).and_then(|(at, _)| word.get(..at)) {
        Some(start) => format!("{start}…"),
        None => word.to_owned(),
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("one {noun}") } else { format!("{number} {noun}s") }
}

fn pick<T>(options: &[T], seed: u64) -> Option<&T> {
    let at = seed.checked_rem(options.len() as u64)?;
    options.get(usize::try_from(at).ok()?)
}

/// FNV-1a, because the hashers of the standard library may change with the compiler.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_answer_is_made_of_words_of_the_question() {
        let answer = compose(&Turn::new("Why is the sea salty?"));
        assert!(answer.contains("sea") && answer.contains("salty"), "{answer}");
    }

    #[test]
    fn small_words_and_punctuation_are_no_topics() {
        assert_eq!(weighty_words("What is the (sea), the SEA and -- the sea?"), ["sea", "SEA"]);
    }

    #[test]
    fn a_message_without_a_topic_is_answered_all_the_same() {
        for text in [
            "",
            " \n ",
            "?",
            "who are you",
            "🦀",
            "日本語で話してください。日本語で話してください。日本語で話してください。",
        ] {
            assert!(!compose(&Turn::new(text)).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_huge_message_gets_an_ordinary_answer() {
        for text in ["x".repeat(1_000_000), "x y ".repeat(300_000)] {
            assert!(compose(&Turn::new(text)).len() < 600);
        }
    }

    #[test]
    fn different_questions_get_different_answers() {
        let answers: std::collections::BTreeSet<String> =
            (0..50).map(|n| compose(&Turn::new(format!("Is the tide of day {n} high?")))).collect();
        assert!(answers.len() > 25, "{}", answers.len());
    }
}
