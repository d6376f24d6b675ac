//! Where the manifest of a component comes from.

use std::fmt;
use std::str::FromStr;

use castle_spec::values::ComponentVersion;

/// Where a manifest comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An address on the web, `https://` alone.
    Url(String),
    /// A file of a mirror, by its name there.
    Mirror(String),
    /// A file beside castle.yaml.
    File(String),
    /// Castle's own small manifest, for the embedded datacenter. Never in a lock file.
    StandIn,
}

/// What is pinned of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The version.
    pub version: ComponentVersion,
    /// Where its manifest comes from.
    pub source: Source,
    /// The SHA-256 of the manifest.
    pub sha256: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url),
            Self::Mirror(file) => write!(f, "mirror:{file}"),
            Self::File(file) => write!(f, "file:{file}"),
            Self::StandIn => f.write_str("castle's stand-in"),
        }
    }
}

impl FromStr for Source {
    type Err = &'static str;

    /// Reads what a lock file may say.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        if let Some(file) = text.strip_prefix("mirror:") {
            let is_name = is_plain(file) && !file.contains('/') && file != "..";
            return if is_name { Ok(Self::Mirror(file.to_owned())) } else { Err("names no file of a mirror") };
        }
        if let Some(file) = text.strip_prefix("file:") {
            return if is_plain(file) { Ok(Self::File(file.to_owned())) } else { Err("names no file") };
        }
        if !text.starts_with("https://") {
            return Err("is neither `https://…` nor `mirror:FILE` nor `file:PATH`");
        }
        if text.contains('@') {
            return Err("holds a user name or a password");
        }
        if is_plain(text) && !text.contains(' ') { Ok(Self::Url(text.to_owned())) } else { Err("is no address") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["https://h.example/a.yaml", "mirror:a.yaml", "file:manifests/a.yaml", "file:../a.yaml"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "http://h.example/a",
            "a.yaml",
            "mirror:",
            "mirror:../a",
            "mirror:..",
            "file:",
            "https://u:p@h/a",
            "https://h/a b",
            "castle's stand-in",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
