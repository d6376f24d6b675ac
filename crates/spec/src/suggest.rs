//! What someone probably meant.

/// The known word nearest to `word`, if one is near enough to be worth a guess.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k String>) -> Option<&'k str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', '.'], "");
    let wanted = plain(word);
    // A third of the word may be wrong: `memroy`, `first_address`, `gatway`, but not any short word for any other.
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&wanted, &plain(name)), name.as_str()))
        .filter(|(distance, name)| {
            *distance * 3 <= wanted.len().min(name.len()) || name.to_lowercase() == format!("{wanted}s")
        })
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["memory", "firstAddress", "count", "cores"].map(str::to_owned);
        assert_eq!(nearest("memroy", &known), Some("memory"));
        assert_eq!(nearest("first_address", &known), Some("firstAddress"));
        assert_eq!(nearest("core", &known), Some("cores"));
        assert_eq!(nearest("disk", &known), None);
        assert_eq!(nearest("", &known), None);
    }
}
