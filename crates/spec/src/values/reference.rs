//! Where a secret is kept. The file never holds a secret itself.

use std::fmt;

use serde_json::{Value, json};

use crate::problem::{Code, Problem};
use crate::shape::{Definitions, Reader, Resolved, Shape};
use crate::span::Origin;
use crate::yaml::View;

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretReference {
    /// A key of a SOPS file: `sops:FILE#path.to.key`, the file relative to castle.yaml; or all of it: `sops:FILE#.`.
    Sops {
        /// The file.
        file: String,
        /// The keys from the top, with `.` between; empty for all of the file.
        path: String,
    },
    /// An entry of the castle's vault: `vault:NAME`.
    Vault(String),
    /// An environment variable of castle itself: `env:NAME`.
    Env(String),
    /// A whole file, relative to castle.yaml: `file:PATH`.
    File(String),
}

impl SecretReference {
    const FORMS: &'static str = "sops:FILE#path, vault:NAME, env:NAME or file:PATH";

    fn parse(text: &str) -> Result<Self, &'static str> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err("");
        };
        let name = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        match scheme {
            "sops" => match rest.split_once('#') {
                Some((file, path))
                    if !file.is_empty() && !path.is_empty() && path.split('.').all(|key| !key.is_empty()) =>
                {
                    Ok(Self::Sops { file: file.to_owned(), path: path.to_owned() })
                }
                Some((file, ".")) if !file.is_empty() => Ok(Self::Sops { file: file.to_owned(), path: String::new() }),
                _ => Err("`sops:` needs a file, `#`, and the path of the key in it"),
            },
            "vault" if !rest.is_empty() && name(rest) => Ok(Self::Vault(rest.to_owned())),
            "vault" => Err("`vault:` needs the name of an entry: letters, digits, `_`, `-` and `.`"),
            "env" if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                Ok(Self::Env(rest.to_owned()))
            }
            "env" => Err("`env:` needs the name of a variable: letters, digits and `_`"),
            "file" if !rest.is_empty() => Ok(Self::File(rest.to_owned())),
            "file" => Err("`file:` needs a path"),
            _ => Err(""),
        }
    }

    /// Whether `text` is written as a reference, right or wrong, rather than as a secret.
    pub(crate) fn is_meant(text: &str) -> bool {
        Self::parse(text).map_or_else(|reason| !reason.is_empty(), |_| true)
    }
}

impl fmt::Display for SecretReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sops { file, path } if path.is_empty() => write!(f, "sops:{file}#."),
            Self::Sops { file, path } => write!(f, "sops:{file}#{path}"),
            Self::Vault(name) => write!(f, "vault:{name}"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl Shape for SecretReference {
    fn decode(view: View<'_>, reader: &mut Reader) -> Option<Self> {
        let Some(text) = view.scalar() else {
            reader.masks.extend(view.leaves().map(View::span));
            reader.wrong_type::<Self>(view);
            return None;
        };
        let reason = match Self::parse(text) {
            Ok(reference) => return Some(reference),
            Err(reason) => reason,
        };
        let path = reader.path();
        let problem = if reason.is_empty() {
            reader.masks.push(view.span());
            Problem::new(Code::SecretValue, format!("`{path}` holds a value; it must say where the secret is kept"))
                .at(Origin::File(view.span()), "not a reference, and not shown here")
                .hint(format!(
                    "write {}; if this was a real secret, it has been on disk in clear: replace it at its source",
                    Self::FORMS
                ))
        } else {
            Problem::new(Code::BadValue, format!("`{path}` is not a complete reference to a secret"))
                .at(Origin::File(view.span()), reason)
                .hint(format!("write {}", Self::FORMS))
        };
        reader.problems.report(problem);
        None
    }

    fn placeholder() -> Self {
        Self::Env(String::new())
    }

    fn noun() -> String {
        "a reference to a secret".to_owned()
    }

    fn example() -> String {
        "sops:secrets.enc.yaml#proxmox.token".to_owned()
    }

    fn schema(definitions: &mut Definitions) -> Value {
        definitions.entry("SecretReference").or_insert_with(|| {
            json!({
                "description": format!("Where a secret is kept: {}. Never the secret itself.", Self::FORMS),
                "type": "string",
                "pattern": "^(sops:[^#]+#(\\.|[^#.]+(\\.[^#.]+)*)|vault:[-A-Za-z0-9_.]+|env:[A-Za-z0-9_]+|file:.+)$",
            })
        });
        json!({"$ref": "#/$defs/SecretReference"})
    }

    fn resolved(&self) -> Resolved {
        Resolved::Scalar(self.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_from_values() {
        for text in [
            "sops:secrets.enc.yaml#proxmox.token",
            "sops:secrets.enc.yaml#.",
            "vault:GITHUB_TOKEN",
            "env:TOKEN",
            "file:/run/token",
        ] {
            assert_eq!(SecretReference::parse(text).unwrap().to_string(), text);
        }
        for incomplete in [
            "sops:secrets.enc.yaml",
            "sops:#a",
            "sops:f#",
            "sops:f#a..b",
            "vault:",
            "vault:a/b",
            "env:",
            "env:A-B",
            "file:",
        ] {
            assert!(!SecretReference::parse(incomplete).unwrap_err().is_empty(), "{incomplete}");
        }
        for value in ["hunter2", "root@pam!castle=0d1f", "https://x", "ghp:x"] {
            assert!(SecretReference::parse(value).unwrap_err().is_empty(), "{value}");
        }
    }
}
