//! Secrets in clear: found by their shape, and hidden before any part of the file is shown.

use crate::problem::{Code, Problem};
use crate::span::{Origin, Span};
use crate::values::SecretReference;

/// A stretch of text that has the shape of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leak {
    pub(crate) span: Span,
    what: &'static str,
}

impl Leak {
    pub(crate) fn problem(self) -> Problem {
        Problem::new(Code::SecretValue, format!("{} is written in the file", self.what))
            .at(Origin::File(self.span), "not shown here")
            .hint(
                "replace it at its source, for it has been on disk in clear; then keep the new one in a SOPS file or the \
                 vault and write `sops:FILE#path` or `vault:NAME` here",
            )
    }
}

/// Texts that only secrets begin with, how long they are at least, and what they are.
const PREFIXES: [(&str, usize, &str); 20] = [
    ("AGE-SECRET-KEY-", 20, "an age identity"),
    ("AGE-PLUGIN-", 20, "an age identity"),
    ("ghp_", 20, "a GitHub token"),
    ("gho_", 20, "a GitHub token"),
    ("ghu_", 20, "a GitHub token"),
    ("ghs_", 20, "a GitHub token"),
    ("ghr_", 20, "a GitHub token"),
    ("github_pat_", 20, "a GitHub token"),
    ("glpat-", 20, "a GitLab token"),
    ("PVEAPIToken=", 20, "a Proxmox token"),
    ("xoxb-", 20, "a Slack token"),
    ("xoxp-", 20, "a Slack token"),
    ("AKIA", 20, "an AWS access key"),
    ("ASIA", 20, "an AWS access key"),
    ("hvs.", 20, "a Vault token"),
    ("sk-", 30, "an API key"),
    ("st.", 40, "an Infisical token"),
    ("eyJ", 40, "a signed token (JWT)"),
    // base64 of `-----BEGIN `, at each of its three alignments with what stands before
    ("LS0tLS1CRUdJTi", 20, "a PEM block in base64"),
    ("LS0tLUJFR0lO", 20, "a PEM block in base64"),
];

/// Everything in `text` that has the shape of a secret, comments included.
pub(crate) fn find(text: &str) -> Vec<Leak> {
    let mut leaks = private_keys(text);
    for word in words(text) {
        let body = &text[word.start..word.end];
        let found = prefixed(body).or_else(|| url_password(body)).or_else(|| proxmox_token(body));
        if let Some((start, what)) = found {
            leaks.push(Leak { span: Span { start: word.start + start, end: word.end }, what });
        }
    }
    leaks.sort_by_key(|leak| leak.span);
    leaks.dedup_by_key(|leak| leak.span.start);
    leaks
}

/// Stretches without white space, quotes, commas and brackets.
fn words(text: &str) -> impl Iterator<Item = Span> {
    let separates = |c: char| c.is_whitespace() || "\"'`,[]{}()<>#".contains(c);
    let base = text.as_ptr() as usize;
    text.split(separates).filter(|word| word.len() >= 12).map(move |word| {
        let start = word.as_ptr() as usize - base;
        Span { start, end: start + word.len() }
    })
}

fn prefixed(word: &str) -> Option<(usize, &'static str)> {
    PREFIXES.into_iter().find_map(|(prefix, least, what)| {
        let start = word.find(prefix)?;
        let own = start == 0 || !word.as_bytes()[start - 1].is_ascii_alphanumeric();
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.+/=".contains(&byte);
        let length = word[start..].bytes().take_while(|byte| token(*byte)).count();
        let has_digit = word[start..start + length].bytes().any(|byte| byte.is_ascii_digit());
        (own && length >= least && has_digit).then_some((start, what))
    })
}

/// `https://user:password@host`.
fn url_password(word: &str) -> Option<(usize, &'static str)> {
    let authority = word.find("://")? + 3;
    let end = word[authority..].find('/').map_or(word.len(), |at| authority + at);
    let at = authority + word[authority..end].rfind('@')?;
    let colon = authority + word[authority..at].find(':')?;
    (at - colon > 1).then_some((colon + 1, "a password in an address"))
}

/// `user@realm!name=uuid`.
fn proxmox_token(word: &str) -> Option<(usize, &'static str)> {
    let (user, secret) = word.split_once('=')?;
    let shape = [8, 13, 18, 23].into_iter().all(|at| secret.as_bytes().get(at) == Some(&b'-'));
    (user.contains('@') && user.contains('!') && secret.len() >= 36 && shape)
        .then_some((user.len() + 1, "a Proxmox token"))
}

fn private_keys(text: &str) -> Vec<Leak> {
    let mut leaks = Vec::new();
    let mut from = 0;
    while let Some(begin) = text[from..].find("-----BEGIN ").map(|at| from + at) {
        let line_end = text[begin..].find('\n').map_or(text.len(), |at| begin + at);
        let end = match text[begin..].find("-----END ").map(|at| begin + at) {
            Some(end) => text[end..].find('\n').map_or(text.len(), |at| end + at),
            None => text.len(),
        };
        if text[begin..line_end].contains("PRIVATE KEY") {
            leaks.push(Leak { span: Span { start: begin, end }, what: "a private key" });
        }
        from = end.max(begin + 1);
        while !text.is_char_boundary(from) {
            from += 1;
        }
    }
    leaks
}

