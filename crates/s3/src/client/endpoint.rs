//! From a configuration to the endpoint, with the bucket in its host or in its paths.

use std::mem;
use std::net::IpAddr;

use crate::model::{ConfigError, S3Config};
use crate::sign::encode_path;

/// Where the bucket is.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// What is asked. Has no base path: signatures are made over whole paths.
    pub http: castle_http::Endpoint,
    /// What the path of the bucket is; nothing if the host names it.
    base: String,
}

impl Endpoint {
    /// The endpoint of the bucket.
    pub(crate) fn new(config: &S3Config) -> Result<Self, ConfigError> {
        let parsed = castle_http::Endpoint::parse(&config.endpoint);
        let mut http = parsed.map_err(|error| ConfigError::Endpoint(error.why))?;
        let path = mem::take(&mut http.base);
        let bucket = &config.bucket;
        if config.path_style {
            let base = format!("{path}/{}", encode_path(bucket));
            return Ok(Self { http, base });
        }
        if !can_be_part_of(&http.target.host, bucket, http.is_secure) {
            return Err(ConfigError::PathStyle(bucket.clone()));
        }
        http.target.host = format!("{bucket}.{}", http.target.host);
        http.host = format!("{bucket}.{}", http.host);
        Ok(Self { http, base: path })
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
    let is_address = host.contains(':') || host.parse::<IpAddr>().is_ok();
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
        let castle_http::Endpoint { is_secure, target, host, base } = &endpoint.http;
        let tls = if *is_secure { "tls" } else { "plain" };
        assert_eq!(
            format!("{tls} {target} | {host} | {base}{} {}", endpoint.bucket(), endpoint.object("k k")),
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
