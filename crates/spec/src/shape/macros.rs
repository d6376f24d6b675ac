//! `section!`, `choice!` and `words!`: a type, its reader, its schema and how it is shown, from one definition.

/// Defines a mapping with fixed keys.
///
/// Each key is `name: Type;`, or `name: Type = "default as written in the file";`.
macro_rules! section {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $note:literal])* $field:ident: $type:ty $(= $default:literal)?;)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        pub struct $name { $($(#[doc = $note])* pub $field: $type,)* }

        impl $crate::shape::Shape for $name {
            fn decode(view: $crate::yaml::View<'_>, reader: &mut $crate::shape::Reader) -> Option<Self> {
                static KNOWN: std::sync::LazyLock<Vec<String>> =
                    std::sync::LazyLock::new(|| vec![$($crate::shape::key(stringify!($field)),)*]);
                let entries = reader.entries::<Self>(view, &KNOWN)?;
                let mut keys = KNOWN.iter();
                let mut next = || {
                    let key = keys.next().map(String::as_str).unwrap_or_default();
                    (key, entries.iter().find(|(name, _)| *name == key).map(|(_, view)| *view))
                };
                Some(Self { $($field: {
                    let (key, value) = next();
                    let default = $crate::shape::section!(@default $($default)?);
                    <$type as $crate::shape::Field>::read(reader, view.span(), key, value, default)
                },)* })
            }

            fn placeholder() -> Self {
                // Reading an empty mapping quietly gives every key its default or placeholder.
                let mut reader = $crate::shape::Reader::default();
                let nowhere = $crate::span::Span { start: 0, end: 0 };
                Self { $($field: <$type as $crate::shape::Field>::read(
                    &mut reader, nowhere, "", None, $crate::shape::section!(@default $($default)?),
                ),)* }
            }

            fn noun() -> String { "a mapping".to_owned() }

            fn example() -> String {
                let mut keys = Vec::new();
                $(if <$type as $crate::shape::Field>::is_required() && $crate::shape::section!(@default $($default)?).is_none() {
                    let example = <$type as $crate::shape::Field>::example();
                    keys.push(format!("{}: {example}", $crate::shape::key(stringify!($field))));
                })*
                format!("{{{}}}", keys.join(", "))
            }

            fn schema(definitions: &mut $crate::shape::Definitions) -> serde_json::Value {
                let name = stringify!($name);
                if !definitions.contains_key(name) {
                    definitions.insert(name.to_owned(), serde_json::Value::Null);
                    let mut properties = serde_json::Map::new();
                    let mut required: Vec<String> = Vec::new();
                    $({
                        let key = $crate::shape::key(stringify!($field));
                        let default = $crate::shape::section!(@default $($default)?);
                        if <$type as $crate::shape::Field>::is_required() && default.is_none() {
                            required.push(key.clone());
                        }
                        let schema = <$type as $crate::shape::Field>::schema(definitions);
                        properties.insert(key, $crate::shape::describe(schema, &[$($note),*], default));
                    })*
                    definitions.insert(name.to_owned(), serde_json::json!({
                        "description": $crate::shape::prose(&[$($doc),*]),
                        "type": "object",
                        "additionalProperties": false,
                        "required": required,
                        "properties": properties,
                    }));
                }
                serde_json::json!({"$ref": format!("#/$defs/{name}")})
            }

            fn resolved(&self) -> $crate::shape::Resolved {
                let mut entries = Vec::new();
                $(if let Some((value, origin)) = $crate::shape::Field::resolved(&self.$field) {
                    entries.push(($crate::shape::key(stringify!($field)), value, origin));
                })*
                $crate::shape::Resolved::Map(entries)
            }
        }
    };
    (@default) => { None::<&str> };
    (@default $default:literal) => { Some($default) };
}
pub(crate) use section;

/// Defines one of several sections, written `name: {...}`; those marked `bare` may be written as the name alone.
macro_rules! choice {
    ($(#[doc = $doc:literal])* $name:ident ($noun:literal) { $($(#[doc = $note:literal])* $variant:ident($type:ty) = $text:literal $($bare:ident)?;)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant, reason = "a castle has one of these")]
        pub enum $name { $($(#[doc = $note])* $variant($type),)* }

        impl $name {
            /// The word it is written as.
            #[must_use]
            pub fn word(&self) -> &'static str {
                match self { $(Self::$variant(_) => $text,)* }
            }
        }

        impl $crate::shape::Shape for $name {
            fn decode(view: $crate::yaml::View<'_>, reader: &mut $crate::shape::Reader) -> Option<Self> {
                let known = [$($text.to_owned(),)*];
                if let Some(text) = view.scalar() {
                    $(if text == $text && $crate::shape::choice!(@bare $($bare)?) {
                        return Some(Self::$variant(<$type as $crate::shape::Shape>::placeholder()));
                    })*
                    $crate::shape::wrong_word(reader, view, text, &known, $noun);
                    return None;
                }
                let entries = reader.entries::<Self>(view, &known)?;
                if view.map().is_some_and(|all| all.count() != entries.len()) {
                    return None; // an unknown name, which has been reported
                }
                match entries.as_slice() {
                    $([($text, value)] => {
                        let inner: $crate::span::Sourced<$type> = reader.read($text, *value);
                        (!inner.is_broken()).then(|| Self::$variant(inner.value))
                    })*
                    _ => {
                        $crate::shape::wrong_word(reader, view, "", &known, $noun);
                        None
                    }
                }
            }

            fn placeholder() -> Self {
                $crate::shape::choice!(@first $($variant($type)),*)
            }

            fn noun() -> String { $noun.to_owned() }

            fn example() -> String {
                let first = [$($text,)*][0];
                let inner = [$(<$type as $crate::shape::Shape>::example(),)*][0].clone();
                format!("{{{first}: {inner}}}")
            }

            fn schema(definitions: &mut $crate::shape::Definitions) -> serde_json::Value {
                let mut forms: Vec<serde_json::Value> = Vec::new();
                $({
                    if $crate::shape::choice!(@bare $($bare)?) {
                        forms.push(serde_json::json!({"const": $text, "description": $crate::shape::prose(&[$($note),*])}));
                    }
                    let schema = <$type as $crate::shape::Shape>::schema(definitions);
                    forms.push(serde_json::json!({
                        "type": "object",
                        "additionalProperties": false,
                        "required": [$text],
                        "properties": {$text: $crate::shape::describe(schema, &[$($note),*], None)},
                    }));
                })*
                serde_json::json!({"anyOf": forms})
            }

            fn resolved(&self) -> $crate::shape::Resolved {
                match self {
                    $(Self::$variant(inner) => {
                        let inner = $crate::shape::Shape::resolved(inner);
                        if matches!(&inner, $crate::shape::Resolved::Map(entries) if entries.is_empty()) {
                            return $crate::shape::Resolved::Scalar($text.into());
                        }
                        $crate::shape::Resolved::Map(vec![($text.to_owned(), inner, $crate::span::Origin::Default)])
                    })*
                }
            }
        }
    };
    (@bare) => { false };
    (@bare bare) => { true };
    (@first $variant:ident($type:ty) $(, $rest:ident($others:ty))*) => { Self::$variant(<$type as $crate::shape::Shape>::placeholder()) };
}
pub(crate) use choice;

/// Defines a value that is one of a few fixed words.
macro_rules! words {
    ($(#[doc = $doc:literal])* $name:ident ($noun:literal) { $($(#[doc = $note:literal])* $variant:ident = $text:literal,)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $note])* $variant,)* }

        impl $name {
            /// The word it is written as.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl $crate::shape::Scalar for $name {
            const NOUN: &'static str = $noun;
            const EXAMPLE: &'static str = [$($text),*][0];

            fn parse(text: &str) -> Result<Self, $crate::shape::Unfit> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!("one of {}", [$($text),*].join(", ")).into()),
                }
            }

            fn placeholder() -> Self { [$(Self::$variant),*][0] }

            fn schema() -> serde_json::Value { serde_json::json!({"enum": [$($text),*]}) }

            fn show(&self) -> serde_json::Value { self.word().into() }
        }
    };
}
pub(crate) use words;
