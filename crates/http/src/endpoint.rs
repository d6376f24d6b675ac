//! From the address that people write to what is dialled.

use castle_seams::Target;
use hyper::Uri;
use thiserror::Error;

/// Where requests go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Whether by TLS.
    pub is_secure: bool,
    /// What is dialled, and whose name the certificate must have.
    pub target: Target,
    /// What the header `Host` says: with brackets around an IPv6 address, and with the port unless it is the usual one.
    pub host: String,
    /// What all paths begin with: empty, or begins with a slash and ends without one.
    pub base: String,
}

/// What is wrong with an address. Does not repeat it: people put passwords into it.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the address {why}")]
pub struct EndpointError {
    /// What is wrong, as the rest of a sentence that begins with what the address is called.
    pub why: &'static str,
}

impl Endpoint {
    /// Reads `https://host`, with a port and a path if it has them, or `http://host` for one without TLS.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] if it is no such address, or holds more than that.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let wrong = |why| EndpointError { why };
        // Before anything else, so that nothing of it is ever repeated.
        if text.contains('@') {
            return Err(wrong("holds a user name or a password: give them as credentials"));
        }
        let uri: Uri = text.parse().map_err(|_| wrong("is no address: write https://host"))?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) => return Err(wrong("is neither https:// nor http://")),
            None => return Err(wrong("does not begin with https:// (or http:// for one without TLS)")),
        };
        if uri.query().is_some() || text.contains('#') {
            return Err(wrong("goes on after its path: leave out what follows ? or #"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(wrong("names no host"))?.to_lowercase();
        // A port that is no number is read as no port, but leaves its colon.
        let after_host = uri.authority().map_or("", |authority| &authority.as_str()[host.len()..]);
        if uri.port_u16().is_none_or(|port| port == 0) && !after_host.is_empty() {
            return Err(wrong("has a port that is none"));
        }
        let base = uri.path().trim_end_matches('/').to_owned();
        let usual = if is_secure { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(usual);
        let target = Target::new(&host, port);
        let host = if port == usual { host } else { format!("{host}:{port}") };
        Ok(Self { is_secure, target, host, base })
    }

    /// The path (and query, if there is one) as it is sent.
    pub(crate) fn path(&self, path_and_query: &str) -> String {
        let is_path = path_and_query.split('?').next().is_some_and(|path| !path.is_empty());
        let needs_slash = !path_and_query.starts_with('/') && (is_path || self.base.is_empty());
        format!("{}{}{path_and_query}", self.base, if needs_slash { "/" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether by TLS, what is dialled, what `Host` says, and the path of `/x`.
    fn check(text: &str, expected: &str) {
        let endpoint = Endpoint::parse(text).unwrap();
        let tls = if endpoint.is_secure { "tls" } else { "plain" };
        assert_eq!(format!("{tls} {} | {} | {}", endpoint.target, endpoint.host, endpoint.path("/x")), expected);
    }

    #[test]
    fn addresses_are_read() {
        check("https://S3.Example.com/", "tls s3.example.com:443 | s3.example.com | /x");
        check("https://pve.example:8006/api2/json/", "tls pve.example:8006 | pve.example:8006 | /api2/json/x");
        check("http://127.0.0.1:9000", "plain 127.0.0.1:9000 | 127.0.0.1:9000 | /x");
        check("https://a.example:443", "tls a.example:443 | a.example | /x");
        check("https://a.example:80", "tls a.example:80 | a.example:80 | /x");
    }

    #[test]
    fn an_ipv6_address_keeps_its_brackets_in_the_host_header() {
        check("http://[::1]:9000", "plain [::1]:9000 | [::1]:9000 | /x");
        check("https://[2001:DB8::1]", "tls [2001:db8::1]:443 | [2001:db8::1] | /x");
        assert_eq!(Endpoint::parse("https://[::1]:8006").unwrap().target.host, "::1");
    }

    #[test]
    fn a_path_always_begins_with_a_slash() {
        let bare = Endpoint::parse("https://h").unwrap();
        assert_eq!((bare.path(""), bare.path("?a=b")), ("/".to_owned(), "/?a=b".to_owned()));
        let deep = Endpoint::parse("https://h/base").unwrap();
        assert_eq!((deep.path(""), deep.path("?a=b")), ("/base".to_owned(), "/base?a=b".to_owned()));
        assert_eq!((bare.path("x"), deep.path("x?a=b")), ("/x".to_owned(), "/base/x?a=b".to_owned()));
    }

    #[test]
    fn what_is_no_address_is_told_and_not_repeated() {
        for text in
            ["", "h.example", "/x", "ftp://h", "https://", "https://h?x", "https://h:x", "https://h:0", "https://h/#a"]
        {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        let told = Endpoint::parse("https://user:planted@h.example").unwrap_err();
        assert!(!format!("{told} {told:?}").contains("planted"));
    }
}
