//! AWS Signature Version 4: a keyed hash over exactly what is sent.
//!
//! Nothing here looks at a clock or a socket: the same parts, credentials, region and time give the same signature.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::model::Credentials;

#[cfg(test)]
mod tests;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";

/// A request, as far as it is signed.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// `GET`, `PUT`, `DELETE`.
    pub method: &'a str,
    /// What the header `Host` says.
    pub host: &'a str,
    /// The path as it is sent; see [`encode_path`].
    pub path: &'a str,
    /// What follows the question mark as it is sent, or nothing; see [`encode_query`].
    pub query: &'a str,
    /// Further headers to sign: names in lower case, in any order, none twice.
    pub headers: &'a [(&'a str, &'a str)],
    /// The hash of the body; see [`sha256_hex`].
    pub body_sha256: &'a str,
}

/// When a request is signed: the year to the second, in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(String);

impl Stamp {
    /// The time so long after the beginning of 1970.
    #[must_use]
    pub fn since_epoch(elapsed: Duration) -> Self {
        let [year, month, day, hour, minute, second] = castle_seams::calendar(elapsed.as_secs());
        Self(format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"))
    }

    /// Reads `20260102T030405Z`. Whether there is such a day is not asked.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |at: &usize| text.as_bytes()[*at].is_ascii_digit();
        let is_stamp = text.len() == 16
            && text.as_bytes()[8] == b'T'
            && text.as_bytes()[15] == b'Z'
            && (0..8).chain(9..15).all(|at| is_digit(&at));
        is_stamp.then(|| Self(text.to_owned()))
    }

    fn day(&self) -> &str {
        &self.0[..8]
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a signed request carries besides what it had. Has no `Debug`: it is all secret, or nearly.
pub struct Signed {
    /// Headers to add, names in lower case, `authorization` the last.
    pub headers: Vec<(&'static str, Zeroizing<String>)>,
    /// The signature inside of `authorization`.
    pub signature: String,
}

impl Signed {
    /// What the header `Authorization` says.
    #[must_use]
    pub fn authorization(&self) -> &str {
        self.headers.last().map_or("", |(_, value)| value)
    }
}

/// Signs a request to an object store in `region`.
#[must_use]
pub fn sign(parts: &Parts<'_>, credentials: &Credentials, region: &str, stamp: &Stamp) -> Signed {
    let mut headers = vec![("x-amz-content-sha256", Zeroizing::new(parts.body_sha256.to_owned()))];
    headers.push(("x-amz-date", Zeroizing::new(stamp.to_string())));
    headers.extend(
        credentials
            .session_token
            .iter()
            .map(|token| ("x-amz-security-token", Zeroizing::new(token.expose().to_owned()))),
    );
    let mut signed: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    signed.extend(parts.headers);
    let parts = Parts { headers: &signed, ..*parts };
    let (authorization, signature) = authorize(&parts, credentials, region, SERVICE, stamp);
    headers.push(("authorization", Zeroizing::new(authorization)));
    Signed { headers, signature }
}

/// The header `Authorization` for exactly these parts, and the signature in it.
fn authorize(
    parts: &Parts<'_>,
    credentials: &Credentials,
    region: &str,
    service: &str,
    stamp: &Stamp,
) -> (String, String) {
    let (canonical, names) = canonical(parts);
    let scope = format!("{}/{region}/{service}/aws4_request", stamp.day());
    let to_sign = format!("{ALGORITHM}\n{stamp}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));

    let secret = Zeroizing::new(format!("AWS4{}", credentials.secret_access_key.expose()));
    let mut key = keyed(secret.as_bytes(), stamp.day());
    for part in [region, service, "aws4_request"] {
        key = keyed(key.as_slice(), part);
    }
    let signature = hex(keyed(key.as_slice(), &to_sign).as_slice());
    let credential = format!("{}/{scope}", credentials.access_key_id);
    let authorization = format!("{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}");
    (authorization, signature)
}

/// The request in the one form that both sides can make of it, and the names of its signed headers.
fn canonical(parts: &Parts<'_>) -> (Zeroizing<String>, String) {
    let mut headers = parts.headers.to_vec();
    headers.push(("host", parts.host));
    headers.sort_unstable();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut text = Zeroizing::new(format!("{}\n{}\n{}\n", parts.method, parts.path, parts.query));
    for (name, value) in headers {
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        text.push_str(&format!("{name}:{}\n", words.join(" ")));
    }
    text.push_str(&format!("\n{names}\n{}", parts.body_sha256));
    (text, names)
}

fn keyed(key: &[u8], text: &str) -> Zeroizing<[u8; 32]> {
    let mut mac =
        <Hmac<Sha256> as Mac>::new_from_slice(key).unwrap_or_else(|_| unreachable!("a key of any length will do"));
    mac.update(text.as_bytes());
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// The path of a key: each byte but letters, digits, `-`, `.`, `_`, `~` and `/` is written as `%XX`.
#[must_use]
pub fn encode_path(key: &str) -> String {
    encode(key, true)
}

/// What follows the question mark: pairs in the order in which they are signed, everything but letters, digits, `-`, `.`,
/// `_` and `~` written as `%XX`.
#[must_use]
pub fn encode_query(pairs: &[(&str, &str)]) -> String {
    let mut pairs: Vec<_> = pairs.iter().map(|(name, value)| (encode(name, false), encode(value, false))).collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

fn encode(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            b'/' if keep_slash => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The SHA-256 of some bytes as hexadecimal digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
