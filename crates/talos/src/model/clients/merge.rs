//! One cluster's access put into a file that may hold that of others.
//!
//! The same cluster is the one with the same authority: its entry is replaced. An entry of the same name with another authority
//! is another cluster's, and stays; the new one is then called `NAME-1`, `NAME-2`, …, as Talos calls it. Of an entry that is replaced,
//! what castle does not write itself stays, too. Lines of others stay as they are, with their comments, wherever the lines of a file tell what is whose.

use castle_secrets::Secret;
use castle_yaml::{self as yaml, YamlError};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::super::bundle::written;
use super::user_name;

/// A file with a cluster merged in.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The whole file. Comments of the old one stay, but for those inside of entries that are written anew.
    pub text: Secret,
    /// What the context is called in it.
    pub context: String,
}

/// Why two files cannot be merged. Nothing in it is from the files.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum MergeError {
    /// A file is not YAML.
    #[error("cannot read the {file}: {cause}")]
    Yaml {
        /// Which file.
        file: File,
        /// Why it cannot be read.
        cause: YamlError,
    },
    /// A file is YAML of another shape.
    #[error("the {file} is not one: look at its `{key}`")]
    Shape {
        /// Which file.
        file: File,
        /// The key that is not what it should be.
        key: &'static str,
    },
}

/// Which of the two files it is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum File {
    /// The one that is there.
    Existing,
    /// The one that is new.
    New,
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Existing => "existing file",
            Self::New => "new file",
        })
    }
}

/// A file while it is worked on. It is wiped in the end.
struct Open(Value, File);

impl Drop for Open {
    fn drop(&mut self) {
        yaml::wipe(&mut self.0);
    }
}

impl Open {
    fn parse(text: &str, file: File) -> Result<Self, MergeError> {
        let mut documents = yaml::parse(text).map_err(|cause| MergeError::Yaml { file, cause })?.into_iter();
        let open = Self(documents.next().unwrap_or_else(|| json!({})), file);
        let several = documents.next().as_mut().map(yaml::wipe).is_some();
        if several || !open.0.is_object() { Err(open.shape("contexts")) } else { Ok(open) }
    }

    /// The same, to be held against once it has changed.
    fn as_it_is(&self) -> Self {
        Self(self.0.clone(), self.1)
    }

    /// The file as text: the one that was there with what has changed in it; all of it anew, if nothing was in it or its lines do not tell what is whose.
    fn text(mut self, existing: &str, before: &Self, emit: fn(&Value) -> String) -> Secret {
        let is_new = before.0.as_object().is_some_and(Map::is_empty);
        match yaml::edit(existing, &before.0, &self.0, emit).filter(|_| !is_new) {
            Some(text) => text.into(),
            None => written(&mut self.0, emit),
        }
    }

    fn shape(&self, key: &'static str) -> MergeError {
        MergeError::Shape { file: self.1, key }
    }

    /// What stands under a key that may be absent.
    fn entry(&mut self, key: &'static str, absent: Value) -> Result<&mut Value, MergeError> {
        let error = self.shape(key);
        let entry = self.0.as_object_mut().ok_or(error)?.entry(key).or_insert(Value::Null);
        if entry.is_null() {
            *entry = absent;
        }
        Ok(entry)
    }

    fn map(&mut self, key: &'static str) -> Result<&mut Map<String, Value>, MergeError> {
        let error = self.shape(key);
        self.entry(key, json!({}))?.as_object_mut().ok_or(error)
    }

    fn list(&mut self, key: &'static str) -> Result<&mut Vec<Value>, MergeError> {
        let error = self.shape(key);
        self.entry(key, json!([]))?.as_array_mut().ok_or(error)
    }

    fn set(&mut self, key: &'static str, value: &str) -> Result<(), MergeError> {
        *self.entry(key, Value::Null)? = value.into();
        Ok(())
    }

    /// What the list under `key` holds under `inside` for a name.
    fn named(&self, key: &str, name: &str, inside: &str) -> Option<&Value> {
        self.0.get(key)?.as_array()?.iter().find(|item| has_name(item, name))?.get(inside)
    }

    /// Puts something into a list of named things, over what has its name.
    fn put(&mut self, key: &'static str, name: &str, inside: &str, new: Value) -> Result<(), MergeError> {
        let list = self.list(key)?;
        match list.iter_mut().find(|item| has_name(item, name)) {
            Some(old) => put_over(&mut old[inside], new),
            None => {
                let mut item = Map::from_iter([(inside.to_owned(), new), ("name".to_owned(), name.into())]);
                item.sort_keys();
                list.push(Value::Object(item));
            }
        }
        Ok(())
    }
}

/// Where a client's key or certificate is in a file, for what castle writes as data: both at once is what clients refuse.
const AS_FILES: [(&str, &str); 2] =
    [("client-certificate", "client-certificate-data"), ("client-key", "client-key-data")];

