//! ConfigMaps and Secrets that a kustomization makes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::meta::entries;
use super::piece::Piece;
use super::{BuildError, Failure};
use crate::tree::{Tree, joined};
use crate::yaml::Lines;

/// How long a line of Base64 is.
const LINE: usize = 70;

/// Where a generator is written.
pub(super) struct Place<'t> {
    pub(super) tree: &'t Tree,
    pub(super) folder: &'t str,
    pub(super) file: &'t str,
    pub(super) line: usize,
}

impl Place<'_> {
    fn wrong(&self, what: &str) -> BuildError {
        BuildError::new(self.file, self.line, what)
    }

    fn read(&self, path: &str) -> Result<&[u8], BuildError> {
        let place = joined(self.folder, path);
        let is = |test: &dyn Fn(&str) -> bool| place.as_deref().is_some_and(test);
        let why = match () {
            () if is(&|place| self.tree.link(place).is_some()) => "a symbolic link: Flux drops those",
            () if is(&|place| self.tree.is_oversized(place)) => "larger than anything that Kubernetes keeps",
            () => "not there",
        };
        let found = place.as_deref().and_then(|place| self.tree.file(place));
        found.ok_or_else(|| self.wrong(&format!("a generator reads {path}, which is {why}")))
    }
}

/// Whether SOPS has encrypted a file, in whichever of its formats.
fn is_sealed(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let marks = ["\"sops\":", "\nsops:", "\nsops_version=", "\n[sops]"];
    text.contains("ENC[AES256_GCM,") && marks.iter().any(|mark| text.contains(mark))
}

/// Makes the object of one generator, and names the encrypted files that go into a Secret.
pub(super) fn generate(
    kind: &str,
    args: &Value,
    global: &Value,
    place: &Place<'_>,
) -> Result<(Piece, Vec<String>), BuildError> {
    let name = args["name"].as_str().ok_or_else(|| place.wrong("a generator has no name"))?;
    let mut value = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = args["namespace"].as_str() {
        value["metadata"]["namespace"] = namespace.into();
    }
    let (mut data, mut binary) = (Map::new(), Map::new());
    let (pairs, sealed) = pairs(args, place)?;
    for (key, bytes) in pairs {
        if data.contains_key(&key) || binary.contains_key(&key) {
            return Err(place.wrong(&format!("the generator {name} makes the key {key} twice")));
        }
        match String::from_utf8(bytes) {
            Ok(text) if kind == "Secret" => drop(data.insert(key, encoded(text.as_bytes()).into())),
            Ok(text) => drop(data.insert(key, text.into())),
            Err(raw) if kind == "Secret" => drop(data.insert(key, encoded(&raw.into_bytes()).into())),
            Err(raw) => drop(binary.insert(key, encoded(&raw.into_bytes()).into())),
        }
    }
    if kind == "Secret" {
        value["type"] = args["type"].as_str().unwrap_or("Opaque").into();
    }
    if !data.is_empty() {
        value["data"] = Value::Object(data);
    }
    if !binary.is_empty() {
        value["binaryData"] = Value::Object(binary);
    }
    let options = options(args.get("options"), global);
    for (key, path) in [("labels", "metadata/labels"), ("annotations", "metadata/annotations")] {
        if let Some(pairs) = options[key].as_object() {
            entries(&mut value, path, true, pairs);
        }
    }
    if options["immutable"] == true {
        value["immutable"] = true.into();
    }
    let mut piece = Piece::new(value, place.file, Lines::at(place.line));
    piece.is_hashed = options["disableNameSuffixHash"] != true;
    Ok((piece, if kind == "Secret" { sealed } else { Vec::new() }))
}

/// Base64 as Kustomize writes it: what is long comes in lines, each with its end. The hash in the name is of that.
fn encoded(bytes: &[u8]) -> String {
    let whole = STANDARD.encode(bytes);
    if whole.len() < LINE {
        return whole;
    }
    let mut rest = whole.as_str();
    let mut lines = String::with_capacity(whole.len() + whole.len() / LINE + 1);
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        lines.push_str(line);
        lines.push('\n');
        rest = after;
    }
    lines
}

