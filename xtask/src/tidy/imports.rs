//! Which modules of a crate's root use which, read from its sources; tests may use whatever they like.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Which use which.
pub(super) type Uses = BTreeMap<String, BTreeSet<String>>;

/// Which modules of the root of a crate use which others, where `sources` are its files below `src`, each with its text.
pub(super) fn of_crate(sources: &[(&Path, String)]) -> Result<Uses> {
    let mut reading = Reading::default();
    let mut texts = BTreeMap::new();
    let has_library = sources.iter().any(|(file, _)| *file == Path::new("lib.rs"));
    // Beside a library, a program only calls it.
    for (file, text) in sources.iter().filter(|(file, _)| !has_library || *file != Path::new("main.rs")) {
        let text = text.parse::<TokenStream>().map_err(|error| anyhow!("{}: {error}", file.display()))?;
        texts.insert(module_of(file), text);
    }
    let for_tests: BTreeSet<Vec<String>> =
        texts.iter().flat_map(|(module, text)| only_for_tests(module, text.clone())).collect();
    // The root comes first: its path is the shortest.
    for (module, text) in texts {
        match module.first() {
            None => reading.begin(text),
            Some(_) if for_tests.iter().any(|tests| module.starts_with(tests)) => {}
            Some(top) => reading.read(text, top, module.len()),
        }
    }
    Ok(reading.uses)
}

/// Groups that use each other in a circle, each with all of its members.
pub(super) fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            let more = uses.get(next).into_iter().flatten();
            open.extend(more.filter(|one| reached.insert((*one).clone())));
        }
        reached
    };
    let all: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|name| (name, reached(name))).collect();
    let circle = |(name, reached): (&&String, &BTreeSet<String>)| {
        let is_mutual = |other: &&String| all.get(other).is_some_and(|back| back.contains(*name));
        reached.iter().filter(is_mutual).cloned().collect::<Vec<String>>()
    };
    let found: BTreeSet<Vec<String>> = all.iter().map(circle).filter(|circle| circle.len() > 1).collect();
    found.into_iter().collect()
}

/// The modules that a file below `src` is in, from the root, which is in none.
fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_only = parts.len() == 1;
    parts.pop_if(|last| last == "mod" || (is_only && (last == "lib" || last == "main")));
    parts
}

/// The modules below this one that only tests have.
fn only_for_tests(module: &[String], text: TokenStream) -> Vec<Vec<String>> {
    let names = &modules(text.clone()) - &modules(without_tests(text));
    names.into_iter().map(|name| [module, &[name]].concat()).collect()
}

/// The modules that a text has.
fn modules(text: TokenStream) -> BTreeSet<String> {
    let tokens: Vec<TokenTree> = text.into_iter().collect();
    let pairs = tokens.windows(2).filter(|pair| word(&pair[0]).as_deref() == Some("mod"));
    pairs.filter_map(|pair| word(&pair[1])).collect()
}

#[derive(Default)]
struct Reading {
    modules: BTreeSet<String>,
    /// What the root offers under a name of its own, and which module that is from.
    offered: BTreeMap<String, String>,
    uses: Uses,
}

impl Reading {
    /// The root: its modules, and what it takes up from them.
    fn begin(&mut self, root: TokenStream) {
        let shipped = without_tests(root);
        self.modules = modules(shipped.clone());
        let shipped: Vec<TokenTree> = shipped.into_iter().collect();
        self.uses = self.modules.iter().map(|module| (module.clone(), BTreeSet::new())).collect();
        for (place, token) in shipped.iter().enumerate() {
            let Some(from) = shipped.get(place + 1).and_then(word).filter(|_| word(token).as_deref() == Some("use"))
            else {
                continue;
            };
            let taken = shipped[place + 1..].iter().take_while(|token| !is_mark(token, ';'));
            for name in words(taken.cloned().collect()).filter(|_| self.modules.contains(&from)) {
                self.offered.insert(name, from.clone());
            }
        }
    }