/// Puts the keys of one mapping over those of another. What only the old one has, stays.
fn put_over(old: &mut Value, new: Value) {
    match (old.as_object_mut(), new) {
        (Some(old), Value::Object(new)) => {
            for (file, data) in AS_FILES {
                if new.contains_key(data) {
                    old.remove(file);
                }
            }
            for (key, value) in new {
                if let Some(mut before) = old.insert(key, value) {
                    yaml::wipe(&mut before);
                }
            }
        }
        (_, new) => {
            yaml::wipe(old);
            *old = new;
        }
    }
}

fn has_name(item: &Value, name: &str) -> bool {
    item.get("name").and_then(Value::as_str) == Some(name)
}

/// The name itself, or the first of `NAME-1`, `NAME-2`, … that is free or the same cluster's.
fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut candidate = name.to_owned();
    let mut number = 0_u64;
    while is_taken(&candidate) {
        number += 1;
        candidate = format!("{name}-{number}");
    }
    candidate
}

/// Merges a `talosconfig` as castle issues it into another, and makes its context the current one. An empty text is a file without
/// contexts.
///
/// # Errors
/// If one of the two is not a `talosconfig`.
pub fn merge_talosconfig(existing: &str, new: &Secret) -> Result<Merged, MergeError> {
    let mut new = Open::parse(new.expose(), File::New)?;
    let mut merged = Open::parse(existing, File::Existing)?;
    let before = merged.as_it_is();
    let name = new.0.get("context").and_then(Value::as_str).ok_or(new.shape("context"))?.to_owned();
    let error = new.shape("contexts");
    let context = new.map("contexts")?.remove(&name).ok_or(error)?;
    // Before the contexts, as Talos writes it.
    merged.entry("context", Value::Null)?;
    let contexts = merged.map("contexts")?;
    let is_another = |old: &Value| old.get("ca") != context.get("ca");
    let name = free_name(&name, |name| contexts.get(name).is_some_and(is_another));
    put_over(contexts.entry(name.clone()).or_insert_with(|| json!({})), context);
    merged.set("context", &name)?;
    Ok(Merged { text: merged.text(existing, &before, yaml::emit), context: name })
}

/// Merges a `kubeconfig` as castle issues it into another, and makes its context the current one. An empty text is a file without
/// contexts.
///
/// # Errors
/// If one of the two is not a `kubeconfig`.
pub fn merge_kubeconfig(existing: &str, new: &Secret) -> Result<Merged, MergeError> {
    let new = Open::parse(new.expose(), File::New)?;
    let mut merged = Open::parse(existing, File::Existing)?;
    let before = merged.as_it_is();
    let first = |key: &'static str, inside| {
        let entry = new.0.get(key).and_then(|list| list.get(0)).ok_or(new.shape(key))?;
        let name = entry.get("name").and_then(Value::as_str).ok_or(new.shape(key))?;
        Ok::<_, MergeError>((name, entry.get(inside).ok_or(new.shape(key))?))
    };
    let (old_name, cluster) = first("clusters", "cluster")?;
    let (_, user) = first("users", "user")?;
    let (_, context) = first("contexts", "context")?;

    // A mapping of another kind may have any of these keys.
    for (key, wanted) in [("kind", "Config"), ("apiVersion", "v1")] {
        let value = merged.0.get(key).filter(|value| !value.is_null());
        if value.is_some_and(|value| value.as_str().is_none_or(|value| !value.is_empty() && value != wanted)) {
            return Err(merged.shape(key));
        }
    }
    // The lists must be lists before they are searched.
    for key in ["clusters", "users", "contexts"] {
        merged.list(key)?;
    }
    let authority = cluster.get("certificate-authority-data");
    let is_anothers = |name: &str| {
        let cluster = merged.named("clusters", name, "cluster");
        cluster.is_some_and(|cluster| cluster.get("certificate-authority-data") != authority)
    };
    let name = free_name(old_name, |name| {
        let context = merged.named("contexts", &user_name(name), "context");
        let cluster = context.and_then(|context| context.get("cluster")).and_then(Value::as_str);
        is_anothers(name) || cluster.is_some_and(is_anothers)
    });

    let user_name = user_name(&name);
    let mut context = context.clone();
    context["cluster"] = name.clone().into();
    context["user"] = user_name.clone().into();
    // The namespace is where somebody works, and theirs to choose.
    let chosen = merged.named("contexts", &user_name, "context").and_then(|context| context.get("namespace"));
    if let Some(namespace) = chosen.cloned() {
        context["namespace"] = namespace;
    }
    merged.put("clusters", &name, "cluster", cluster.clone())?;
    merged.put("contexts", &user_name, "context", context)?;
    merged.put("users", &user_name, "user", user.clone())?;
    merged.set("current-context", &user_name)?;
    for (key, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        merged.set(key, value)?;
    }
    if let (Some(entries), true) = (merged.0.as_object_mut(), before.0.as_object().is_some_and(Map::is_empty)) {
        // As Kubernetes' own programs write it.
        entries.sort_keys();
    }
    Ok(Merged { text: merged.text(existing, &before, yaml::emit_for_kubernetes), context: user_name })
}
