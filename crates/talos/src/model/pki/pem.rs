//! PEM: the armour of certificates and keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;
use zeroize::Zeroizing;

/// Why a text is not the one PEM block that it should be.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PemError {
    /// There is no block.
    #[error("holds no PEM block")]
    Missing,
    /// There is more than one block, or something beside it.
    #[error("holds more than one PEM block")]
    NotAlone,
    /// The block is damaged.
    #[error("holds a damaged PEM block")]
    Damaged,
}

/// The label and the content of the one block of a text.
///
/// # Errors
/// If there is not exactly one block, or it is damaged.
pub(super) fn decode(text: &str) -> Result<(&str, Zeroizing<Vec<u8>>), PemError> {
    // Line ends of other systems and empty lines around the block are read over, as Go does.
    let mut lines = text.trim().lines().map(str::trim_end);
    let begin = lines.next().unwrap_or_default();
    let label =
        begin.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")).ok_or(PemError::Missing)?;
    let mut body = Zeroizing::new(String::with_capacity(text.len()));
    loop {
        let line = lines.next().ok_or(PemError::Damaged)?;
        match line.strip_prefix("-----END ") {
            Some(end) if end.strip_suffix("-----") == Some(label) => break,
            Some(_) => return Err(PemError::Damaged),
            None => body.push_str(line),
        }
    }
    if lines.next().is_some() {
        return Err(PemError::NotAlone);
    }
    let content = STANDARD.decode(body.as_bytes()).map_err(|_| PemError::Damaged)?;
    Ok((label, Zeroizing::new(content)))
}

/// Writes one block, in lines of 64 characters.
pub(super) fn encode(label: &str, content: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(content));
    let mut text = Zeroizing::new(String::with_capacity(body.len() * 66 / 64 + 2 * label.len() + 40));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_written_and_read() {
        for length in [0, 1, 47, 48, 49, 96, 1000] {
            let content = vec![0xa5; length];
            let text = encode("X Y", &content);
            assert!(text.lines().all(|line| line.len() <= 64));
            let (label, read) = decode(&text).unwrap();
            assert_eq!((label, read.as_slice()), ("X Y", content.as_slice()));
        }
        assert_eq!(encode("X", b"hi").as_str(), "-----BEGIN X-----\naGk=\n-----END X-----\n");
    }

    #[test]
    fn line_ends_and_empty_lines_around_do_not_matter() {
        for text in
            ["-----BEGIN X-----\r\naGk=\r\n-----END X-----\r\n", "\n-----BEGIN X-----\naGk=\n-----END X-----\n\n"]
        {
            assert_eq!(decode(text).unwrap().1.as_slice(), b"hi");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let block = "-----BEGIN X-----\naGk=\n-----END X-----\n";
        for (text, error) in [
            ("", PemError::Missing),
            ("aGk=", PemError::Missing),
            ("x\n-----BEGIN X-----\naGk=\n-----END X-----\n", PemError::Missing),
            (&block.repeat(2), PemError::NotAlone),
            (&format!("{block}x"), PemError::NotAlone),
            ("-----BEGIN X-----\naGk=\n", PemError::Damaged),
            ("-----BEGIN X-----\naGk=\n-----END Y-----\n", PemError::Damaged),
            ("-----BEGIN X-----\naGk\n-----END X-----\n", PemError::Damaged),
            ("-----BEGIN X-----\naG k=\n-----END X-----\n", PemError::Damaged),
            ("-----BEGIN X-----\nA: b\n\naGk=\n-----END X-----\n", PemError::Damaged),
        ] {
            assert_eq!(decode(text).unwrap_err(), error, "{text}");
        }
    }
}
