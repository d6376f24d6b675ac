//! Protocol version 2: packets in, packets out.

use std::collections::BTreeSet;

use super::Repository;
use super::objects::{Id, hex, pack};

/// The most bytes of a pack in one packet.
const CHUNK: usize = 65_515;

fn packet(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(format!("{:04x}", data.len() + 4).as_bytes());
    out.extend_from_slice(data);
}

fn line(out: &mut Vec<u8>, text: &str) {
    packet(out, format!("{text}\n").as_bytes());
}

/// What is told to whoever begins.
pub(super) fn greeting() -> Vec<u8> {
    let mut out = Vec::new();
    line(&mut out, "# service=git-upload-pack");
    out.extend_from_slice(b"0000");
    for word in ["version 2", "agent=git/castle-datacenter", "ls-refs=unborn", "fetch=shallow", "object-format=sha1"] {
        line(&mut out, word);
    }
    out.extend_from_slice(b"0000");
    out
}

/// The lines of a request; nothing if it is none.
fn lines(mut body: &[u8]) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    while !body.is_empty() {
        let length = usize::from_str_radix(std::str::from_utf8(body.get(..4)?).ok()?, 16).ok()?;
        let taken = length.max(4);
        if length > 4 {
            lines.push(std::str::from_utf8(body.get(4..length)?).ok()?.trim_end().to_owned());
        }
        body = body.get(taken..)?;
    }
    Some(lines)
}

/// Answers a command; nothing if it is none.
pub(super) fn answer(repository: &Repository, body: &[u8]) -> Option<Vec<u8>> {
    let lines = lines(body)?;
    match lines.iter().find_map(|line| line.strip_prefix("command="))? {
        "ls-refs" => Some(refs(repository, &lines)),
        "fetch" => fetch(repository, &lines),
        _ => None,
    }
}

fn refs(repository: &Repository, lines: &[String]) -> Vec<u8> {
    let prefixes: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("ref-prefix ")).collect();
    let is_wanted = |name: &str| prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix));
    let tells_symbols = lines.iter().any(|line| line == "symrefs");
    let mut out = Vec::new();
    let head = repository.branches.get_key_value("main").or_else(|| repository.branches.iter().next());
    if let Some((branch, id)) = head.filter(|_| is_wanted("HEAD")) {
        let symbol = if tells_symbols { format!(" symref-target:refs/heads/{branch}") } else { String::new() };
        line(&mut out, &format!("{} HEAD{symbol}", hex(id)));
    }
    let asked = prefixes.iter().filter_map(|prefix| prefix.strip_prefix("refs/heads/"));
    let asked = asked.filter(|name| repository.is_following && !name.is_empty() && !name.ends_with('/'));
    let names: BTreeSet<&str> = repository.branches.keys().map(String::as_str).chain(asked).collect();
    for (branch, id) in names.into_iter().filter_map(|name| Some((name, repository.branch(name)?))) {
        let name = format!("refs/heads/{branch}");
        if is_wanted(&name) {
            line(&mut out, &format!("{} {name}", hex(id)));
        }
    }
    out.extend_from_slice(b"0000");
    out
}

fn fetch(repository: &Repository, lines: &[String]) -> Option<Vec<u8>> {
    let wanted = lines.iter().filter_map(|line| line.strip_prefix("want "));
    let find = |word: &str| repository.commits.keys().find(|id| hex(id) == word).copied();
    let wants: Vec<Id> = wanted.map(find).collect::<Option<_>>()?;
    let mut out = Vec::new();
    if !lines.iter().any(|line| line == "done") {
        // Nothing of what the client has is looked at: it gets everything once it is done with telling.
        line(&mut out, "acknowledgments");
        line(&mut out, "NAK");
        out.extend_from_slice(b"0000");
        return Some(out);
    }
    let is_shallow = lines.iter().any(|line| line.starts_with("deepen "));
    if is_shallow {
        line(&mut out, "shallow-info");
        for id in wants.iter().filter(|id| repository.commits.get(*id).is_some_and(|commit| commit.parent.is_some())) {
            line(&mut out, &format!("shallow {}", hex(id)));
        }
        out.extend_from_slice(b"0001");
    }
    line(&mut out, "packfile");
    for chunk in pack(repository, &wants, is_shallow).chunks(CHUNK) {
        packet(&mut out, &[&[1], chunk].concat());
    }
    out.extend_from_slice(b"0000");
    Some(out)
}
