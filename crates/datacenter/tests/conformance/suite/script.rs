//! How scenarios are written.
//!
//! ```text
//! # Why this theme matters.
//!
//! == one scenario, with the namespace <ns> of its own
//!
//! POST /api/v1/namespaces/<ns>/configmaps
//! {"metadata": {"name": "a"}}
//! @take rv = metadata.resourceVersion
//!
//! GET /api/v1/namespaces/<ns>/configmaps?watch=1&resourceVersion=<rv>&timeoutSeconds=1
//! @as stranger
//! ```
//!
//! Blocks end at an empty line. `APPLY`, `MERGE`, `JSON` and `STRATEGIC` are the four kinds of PATCH. `HOOK` puts a webhook's server
//! into a mood, `SEEN` tells what it was asked since, `COMPACT all` makes the store forget what was, `KUBECTL` runs the real one with the rest of the block as its input.

use std::fmt::Write as _;

/// A file of scenarios.
pub(crate) struct Script {
    pub(crate) scenarios: Vec<Scenario>,
}

/// Some requests in a row, in a namespace of their own.
pub(crate) struct Scenario {
    pub(crate) title: String,
    pub(crate) acts: Vec<Act>,
}

/// What is done.
pub(crate) enum Act {
    Request(Box<Request>),
    /// `kubectl` with these words and this input; of what it says only the lines that fit are told.
    Kubectl {
        line: String,
        words: String,
        input: String,
        only: Option<String>,
    },
    /// A webhook's server is put into a mood; one that is not there yet is started.
    Hook {
        name: String,
        mood: String,
    },
    /// The store forgets what was before now.
    Compact,
    /// What a webhook's server was asked since it was last put into a mood.
    Seen {
        name: String,
    },
}

/// One request and what is to be told of its answer.
#[derive(Default)]
pub(crate) struct Request {
    /// As it is written: `APPLY /api/…`.
    pub(crate) line: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Who asks: `admin`, `stranger`, `node`, `nobody`, or a bearer token.
    pub(crate) who: String,
    /// What is kept of the answer, by name.
    pub(crate) takes: Vec<(String, String)>,
    /// It is asked again until all of these hold.
    pub(crate) until: Vec<(String, String)>,
    /// Only these parts of the answer are told.
    pub(crate) shows: Vec<String>,
    /// The server finds several causes of a refusal in no order: it walks through a map.
    pub(crate) unordered: bool,
}

impl Script {
    /// Reads a file.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for block in text.split("\n\n") {
            let mut lines = block.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            let Some(head) = lines.next() else { continue };
            if let Some(title) = head.strip_prefix("== ") {
                scenarios.push(Scenario { title: title.to_owned(), acts: Vec::new() });
                continue;
            }
            let scenario = scenarios.last_mut().ok_or_else(|| format!("before the first scenario: {head}"))?;
            scenario.acts.push(act(head, lines)?);
        }
        Ok(Self { scenarios })
    }
}

fn act<'a>(head: &str, lines: impl Iterator<Item = &'a str>) -> Result<Act, String> {
    let (verb, rest) = head.split_once(' ').ok_or_else(|| format!("no request: {head}"))?;
    match verb {
        "HOOK" => {
            let (name, mood) = rest.split_once(' ').ok_or_else(|| format!("no mood: {head}"))?;
            Ok(Act::Hook { name: name.to_owned(), mood: mood.to_owned() })
        }
        "KUBECTL" => {
            let (said, input): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('@'));
            let only = match said.as_slice() {
                [] => None,
                [one] => Some(one.strip_prefix("@only ").ok_or_else(|| format!("{head}: {one}"))?.to_owned()),
                _ => return Err(format!("{head}: {said:?}")),
            };
            let input = input.iter().map(|line| format!("{line}\n")).collect();
            Ok(Act::Kubectl { line: head.to_owned(), words: rest.to_owned(), input, only })
        }
        "COMPACT" => Ok(Act::Compact),
        "SEEN" => Ok(Act::Seen { name: rest.to_owned() }),
        _ => request(head, verb, rest, lines).map(|request| Act::Request(Box::new(request))),
    }
}

fn request<'a>(head: &str, verb: &str, path: &str, lines: impl Iterator<Item = &'a str>) -> Result<Request, String> {
    let (method, content) = match verb {
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "JSON" => ("PATCH", "application/json-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS" => (verb, "application/json"),
        _ => return Err(format!("no verb: {head}")),
    };
    let mut made = Request {
        line: head.to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        who: "admin".to_owned(),
        ..Request::default()
    };
    for line in lines {
        let Some(word) = line.strip_prefix('@') else {
            let _ = writeln!(made.body, "{line}");
            continue;
        };
        let (word, rest) = word.split_once(' ').ok_or_else(|| format!("{head}: {line}"))?;
        let pair = |mark: &str| -> Result<(String, String), String> {
            let (left, right) = rest.split_once(mark).ok_or_else(|| format!("{head}: {line}"))?;
            Ok((left.to_owned(), right.to_owned()))
        };
        match word {
            "as" => made.who = rest.to_owned(),
            "header" => made.headers.push(pair(": ")?),
            "take" => made.takes.push(pair(" = ")?),
            "until" => made.until.push(pair(" = ")?),
            "show" => made.shows.push(rest.to_owned()),
            "unordered" if rest == "causes" => made.unordered = true,
            _ => return Err(format!("{head}: {line}")),
        }
    }
    if !made.body.is_empty() && !made.headers.iter().any(|(name, _)| name == "content-type") {
        made.headers.push(("content-type".to_owned(), content.to_owned()));
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_request(text: &str) -> Box<Request> {
        let mut script = Script::parse(&format!("== title\n\n{text}\n")).unwrap();
        match script.scenarios[0].acts.remove(0) {
            Act::Request(request) => request,
            _ => panic!("that is no request"),
        }
    }

    #[test]
    fn a_block_is_a_request() {
        let request =
            only_request("APPLY /a?fieldManager=one\n{\"a\":\n 1}\n@as stranger\n@take rv = metadata.resourceVersion");
        assert_eq!((request.method.as_str(), request.path.as_str()), ("PATCH", "/a?fieldManager=one"));
        assert_eq!(request.body, "{\"a\":\n 1}\n");
        assert_eq!(request.who, "stranger");
        assert_eq!(request.headers, [("content-type".to_owned(), "application/apply-patch+yaml".to_owned())]);
        assert_eq!(request.takes, [("rv".to_owned(), "metadata.resourceVersion".to_owned())]);
        assert!(only_request("GET /a").headers.is_empty(), "what has no body has no type");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for block in ["FETCH /a", "GET", "GET /a\n@perhaps x", "GET /a\n@until x", "HOOK gate"] {
            assert!(Script::parse(&format!("== title\n\n{block}\n")).is_err(), "{block}");
        }
        assert!(Script::parse("GET /a\n").is_err(), "it is in no scenario");
    }

    #[test]
    fn comments_and_empty_lines_are_nothing() {
        let script = Script::parse("# about\n\n== one\n\n# why\nGET /a\n\n\n== two\n\nCOMPACT all\n").unwrap();
        assert_eq!(script.scenarios.iter().map(|scenario| scenario.acts.len()).collect::<Vec<_>>(), [1, 1]);
    }
}