/// What stands after a key that names a secret, unless it is a reference: even a file too broken to read may be shown.
fn suspects(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut block: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        match block {
            Some(depth) if line.trim().is_empty() || indent > depth => {
                found.push(Span {
                    start: start + indent.min(line.len()),
                    end: start + line.trim_end().len().max(indent),
                });
            }
            _ => {
                block = None;
                let mut from = 0;
                while let Some(colon) = line[from..].find(':').map(|at| from + at) {
                    from = colon + 1;
                    if !names_a_secret(line, colon) {
                        continue;
                    }
                    let rest = &line[colon + 1..];
                    // A collection where one word belongs is hidden to the end of the line.
                    let collection = rest.trim_start().starts_with(['[', '{']);
                    let ends: &[char] = if collection { &['\n'] } else { &[',', '}', '\n'] };
                    let end = colon + 1 + rest.find(ends).unwrap_or(rest.len());
                    let value = line[colon + 1..end].trim();
                    let bare = value.trim_matches(['"', '\'']);
                    if value.starts_with(['|', '>']) {
                        block = Some(indent);
                    } else if !bare.is_empty() && !bare.starts_with(['&', '#']) && !SecretReference::is_meant(bare) {
                        let offset = colon + 1 + (rest.len() - rest.trim_start().len());
                        found.push(Span { start: start + offset.min(end), end: start + end });
                        // Each stretch is looked at once, however many colons it has.
                        from = end;
                    }
                }
            }
        }
        start += line.len();
    }
    found
}

/// Whether the key before this colon is the name of a secret.
fn names_a_secret(line: &str, colon: usize) -> bool {
    const NAMES: [&str; 9] =
        ["token", "secret", "password", "passwd", "credential", "identity", "apikey", "private_key", "privatekey"];
    // No key of that kind is longer.
    let mut begin = colon.saturating_sub(64);
    while !line.is_char_boundary(begin) {
        begin += 1;
    }
    let before = line[begin..colon].to_ascii_lowercase();
    let key = before.rsplit([' ', '{', ',', '"', '\'', '-', ':']).find(|word| !word.is_empty());
    key.is_some_and(|key| key != "secrets" && NAMES.iter().any(|name| key.contains(name)))
}

/// The text with everything hidden that is, or may be, a secret. It is as long as the text, line by line.
pub(crate) fn mask(text: &str, known: &[Span]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in known.iter().copied().chain(suspects(text)) {
        let end = span.end.min(bytes.len());
        for byte in bytes.iter_mut().take(end).skip(span.start).filter(|byte| **byte != b'\n') {
            *byte = b'*';
        }
    }
    // A span always begins and ends between characters, so this is lossless; it is not worth a panic either way.
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joined here, so that no scanner takes this file for a leak.
    fn made(parts: &[&str]) -> String {
        parts.concat()
    }

    #[test]
    fn secrets_are_found_by_their_shape() {
        let cases = [
            (made(&["AGE-SECRET", "-KEY-1QQPQYRZ9XQ"]), "an age identity"),
            (made(&["gh", "p_0123456789abcdefghijABCDEFGHIJ012345"]), "a GitHub token"),
            (made(&["root@pam!castle=", "01234567-89ab-cdef-0123-456789abcdef"]), "a Proxmox token"),
            (made(&["https://me:", "hunter22@github.com/me/x.git"]), "a password in an address"),
            (made(&["-----BEGIN RSA ", "PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"]), "a private key"),
            (made(&["LS0tLS1C", "RUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ=="]), "a PEM block in base64"),
            (made(&["eyJ", "hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"]), "a signed token (JWT)"),
        ];
        for (secret, what) in cases {
            let text = format!("# note\nkey: \"{secret}\"\nnext: 1\n");
            let found = find(&text);
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            assert_eq!(found[0].what, what);
            let masked = mask(&text, &[found[0].span]);
            assert_eq!(masked.len(), text.len());
            assert!(masked.ends_with("\nnext: 1\n"), "{what}: {masked}");
        }
    }

    #[test]
    fn what_is_not_secret_is_left_alone() {
        for text in [
            "token: sops:secrets.enc.yaml#proxmox.token",
            "repository: https://github.com/me/tazlab-k8s.git",
            "repository: ssh://git@github.com/me/tazlab-k8s.git",
            "fingerprint: AB:CD:EF:01:23:45:67:89:AB:CD:EF:01:23:45:67:89",
            "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
            "# write ghp_ tokens into the vault, never here",
        ] {
            assert_eq!(find(text), [], "{text}");
            assert_eq!(mask(text, &[]), text);
        }
    }

    #[test]
    fn what_follows_the_name_of_a_secret_is_hidden_even_in_broken_files() {
        assert_eq!(mask("token: hunter2 # x\n: [", &[]), "token: ***********\n: [");
        assert_eq!(mask("a: {password: hunter2, b: 1}", &[]), "a: {password: *******, b: 1}");
        assert_eq!(
            mask("clientSecret: |\n  hunter2\n  hunter3\nb: 1", &[]),
            "clientSecret: |\n  *******\n  *******\nb: 1"
        );
        assert_eq!(mask("identity: vault:X\ntoken:\n  a: 1", &[]), "identity: vault:X\ntoken:\n  a: 1");
    }
}