/// The options of a generator over those of all.
fn options(own: Option<&Value>, global: &Value) -> Value {
    let Some(own) = own.and_then(Value::as_object) else { return global.clone() };
    let mut all = global.as_object().cloned().unwrap_or_default();
    for (key, value) in own {
        match (all.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(value)) => known.extend(value.clone()),
            // What all have, none can take back.
            (Some(Value::Bool(true)), Value::Bool(_)) => {}
            _ => drop(all.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(all)
}

type Pairs = Vec<(String, Vec<u8>)>;

/// What a generator is told to hold, and the files of it that are encrypted.
fn pairs(args: &Value, place: &Place<'_>) -> Result<(Pairs, Vec<String>), BuildError> {
    let texts = |key: &str| args[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let (mut pairs, mut sealed) = (Vec::new(), Vec::new());
    for path in texts("envs").chain(args["env"].as_str()) {
        let bytes = place.read(path)?;
        sealed.extend(is_sealed(bytes).then(|| path.to_owned()));
        let text = std::str::from_utf8(bytes).map_err(|_| place.wrong(&format!("{path} is not text in UTF-8")))?;
        for line in text.trim_start_matches('\u{feff}').lines().map(str::trim_start) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            pairs.push((key.to_owned(), value.as_bytes().to_vec()));
        }
    }
    for literal in texts("literals") {
        let pair = literal.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = pair.ok_or_else(|| place.wrong("a literal is no `key=value`"))?;
        pairs.push((key.to_owned(), unquoted(value).as_bytes().to_vec()));
    }
    for source in texts("files") {
        let (key, path) = source.split_once('=').unwrap_or((source.rsplit('/').next().unwrap_or(source), source));
        let bytes = place.read(path)?;
        sealed.extend(is_sealed(bytes).then(|| path.to_owned()));
        pairs.push((key.to_owned(), bytes.to_vec()));
    }
    Ok((pairs, sealed))
}

fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// Adds what was generated to the rest, as its behaviour says.
pub(super) fn absorb(pieces: &mut Vec<Piece>, mut new: Piece, behaviour: &str) -> Result<(), Failure> {
    let id = new.id();
    let known = pieces.iter_mut().filter(|piece| piece.was_ever(&id)).collect::<Vec<_>>();
    match (<[&mut Piece; 1]>::try_from(known), behaviour) {
        (Err(none), "merge" | "replace") if none.is_empty() => {
            Err(Failure::Nobody(format!("there is no {} {} to {behaviour}", id.kind, id.name)))
        }
        (Err(none), _) if none.is_empty() => {
            pieces.push(new);
            Ok(())
        }
        (Err(_), _) => {
            Err(Failure::Wrong(format!("several objects could be the {} {} of a generator", id.kind, id.name)))
        }
        (Ok([known]), "merge" | "replace") => {
            for (key, path) in [("labels", "metadata/labels"), ("annotations", "metadata/annotations")] {
                let own = new.value["metadata"][key].as_object().cloned().unwrap_or_default();
                let mut all = known.value["metadata"][key].as_object().cloned().unwrap_or_default();
                all.extend(own);
                entries(&mut new.value, path, true, &all);
            }
            if behaviour == "merge" {
                for key in ["data", "binaryData"] {
                    let mut all = known.value[key].as_object().cloned().unwrap_or_default();
                    all.extend(new.value[key].as_object().cloned().unwrap_or_default());
                    entries(&mut new.value, key, true, &all);
                }
            }
            new.rename(&known.id().name);
            if !known.id().namespace.is_empty() {
                new.set("namespace", &known.id().namespace);
            }
            new.previous.clone_from(&known.previous);
            new.prefixes.clone_from(&known.prefixes);
            new.suffixes.clone_from(&known.suffixes);
            *known = new;
            Ok(())
        }
        (Ok(_), _) => Err(Failure::Wrong(format!(
            "{} {} exists: a generator must say `behavior: merge` or `replace`",
            id.kind, id.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_comes_in_lines() {
        assert_eq!(encoded(&[b'a'; 51]).len(), 68);
        let (line, more) = (encoded(&[b'a'; 52]), encoded(&[b'a'; 105]));
        assert_eq!(line.lines().map(str::len).collect::<Vec<_>>(), [70, 2]);
        assert_eq!(more.lines().map(str::len).collect::<Vec<_>>(), [70, 70]);
        assert!(line.ends_with('\n') && more.ends_with('\n'));
    }
}
