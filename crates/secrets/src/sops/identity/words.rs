//! A command line as words, without a shell.

/// The words of `line`; none if a quote is not closed or there are none.
#[must_use]
pub fn command_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        inside => word.push(inside),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' => word.push(characters.next()?),
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_into_words() {
        assert_eq!(command_words("pass show age/key").unwrap(), ["pass", "show", "age/key"]);
        assert_eq!(command_words("  a 'b c' \"d \\\" e\"f \\g ''").unwrap(), ["a", "b c", "d \" ef", "g", ""]);
        assert_eq!(command_words("'open"), None);
        assert_eq!(command_words("\"open"), None);
        assert_eq!(command_words(" "), None);
    }
}
