//! Where things are: endpoints, fingerprints, regions.

use std::fmt;

use serde_json::{Value, json};

use super::ids::text;
use crate::shape::{Scalar, Unfit};

text! {
    /// The address of an HTTPS service, without a path.
    Endpoint, "an https address", "https://pve.lan:8006",
    {"type": "string", "pattern": "^https://[^/\\s@]+$"},
    |text| endpoint(text)
}

text! {
    /// The SHA-256 of a server's certificate, as Proxmox shows it.
    Fingerprint, "a SHA-256 fingerprint", "AA:BB:…, 32 pairs",
    {"type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31}$"},
    |text| {
        let pairs: Vec<&str> = text.split(':').collect();
        let hex = |pair: &&str| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !pairs.iter().all(hex) {
            Err("pairs of hexadecimal digits with `:` between".into())
        } else if pairs.len() == 32 {
            Ok(text.to_uppercase())
        } else {
            Err(format!("{} pairs; a SHA-256 has 32", pairs.len()).into())
        }
    }
}

text! {
    /// Where the project's Infisical is: `eu`, `us`, or the address of one's own.
    Region, "`eu`, `us` or an https address", "eu",
    {"type": "string", "pattern": "^(eu|us|https://[^/\\s@]+)$"},
    |text| match text {
        "eu" | "us" => Ok(text.to_owned()),
        _ => endpoint(text),
    }
}

text! {
    /// The address of a web service, without a path.
    WebAddress, "an http or https address", "https://s3.example.net",
    {"type": "string", "pattern": "^https?://[^/\\s@]+$"},
    |text| match text.strip_prefix("http://") {
        Some(rest) => host_and_port(rest).map(|rest| format!("http://{rest}")),
        None => endpoint(text),
    }
}

text! {
    /// An age public key.
    AgeRecipient, "an age public key", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
    {"type": "string", "pattern": "^age1[02-9ac-hj-np-z]{58}$"},
    |text| {
        let key = text.strip_prefix("age1").ok_or("it must begin with `age1`")?;
        let bech32 = |byte: u8| byte.is_ascii_lowercase() && !b"bio".contains(&byte) || byte.is_ascii_digit() && byte != b'1';
        if key.len() == 58 && key.bytes().all(bech32) {
            Ok(text.to_owned())
        } else {
            Err("`age1` and 58 characters, as `age-keygen` prints it".into())
        }
    }
}

text! {
    /// A SHA-256, in hexadecimal.
    Sha256, "a SHA-256", "2a63b6e7dab90ec9d44f213339b9545bd39c6499b22a14cf575c1ca4b6e39ff8",
    {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"},
    |text| {
        let fits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if fits { Ok(text.to_lowercase()) } else { Err("64 hexadecimal digits, as `sha256sum` prints them".into()) }
    }
}

fn endpoint(text: &str) -> Result<String, Unfit> {
    let Some(rest) = text.strip_prefix("https://") else {
        return Err("it must begin with `https://`".into());
    };
    host_and_port(rest).map(|rest| format!("https://{rest}"))
}

fn host_and_port(rest: &str) -> Result<&str, Unfit> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err("no user or password belongs here".into());
    }
    if rest.contains(['/', '?', '#']) {
        return Err("only the host and port, without a path".into());
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err("the port must be from 1 to 65535".into());
    }
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let fits = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)),
    };
    if fits { Ok(rest) } else { Err("the host is not a name or address".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::read_all;

    #[test]
    fn endpoints_are_a_host_and_a_port() {
        let texts = [
            "https://pve.lan:8006",
            "https://pve.lan/",
            "https://192.168.1.5",
            "https://[fd00::5]:8006",
            "http://pve.lan",
            "pve.lan",
            "https://pve.lan/api2",
            "https://root@pve.lan",
            "https://pve.lan:0",
            "https://:8006",
            "https://fd00::5",
        ];
        insta::assert_snapshot!(read_all::<Endpoint>(&texts), @r#"
        "https://pve.lan:8006" is "https://pve.lan:8006"
        "https://pve.lan/" is "https://pve.lan"
        "https://192.168.1.5" is "https://192.168.1.5"
        "https://[fd00::5]:8006" is "https://[fd00::5]:8006"
        "http://pve.lan": it must begin with `https://`
        "pve.lan": it must begin with `https://`
        "https://pve.lan/api2": only the host and port, without a path
        "https://root@pve.lan": no user or password belongs here
        "https://pve.lan:0": the port must be from 1 to 65535
        "https://:8006": the host is not a name or address
        "https://fd00::5": the host is not a name or address
        "#);
    }

    #[test]
    fn fingerprints_have_32_pairs() {
        let whole = ["ab"; 32].join(":");
        insta::assert_snapshot!(read_all::<Fingerprint>(&[&whole, "AA:BB", "xx"]), @r#"
        "ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab:ab" is "AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB"
        "AA:BB": 2 pairs; a SHA-256 has 32
        "xx": pairs of hexadecimal digits with `:` between
        "#);
    }
}
