//! What built-in kinds are made of: fields, their types, how lists are merged, what is written when a field is empty.
//!
//! The facts are in `schema/types.txt`, one type a block:
//!
//! ```text
//! = core.v1.ServicePort            a type; `atomic` behind it: owned as a whole
//! name? string                     `?`: left out where it is empty
//! port!+ int32                     `!`: required; `+`: written even if it is zero
//! ```
//!
//! `~` writes `null` where there is nothing, `&` an empty structure. `[` is a list, `{` a map. `map=` and `set` say how the
//! items of a list are told apart, `patch=` how a strategic patch merges it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

const TYPES: &str = include_str!("schema/types.txt");

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Bytes,
    Time,
    IntOrString,
    Int32,
    Int64,
    Double,
    Bool,
    /// A number or a text: a quantity.
    Scalar,
    /// Anything at all.
    Any,
    /// A structure of which nothing is known.
    Object,
    Named(usize),
    List(Box<Self>),
    Map(Box<Self>),
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Relation {
    /// They are not: the list is one value.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these keys.
    Keys(Vec<String>),
}

/// What is written where a field has no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Empty {
    /// What was given stays as it is.
    #[default]
    AsGiven,
    /// Zero values are left out.
    Dropped,
    /// Zero values are written.
    Kept,
    /// `null` is written.
    Null,
    /// An empty structure is written.
    Structure,
}

/// How a strategic patch treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patching {
    pub(crate) merges: bool,
    pub(crate) retains_keys: bool,
    pub(crate) key: Option<String>,
}

/// A field of a structure.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) ty: Type,
    pub(crate) is_required: bool,
    pub(crate) empty: Empty,
    pub(crate) relation: Relation,
    pub(crate) is_atomic: bool,
    pub(crate) patching: Patching,
    pub(crate) default: Option<Value>,
}

/// A named type.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) is_atomic: bool,
    /// What it stands for, if it is no structure.
    pub(crate) alias: Option<Type>,
    pub(crate) fields: BTreeMap<String, Field>,
}

/// All named types.
#[derive(Debug)]
pub(crate) struct Definitions {
    all: Vec<Definition>,
    by_name: BTreeMap<String, usize>,
}

/// The types of built-in kinds.
pub(crate) fn definitions() -> &'static Definitions {
    static ALL: OnceLock<Definitions> = OnceLock::new();
    ALL.get_or_init(|| Definitions::read(TYPES))
}

impl Definitions {
    fn read(text: &str) -> Self {
        let heads = text.lines().filter_map(|line| line.strip_prefix("= "));
        let by_name: BTreeMap<String, usize> =
            heads.enumerate().map(|(at, head)| (head.split(' ').next().unwrap_or_default().to_owned(), at)).collect();
        let mut all: Vec<Definition> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(head) = line.strip_prefix("= ") {
                let (head, alias) = head.split_once(" : ").map_or((head, None), |(head, alias)| (head, Some(alias)));
                let mut words = head.split(' ');
                all.push(Definition {
                    name: words.next().unwrap_or_default().to_owned(),
                    is_atomic: words.any(|word| word == "atomic"),
                    alias: alias.map(|alias| type_of(&by_name, alias.split(' ').next().unwrap_or_default())),
                    fields: BTreeMap::new(),
                });
            } else if let Some(last) = all.last_mut() {
                let (name, field) = field(&by_name, line);
                last.fields.insert(name, field);
            }
        }
        Self { all, by_name }
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Definition> {
        self.all.get(*self.by_name.get(name)?)
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, number: usize) -> &Definition {
        &self.all[number]
    }
}

impl Type {
    /// The named type that this is, if it is one and has fields.
    pub(crate) fn definition(&self) -> Option<&'static Definition> {
        match self {
            Self::Named(number) => Some(definitions().get(*number)),
            _ => None,
        }
    }

    /// What this is once names are looked up.
    pub(crate) fn resolved(&self) -> &Self {
        self.definition().and_then(|definition| definition.alias.as_ref()).unwrap_or(self)
    }
}

fn type_of(names: &BTreeMap<String, usize>, word: &str) -> Type {
    if let Some(item) = word.strip_prefix('[') {
        return Type::List(Box::new(type_of(names, item)));
    }
    if let Some(item) = word.strip_prefix('{') {
        return Type::Map(Box::new(type_of(names, item)));
    }
    match word {
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "time" => Type::Time,
        "int-or-string" => Type::IntOrString,
        "int32" => Type::Int32,
        "int64" | "int" => Type::Int64,
        "double" => Type::Double,
        "bool" => Type::Bool,
        "scalar" => Type::Scalar,
        "object" => Type::Object,
        name => names.get(name).map_or(Type::Any, |number| Type::Named(*number)),
    }
}

fn field(names: &BTreeMap<String, usize>, line: &str) -> (String, Field) {
    let mut words = line.split(' ');
    let (name, word) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let bare = name.trim_end_matches(['?', '+', '~', '&', '!']);
    let marks = &name[bare.len()..];
    let empty = match marks.trim_start_matches('!') {
        "?" => Empty::Dropped,
        "+" => Empty::Kept,
        "~" => Empty::Null,
        "&" => Empty::Structure,
        _ => Empty::AsGiven,
    };
    let mut field = Field {
        ty: type_of(names, word),
        is_required: marks.contains('!'),
        empty,
        relation: Relation::Atomic,
        is_atomic: false,
        patching: Patching::default(),
        default: None,
    };
    for mark in words {
        match mark.split_once('=') {
            Some(("map", keys)) => field.relation = Relation::Keys(keys.split(',').map(Into::into).collect()),
            Some(("patch", how)) => {
                let (how, key) = how.split_once(':').map_or((how, None), |(how, key)| (how, Some(key)));
                field.patching = Patching {
                    merges: how.split(',').any(|word| word == "merge"),
                    retains_keys: how.split(',').any(|word| word == "retainKeys"),
                    key: key.map(Into::into),
                };
            }
            Some(("default", value)) => field.default = serde_json::from_str(value).ok(),
            _ if mark == "set" => field.relation = Relation::Set,
            _ if mark == "atomic" => field.is_atomic = true,
            _ => {}
        }
    }
    (bare.to_owned(), field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let all = definitions();
        let mut fields = 0;
        for definition in &all.all {
            for (name, field) in &definition.fields {
                fields += 1;
                let mut ty = &field.ty;
                while let Type::List(inner) | Type::Map(inner) = ty {
                    ty = inner;
                }
                // Only these have fields of any type.
                let is_any_meant = definition.name.starts_with("apiextensions.v1.") || *ty != Type::Any;
                assert!(is_any_meant, "{}.{name} has a type that is not in the table", definition.name);
            }
        }
        assert!(fields > 1_500, "{fields}");
    }

    #[test]
    fn a_field_tells_how_its_list_is_merged() {
        let container = definitions().named("core.v1.Container").unwrap();
        let ports = &container.fields["ports"];
        assert_eq!(ports.relation, Relation::Keys(vec!["containerPort".into(), "protocol".into()]));
        assert_eq!(ports.patching.key.as_deref(), Some("containerPort"));
        assert_eq!(ports.empty, Empty::Dropped);
        assert!(container.fields["name"].is_required);
        assert!(definitions().named("meta.v1.LabelSelector").unwrap().is_atomic);
    }
}
