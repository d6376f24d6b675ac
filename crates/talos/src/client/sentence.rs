//! What a node says, made fit to be shown.
//!
//! A node that refuses a configuration quotes from it: a value in backticks, the part with the unknown keys, a word. What it
//! quotes may be a token or a key, so values are left out and the rest is kept, keys and places above all.

/// No sentence of Talos is longer; what follows is of no use to people.
const LONGEST: usize = 600;
/// No secret of a castle is shorter, and few other words are as long.
const SHORTEST_SECRET: usize = 16;
const HIDDEN: &str = "…";

/// The message without what it quotes. `sent` is the configuration that it may quote from.
pub(super) fn sentence(message: &str, sent: &str) -> String {
    let mut lines = message.lines();
    let mut told = vec![without_quotes(lines.next().unwrap_or_default())];
    told.extend(lines.map(|line| without_value(&without_quotes(line))));
    let told = told.join(" ");
    let words: Vec<String> = told.split_whitespace().map(|word| without_secrets(word, sent)).collect();
    let shown = words.join(" ");
    shown.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect()
}

/// `cannot unmarshal !!str `…` into int`: what stands between backticks is a value.
fn without_quotes(line: &str) -> String {
    let parts = line.split('`').enumerate();
    let parts: Vec<&str> = parts.map(|(index, part)| if index % 2 == 0 { part } else { HIDDEN }).collect();
    parts.join("`")
}

/// A line of YAML without its value.
fn without_value(line: &str) -> String {
    let bare = line.trim_start().trim_start_matches("- ");
    let is_sentence = bare.starts_with("* ") || bare.starts_with("line ");
    match bare.split_once(": ") {
        Some((key, value)) if !is_sentence && !key.contains(' ') && !value.is_empty() => {
            line[..line.len() - value.len()].to_owned() + HIDDEN
        }
        None if !is_sentence && line.trim_start().starts_with("- ") => format!("- {HIDDEN}"),
        _ => line.to_owned(),
    }
}

/// A word without what has the shape of a secret, or is a value of what was sent and long enough to be one.
fn without_secrets(word: &str, sent: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "+/=._-".contains(letter);
    let mut shown = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(is_part) {
        let end = rest[start..].find(|letter| !is_part(letter)).map_or(rest.len(), |length| start + length);
        let run = &rest[start..end];
        shown.push_str(&rest[..start]);
        shown.push_str(if may_be_secret(run, sent) { HIDDEN } else { run });
        rest = &rest[end..];
    }
    shown + rest
}

fn may_be_secret(run: &str, sent: &str) -> bool {
    // The kind of a document follows; it is a name.
    let run = run.strip_prefix("v1alpha1/").unwrap_or(run);
    // Names and paths come in short parts. What has capitals may be base64, where `/` and `-` part nothing.
    let has_capital = run.contains(|letter: char| letter.is_ascii_uppercase());
    let separators: &[char] = if has_capital { &['.'] } else { &['.', '/', '-'] };
    if run.split(separators).all(|part| part.len() < SHORTEST_SECRET) {
        return false;
    }
    let has_digit = run.contains(|letter: char| letter.is_ascii_digit());
    has_digit || sent.match_indices(run).any(|(place, _)| !sent[place + run.len()..].starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, expected: &str) {
        let sent = "machine:\n  token: abcdef.ghijklmnopqrstuv\n  allowSchedulingOnControlPlanes: true\n";
        assert_eq!(sentence(message, sent), expected);
    }

    #[test]
    fn what_is_quoted_is_left_out() {
        check(
            "yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `hunter2` into int",
            "yaml: unmarshal errors: line 3: cannot unmarshal !!str `…` into int",
        );
        check(
            "error decoding document v1alpha1/ (line 2): unknown keys found during decoding:\nmachine:\n    pasword: hunter2\n    list:\n        - hunter3\n        - name: hunter4\n",
            "error decoding document v1alpha1/ (line 2): unknown keys found during decoding: machine: pasword: … list: - … - name: …",
        );
    }

    #[test]
    fn what_looks_like_a_secret_is_left_out() {
        check("token abc123.0123456789abcdef is no token", "token … is no token");
        check("key \"q1w2e3r4t5y6u7i8o9p0q1w2e3r4t5y6u7i8o9p0q1w=\" is short", "key \"…\" is short");
        // Without a digit only what was sent tells.
        check("token abcdef.ghijklmnopqrstuv is refused", "token … is refused");
    }

    #[test]
    fn names_and_places_are_kept() {
        for told in [
            "etcd data directory is not empty",
            "bootstrap is not available yet",
            "allowSchedulingOnControlPlanes is deprecated",
            "rpc error: dial unix /system/run/machined/machine.sock: connect: connection refused",
            "image factory.talos.dev/nocloud-installer is missing",
            "1 error occurred: * install disk is required",
            "error decoding document v1alpha1/KubeAuthenticationConfig/ (line 2): it is empty",
        ] {
            check(told, told);
        }
        check("1 error occurred:\n\t* install disk: is required\n\n", "1 error occurred: * install disk: is required");
    }

    #[test]
    fn it_has_an_end() {
        assert_eq!(sentence(&"a ".repeat(5000), "").chars().count(), LONGEST);
        assert_eq!(sentence("", ""), "");
    }
}
