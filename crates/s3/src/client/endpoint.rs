//! From a configuration to what is dialled, and to hosts and paths.

use std::net::IpAddr;

use castle_seams::Target;
use hyper::Uri;

use crate::model::{ConfigError, S3Config};
use crate::sign::encode_path;

/// Where requests go.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Whether by TLS.
    pub is_secure: bool,
    /// What is dialled.
    pub target: Target,
    /// What the header `Host` says.
    pub host: String,
    /// What the path of the bucket is; nothing if the host names it.
    base: String,
}

impl Endpoint {
    /// The endpoint of the bucket.
    pub(crate) fn new(config: &S3Config) -> Result<Self, ConfigError> {
        let wrong = ConfigError::Endpoint;
        // Before anything else, so that nothing of it is ever repeated.
        if config.endpoint.contains('@') {
            return Err(wrong("holds a user name or a password: give them as credentials"));
        }
        let uri: Uri = config.endpoint.parse().map_err(|_| wrong("is no address: write https://host"))?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) => return Err(wrong("is neither https:// nor http://")),
            None => return Err(wrong("does not begin with https:// (or http:// for one without TLS)")),
        };
        if uri.query().is_some() || config.endpoint.contains('#') {
            return Err(wrong("goes on after its path: leave out what follows ? or #"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(wrong("names no host"))?.to_lowercase();
        // A port that is no number is read as no port, but leaves its colon.
        let after_host = uri.authority().map_or("", |authority| &authority.as_str()[host.len()..]);
        if uri.port_u16().is_none_or(|port| port == 0) && !after_host.is_empty() {
            return Err(wrong("has a port that is none"));
        }
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let path = uri.path().trim_end_matches('/');
        let (host, base) = if config.path_style {
            (host, format!("{path}/{}", encode_path(&config.bucket)))
        } else if can_be_part_of(&host, &config.bucket, is_secure) {
            (format!("{}.{host}", config.bucket), path.to_owned())
        } else {
            return Err(ConfigError::PathStyle(config.bucket.clone()));
        };
        let target = Target::new(&host, port);
        let host = if uri.port_u16().is_some_and(|port| port != if is_secure { 443 } else { 80 }) {
            format!("{host}:{port}")
        } else {
            host
        };
        Ok(Self { is_secure, target, host, base })
    }

    /// The path of an object.
    pub(crate) fn object(&self, key: &str) -> String {
        format!("{}/{}", self.base, encode_path(key))
    }

    /// The path of the bucket itself.
    pub(crate) fn bucket(&self) -> String {
        if self.base.is_empty() { "/".to_owned() } else { self.base.clone() }
    }
}

/// Certificates stand for one level of names below a host; addresses have no names below them.
fn can_be_part_of(host: &str, bucket: &str, is_secure: bool) -> bool {
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let is_name = bucket.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    !is_address && is_name && !(is_secure && bucket.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str, bucket: &str, path_style: bool) -> Result<Endpoint, ConfigError> {
        Endpoint::new(&S3Config {
            endpoint: text.to_owned(),
            region: "eu-central-1".to_owned(),
            bucket: bucket.to_owned(),
            prefix: String::new(),
            path_style,
            ca_pem: None,
        })
    }

    /// What is dialled, what `Host` says, and the path of the key `k`.
    fn check(text: &str, bucket: &str, path_style: bool, expected: &str) {
        let endpoint = endpoint(text, bucket, path_style).unwrap();
        let tls = if endpoint.is_secure { "tls" } else { "plain" };
        assert_eq!(
            format!("{tls} {} | {} | {} {}", endpoint.target, endpoint.host, endpoint.bucket(), endpoint.object("k k")),
            expected
        );
    }

    #[test]
    fn the_bucket_is_in_the_path_or_in_the_host() {
        check(
            "https://s3.eu-central-1.amazonaws.com",
            "castles",
            false,
            "tls castles.s3.eu-central-1.amazonaws.com:443 | castles.s3.eu-central-1.amazonaws.com | / /k%20k",
        );
        check(
            "https://S3.Example.com/",
            "castles",
            true,
            "tls s3.example.com:443 | s3.example.com | /castles /castles/k%20k",
        );
        check(
            "http://127.0.0.1:9000",
            "castles",
            true,
            "plain 127.0.0.1:9000 | 127.0.0.1:9000 | /castles /castles/k%20k",
        );
        check("http://[::1]:9000", "castles", true, "plain [::1]:9000 | [::1]:9000 | /castles /castles/k%20k");
        check(
            "https://a.example:443/storage/v1/s3/",
            "castles",
            true,
            "tls a.example:443 | a.example | /storage/v1/s3/castles /storage/v1/s3/castles/k%20k",
        );
        check(
            "http://a.example/x",
            "dotted.name",
            false,
            "plain dotted.name.a.example:80 | dotted.name.a.example | /x /x/k%20k",
        );
    }

    #[test]
    fn what_cannot_be_asked_is_told() {
        for text in [
            "",
            "s3.example.com",
            "/x",
            "ftp://s3.example.com",
            "https://",
            "https://h?x",
            "https://h:x",
            "https://h:0",
            "https://h/#a",
        ] {
            let error = endpoint(text, "castles", true).unwrap_err();
            assert!(matches!(error, ConfigError::Endpoint(_)), "{text}: {error}");
        }
        let told = endpoint("https://user:planted@s3.example.com", "castles", true).unwrap_err();
        assert!(!format!("{told} {told:?}").contains("planted"));
        for (text, bucket) in [
            ("https://h.example", "dotted.name"),
            ("http://127.0.0.1", "castles"),
            ("http://[::1]", "castles"),
            ("https://h.example", "Upper_case"),
        ] {
            assert!(matches!(endpoint(text, bucket, false), Err(ConfigError::PathStyle(_))), "{text} {bucket}");
        }
    }
}
