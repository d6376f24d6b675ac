//! Which part of many worlds a run lives through: the same each time, or one that whoever runs the tests has drawn.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Names what the part is drawn by: CI gives the commit, so that over time all of them are lived through.
pub const DRAW: &str = "CASTLE_DRAW";

/// A number for what `CASTLE_DRAW` says; zero if it says nothing. A failure comes again with the same word.
#[must_use]
pub fn draw() -> u64 {
    drawn(std::env::var(DRAW).ok().as_deref())
}

fn drawn(word: Option<&str>) -> u64 {
    let Some(word) = word.filter(|word| !word.is_empty()) else { return 0 };
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    // Short enough to be written down.
    hasher.finish() % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_is_always_the_same_and_every_word_is_another() {
        assert_eq!((drawn(None), drawn(Some(""))), (0, 0));
        assert_eq!(drawn(Some("2b3487a")), drawn(Some("2b3487a")));
        assert_ne!(drawn(Some("2b3487a")), drawn(Some("43ae117")));
    }
}
