//! The fields of Flux's own kinds, as the definitions of Flux 2.8 and 2.9 have them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One kind begins at the margin: `VERSION KIND`. Below it are the fields of its spec, deeper by one space a level; `!` behind one says that it must be
/// there, `*` that anything may be below it. Lists are told by what is in them.
const TABLE: &str = include_str!("flux-fields.txt");

/// A field that an object may have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) is_required: bool,
    /// Whether anything may be below it.
    pub(crate) is_open: bool,
    pub(crate) below: Vec<Field>,
}

static FIELDS: LazyLock<BTreeMap<(&'static str, &'static str), Vec<Field>>> = LazyLock::new(|| {
    let mut kinds = BTreeMap::new();
    let mut lines = TABLE.lines().peekable();
    while let Some(line) = lines.next() {
        let mut inner = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            inner.push(line);
        }
        if let Some(kind) = line.split_once(' ') {
            kinds.insert(kind, read(&inner, 1));
        }
    }
    kinds
});

/// The fields at one depth, each with those below it.
fn read(lines: &[&'static str], depth: usize) -> Vec<Field> {
    let depth_of = |line: &str| line.len() - line.trim_start().len();
    let mut fields: Vec<Field> = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let word = line.trim_start();
        let end =
            lines[at + 1..].iter().position(|line| depth_of(line) <= depth).map_or(lines.len(), |end| at + 1 + end);
        fields.push(Field {
            name: word.trim_end_matches(['!', '*']),
            is_required: word.contains('!'),
            is_open: word.ends_with('*'),
            below: read(&lines[at + 1..end], depth + 1),
        });
        at = end;
    }
    fields
}

/// The fields of the spec of a kind, if it is one of Flux's.
pub(crate) fn of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    // The table outlives everything; so do the keys that are looked for only in type.
    let found = FIELDS.iter().find(|((version, name), _)| *version == api_version && *name == kind);
    found.map(|(_, fields)| fields.as_slice())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Every field of a schema is in the table, as deep as it goes.
    fn covered(schema: &Value, fields: &[Field], place: &str) {
        let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
        for (key, below) in schema["properties"].as_object().into_iter().flatten() {
            let field = fields.iter().find(|field| field.name == key);
            let field = field.unwrap_or_else(|| panic!("{place}.{key} is not in the table"));
            let must = schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == key.as_str()));
            assert!(must || !field.is_required, "{place}.{key} need not be there");
            if !field.is_open {
                covered(below, &field.below, &format!("{place}.{key}"));
            }
        }
    }

    /// Goal: the table is what the real definitions say. Method: the mirror, where it is.
    #[test]
    fn the_table_is_that_of_the_definitions() {
        for file in ["flux-v2.8.8-install.yaml", "flux-v2.9.0-components.yaml"] {
            let Some(text) = castle_testbed::oracle_text(&format!("mirror/{file}")) else { return };
            let documents = crate::yaml::read(&text).unwrap();
            let definitions =
                documents.iter().map(|it| &it.value).filter(|it| it["kind"] == "CustomResourceDefinition");
            let mut count = 0;
            for definition in definitions {
                for version in definition["spec"]["versions"].as_array().unwrap() {
                    let text = |value: &Value| value.as_str().unwrap().to_owned();
                    let api = format!("{}/{}", text(&definition["spec"]["group"]), text(&version["name"]));
                    let kind = text(&definition["spec"]["names"]["kind"]);
                    let fields = of(&api, &kind).unwrap_or_else(|| panic!("{api} {kind} is not in the table"));
                    covered(&version["schema"]["openAPIV3Schema"]["properties"]["spec"], fields, &kind);
                    count += 1;
                }
            }
            assert!(count >= 11, "{file}: {count}");
        }
    }
}
