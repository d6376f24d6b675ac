//! Variables in objects, strictly: `${name}` needs a value, `${name:=default}` and `${name:-default}` do not.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::kubernetes::body;

/// An object with its variables replaced; or which of them has no value.
pub(super) fn object(object: &Value, variables: &BTreeMap<String, String>) -> Result<Value, String> {
    match object {
        Value::Object(members) => {
            let mut new = Map::new();
            for (key, member) in members {
                new.insert(text(key, variables)?, self::object(member, variables)?);
            }
            Ok(Value::Object(new))
        }
        Value::Array(items) => items.iter().map(|item| self::object(item, variables)).collect(),
        Value::String(own) if own.contains("${") => {
            let new = text(own, variables)?;
            // The text is read again as YAML, in which what looks like a number is one.
            let read = body::yaml(format!("{new}\n").as_bytes()).map(|read| read.value);
            Ok(match read {
                Ok(read @ (Value::Number(_) | Value::Bool(_))) if !own.contains('\n') => read,
                _ => Value::String(new),
            })
        }
        other => Ok(other.clone()),
    }
}

fn text(text: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, tail) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &tail[2..];
            continue;
        }
        out.push_str(before);
        let (inner, after) =
            tail[2..].split_once('}').ok_or_else(|| "envsubst error: missing closing brace".to_owned())?;
        let end = inner.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(inner.len());
        let (name, change) = inner.split_at(end);
        let known = variables.get(name).filter(|known| !known.is_empty() || change.is_empty());
        match (known, change) {
            (Some(known), "") => out.push_str(known),
            (None, "") => return Err(format!("envsubst error: variable not set (strict mode): {name:?}")),
            (known, change) => {
                let default = [":=", ":-", "=", "-"].iter().find_map(|word| change.strip_prefix(word));
                let default = default.ok_or_else(|| format!("envsubst error: ${{{inner}}} is not understood here"))?;
                out.push_str(known.map_or(default, String::as_str));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_replaced_or_missed() {
        let variables = BTreeMap::from([("a".to_owned(), "x".to_owned()), ("n".to_owned(), "3".to_owned())]);
        let own = json!({ "${a}": ["${a}-${b:=c}", "${n}", "$${a}", "v${n}"], "z": 1 });
        assert_eq!(object(&own, &variables).unwrap(), json!({ "x": ["x-c", 3, "${a}", "v3"], "z": 1 }));
        let missing = object(&json!({ "k": "${none}" }), &variables).unwrap_err();
        assert!(missing.contains("strict mode") && missing.contains("none"), "{missing}");
    }
}
