//! What is told about the bucket: where it is, how it is addressed, and who asks.

use std::fmt;

use castle_secrets::Secret;
use thiserror::Error;

pub(crate) mod xml;

/// Where the records are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Config {
    /// `https://host`, with a port and a path if it has them. `http://host` sends everything in clear: for a loopback or a
    /// network of one's own.
    pub endpoint: String,
    /// The region the bucket is in; what the signature is made for. Stores without regions take `us-east-1`.
    pub region: String,
    /// The name of the bucket. It must exist.
    pub bucket: String,
    /// What all keys begin with, such as `castles`; may be empty. Slashes at its ends mean nothing.
    pub prefix: String,
    /// Whether the bucket is named in the path (`https://host/bucket/key`) and not in the host
    /// (`https://bucket.host/key`).
    pub path_style: bool,
    /// Certificates in PEM of authorities that are trusted besides the public ones.
    pub ca_pem: Option<String>,
}

/// Who asks. Has no comparison, and its `Debug` shows no part of it.
#[derive(Clone)]
pub struct Credentials {
    /// The name of the key.
    pub access_key_id: String,
    /// The key.
    pub secret_access_key: Secret,
    /// What comes with keys that are valid for some hours only.
    pub session_token: Option<Secret>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The endpoint cannot be asked. Does not repeat it: people put passwords into it.
    #[error("the endpoint of the object store {0}")]
    Endpoint(&'static str),
    /// The name of the region is none.
    #[error("the region `{0}` is none: it is made of letters, digits and hyphens, such as eu-central-1")]
    Region(String),
    /// The name of the bucket is none.
    #[error("the bucket `{0}` cannot be: its name has 3 to 63 letters, digits, hyphens and dots")]
    Bucket(String),
    /// The bucket cannot be part of a host's name.
    #[error("the bucket `{0}` cannot be part of a host name here: set path_style")]
    PathStyle(String),
    /// The prefix cannot be part of a key.
    #[error("the prefix `{0}` cannot be: no `.` or `..` between slashes, no control characters")]
    Prefix(String),
    /// A credential is empty or was pasted badly. Does not repeat it.
    #[error("the {0} is empty or holds a space, a line break or a letter that no such key has")]
    Credential(&'static str),
    /// The certificates of additional authorities cannot be read.
    #[error("the certificates of the object store's authorities cannot be read: {0}")]
    Certificate(String),
}

impl S3Config {
    /// Checks what the endpoint has no part in.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_region = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.region.is_empty() || !self.region.chars().all(is_region) {
            return Err(ConfigError::Region(self.region.clone()));
        }
        // Some stores keep buckets whose names AWS no longer allows: upper case and underscores.
        let is_bucket = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_dots = self.bucket.chars().all(|c| c == '.');
        if !(3..=63).contains(&self.bucket.len()) || !self.bucket.chars().all(is_bucket) || is_dots {
            return Err(ConfigError::Bucket(self.bucket.clone()));
        }
        let is_step = |part: &str| matches!(part, "." | "..");
        if self.prefix.split('/').any(is_step) || self.prefix.chars().any(char::is_control) {
            return Err(ConfigError::Prefix(self.prefix.clone()));
        }
        Ok(())
    }
}

impl Credentials {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_sound = |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_sound(&self.access_key_id) {
            return Err(ConfigError::Credential("access key id"));
        }
        if !is_sound(self.secret_access_key.expose()) {
            return Err(ConfigError::Credential("secret access key"));
        }
        if self.session_token.as_ref().is_some_and(|token| !is_sound(token.expose())) {
            return Err(ConfigError::Credential("session token"));
        }
        Ok(())
    }

    /// The text without any of the credentials in it. A server may say whatever it was told.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let token = self.session_token.as_ref().map_or("", Secret::expose);
        // An empty one is found between any two letters.
        [token, self.secret_access_key.expose(), &self.access_key_id]
            .iter()
            .filter(|secret| !secret.is_empty())
            .fold(text.to_owned(), |text, secret| text.replace(*secret, "(redacted)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> S3Config {
        S3Config {
            endpoint: "https://s3.example.com".to_owned(),
            region: "eu-central-1".to_owned(),
            bucket: "castles".to_owned(),
            prefix: "team/a".to_owned(),
            path_style: true,
            ca_pem: None,
        }
    }

    fn credentials() -> Credentials {
        Credentials {
            access_key_id: "AKIDPLANTED".to_owned(),
            secret_access_key: Secret::from("planted-secret".to_owned()),
            session_token: Some(Secret::from("planted-token".to_owned())),
        }
    }

    #[test]
    fn a_sound_configuration_passes() {
        assert_eq!(config().check(), Ok(()));
        assert_eq!(credentials().check(), Ok(()));
        assert_eq!(S3Config { prefix: String::new(), ..config() }.check(), Ok(()));
    }

    #[test]
    fn names_that_cannot_be_are_told() {
        for region in ["", "eu central", "eu/1", "eü"] {
            assert!(matches!(S3Config { region: region.to_owned(), ..config() }.check(), Err(ConfigError::Region(_))));
        }
        for bucket in ["", "ab", "a/b", "a b", "...", &"x".repeat(64)] {
            assert!(matches!(S3Config { bucket: bucket.to_owned(), ..config() }.check(), Err(ConfigError::Bucket(_))));
        }
        for prefix in ["..", "a/../b", "a/./b", "a\nb"] {
            assert!(matches!(S3Config { prefix: prefix.to_owned(), ..config() }.check(), Err(ConfigError::Prefix(_))));
        }
    }

    #[test]
    fn badly_pasted_credentials_are_told_but_not_shown() {
        let bad = [
            Credentials { access_key_id: "AKID PLANTED".to_owned(), ..credentials() },
            Credentials { secret_access_key: Secret::from("planted-secret\n".to_owned()), ..credentials() },
            Credentials { session_token: Some(Secret::from(String::new())), ..credentials() },
        ];
        for credentials in bad {
            let error = credentials.check().unwrap_err();
            assert!(matches!(error, ConfigError::Credential(_)));
            let told = format!("{error} {error:?} {credentials:?}");
            assert!(!told.to_lowercase().contains("planted"), "{told}");
        }
    }

    #[test]
    fn scrubbing_leaves_no_credential() {
        let scrubbed = credentials().scrub("id AKIDPLANTED, key planted-secret, token planted-token.");
        assert_eq!(scrubbed, "id (redacted), key (redacted), token (redacted).");
    }
}
