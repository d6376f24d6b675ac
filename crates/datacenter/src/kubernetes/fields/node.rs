//! What a schema says of a value: of a built-in kind, of a definition, or nothing.

use serde_json::Value;

use crate::kubernetes::kinds::{Resource, Shape};
use crate::kubernetes::schema::{Field, Relation, Type, definitions};

/// What is known of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node<'a> {
    /// A value of a built-in type, and the field it is in.
    Built(&'a Type, Option<&'a Field>),
    /// A named built-in type.
    Named(usize),
    /// A value that a definition describes; the root has the metadata of all objects.
    Custom { schema: &'a Value, is_root: bool },
    /// Nothing: maps by field, lists as a whole.
    Loose,
}

/// How a value is owned.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// As a whole.
    Leaf,
    /// By its fields.
    Map,
    /// By its items.
    List(Relation),
}

impl<'a> Node<'a> {
    /// The node of whole objects of a resource.
    pub(crate) fn root(resource: &'a Resource) -> Self {
        match &resource.shape {
            Shape::Built(definition) => definitions().number(&definition.name).map_or(Self::Loose, Self::Named),
            Shape::Custom(custom) => Self::Custom { schema: &custom.schema, is_root: true },
        }
    }

    /// How a value is owned here.
    pub(crate) fn form(self, value: &Value) -> Form {
        let deduced = || if value.is_object() { Form::Map } else { Form::Leaf };
        match self {
            Self::Loose => deduced(),
            Self::Named(number) => {
                let definition = definitions().get(number);
                match &definition.alias {
                    Some(alias) => Self::Built(alias, None).form(value),
                    None if definition.is_atomic => Form::Leaf,
                    None => Form::Map,
                }
            }
            Self::Built(ty, field) => match ty {
                Type::Named(number) => {
                    if field.is_some_and(|field| field.is_atomic && field.ty == *ty) {
                        return Form::Leaf;
                    }
                    Self::Named(*number).form(value)
                }
                Type::Map(_) if field.is_some_and(|field| field.is_atomic) => Form::Leaf,
                Type::Map(_) => Form::Map,
                Type::List(_) => match field.map(|field| &field.relation) {
                    Some(relation) if *relation != Relation::Atomic => Form::List(relation.clone()),
                    _ => Form::Leaf,
                },
                Type::Any | Type::Object => deduced(),
                _ => Form::Leaf,
            },
            Self::Custom { schema, .. } => custom_form(schema, value, deduced),
        }
    }

    /// What is known of a field, and whether the schema names it.
    pub(crate) fn field(self, name: &str) -> (Node<'a>, bool) {
        match self {
            Self::Named(number) => {
                let definition = definitions().get(number);
                match definition.fields.get(name) {
                    Some(field) => (Self::Built(&field.ty, Some(field)), true),
                    None => match &definition.alias {
                        Some(alias) => Self::Built(alias, None).field(name),
                        None => (Self::Loose, false),
                    },
                }
            }
            Self::Built(Type::Named(number), _) => Self::Named(*number).field(name),
            Self::Built(Type::Map(item), _) => (Self::Built(item, None), false),
            Self::Built(..) | Self::Loose => (Self::Loose, false),
            Self::Custom { schema, is_root } => {
                if is_root {
                    match name {
                        "metadata" => {
                            return (definitions().number("meta.v1.ObjectMeta").map_or(Self::Loose, Self::Named), true);
                        }
                        "apiVersion" | "kind" => return (Self::Built(&Type::String, None), true),
                        _ => {}
                    }
                }
                if let Some(schema) = schema.get("properties").and_then(|all| all.get(name)) {
                    return (Self::Custom { schema, is_root: false }, true);
                }
                match schema.get("additionalProperties") {
                    Some(schema @ Value::Object(_)) => (Self::Custom { schema, is_root: false }, false),
                    _ => (Self::Loose, false),
                }
            }
        }
    }

    /// What is known of the items of a list.
    pub(crate) fn item(self) -> Node<'a> {
        match self {
            Self::Built(Type::List(item), _) => Self::Built(item, None),
            Self::Custom { schema, .. } => match schema.get("items") {
                Some(schema) => Self::Custom { schema, is_root: false },
                None => Self::Loose,
            },
            _ => Self::Loose,
        }
    }

    /// The value of a key of an item where the item does not say.
    pub(crate) fn default_of(self, key: &str) -> Option<&'a Value> {
        match self.field(key).0 {
            Self::Built(_, Some(field)) => field.default.as_ref(),
            Self::Custom { schema, .. } => schema.get("default"),
            _ => None,
        }
    }
}

fn custom_form(schema: &Value, value: &Value, deduced: impl Fn() -> Form) -> Form {
    let word = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Form::Leaf;
    }
    match word("type") {
        "object" if word("x-kubernetes-map-type") == "atomic" => Form::Leaf,
        "object" => Form::Map,
        "array" => match word("x-kubernetes-list-type") {
            "set" => Form::List(Relation::Set),
            "map" => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect();
                Form::List(Relation::Keys(keys))
            }
            _ => Form::Leaf,
        },
        "" if value.is_object() => deduced(),
        _ => Form::Leaf,
    }
}