    /// A file in this module of the root, so deep below it.
    fn read(&mut self, text: TokenStream, top: &str, depth: usize) {
        let mut found = BTreeSet::new();
        mentioned(without_tests(text), depth, &mut found);
        let module = |name: String| match self.modules.contains(&name) {
            true => Some(name),
            false => self.offered.get(&name).cloned(),
        };
        let used = found.into_iter().filter_map(module).filter(|name| name != top);
        self.uses.entry(top.to_owned()).or_default().extend(used);
    }
}

/// The names of the crate's root that are mentioned: `crate::name`, `crate::{name, ..}`, and as many `super` as lead there.
fn mentioned(text: TokenStream, depth: usize, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = text.into_iter().collect();
    let mut place = 0;
    while let Some(token) = tokens.get(place) {
        place += 1;
        if let TokenTree::Group(group) = token {
            mentioned(group.stream(), depth, found);
            continue;
        }
        let mut supers = usize::from(word(token).as_deref() == Some("super"));
        let is_start = supers == 1 || word(token).as_deref() == Some("crate");
        while is_start && is_path(&tokens, place) {
            place += 2;
            match tokens.get(place) {
                Some(next) if supers > 0 && word(next).as_deref() == Some("super") => {
                    supers += 1;
                    place += 1;
                }
                _ => break,
            }
        }
        match tokens.get(place) {
            Some(_) if !is_start || (supers > 0 && supers < depth) => {}
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                found.extend(first_words(group.stream()));
            }
            Some(next) => found.extend(word(next)),
            None => {}
        }
    }
}

/// The first word of each member of a group that is parted by commas.
fn first_words(group: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = group.into_iter().collect();
    tokens.split(|token| is_mark(token, ',')).filter_map(|member| word(member.first()?)).collect()
}

/// All words, those in groups too.
fn words(text: TokenStream) -> Box<dyn Iterator<Item = String>> {
    Box::new(text.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => words(group.stream()),
        token => Box::new(word(&token).into_iter()),
    }))
}

/// Without what is compiled for tests alone.
fn without_tests(text: TokenStream) -> TokenStream {
    let mut tokens = text.into_iter().peekable();
    let mut kept = Vec::new();
    while let Some(token) = tokens.next() {
        let is_for_tests = is_mark(&token, '#')
            && matches!(tokens.peek(), Some(TokenTree::Group(group)) if group.stream().to_string().replace(' ', "") == "cfg(test)");
        if !is_for_tests {
            kept.push(token);
            continue;
        }
        // Up to the end of what it is about.
        let is_end = |token: &TokenTree| {
            is_mark(token, ';') || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
        };
        let _ = tokens.find(is_end);
    }
    kept.into_iter().collect()
}

fn word(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    }
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

/// Whether `::` is at this place.
fn is_path(tokens: &[TokenTree], place: usize) -> bool {
    [place, place + 1].iter().all(|place| tokens.get(*place).is_some_and(|token| is_mark(token, ':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<(&Path, String)> =
            files.iter().map(|(file, text)| (Path::new(*file), (*text).to_owned())).collect();
        let uses = of_crate(&sources).expect("it is Rust");
        uses.iter().flat_map(|(from, to)| to.iter().map(move |to| format!("{from} {to}"))).collect()
    }

    #[test]
    fn whatever_names_a_module_of_the_root_uses_it() {
        let root = "mod a; mod b; pub mod c; #[cfg(test)] mod d; pub use c::{One, inner::Two};";
        let found = uses(&[
            ("lib.rs", root),
            ("a.rs", "use crate::{b::X, Two}; #[cfg(test)] mod tests { use crate::d::Y; }"),
            ("b/inner.rs", "fn f() { let _ = super::super::a::f(super::g()); } #[cfg(test)] mod tests;"),
            ("b/inner/tests.rs", "use crate::c;"),
            ("c.rs", "fn f() { vec![crate::a::X] }"),
            ("d.rs", "use crate::a;"),
        ]);
        assert_eq!(found, ["a b", "a c", "b a", "c a"]);
    }

    #[test]
    fn a_circle_has_all_that_are_in_it() {
        let uses: Uses = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f")]
            .map(|(from, to)| (from.to_owned(), [to.to_owned()].into()))
            .into();
        assert_eq!(circles(&uses), [["a", "b", "c"]]);
    }
}
