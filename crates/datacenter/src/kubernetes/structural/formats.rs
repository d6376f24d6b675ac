//! The formats of texts that are judged.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Whether a text has a format; one that nobody judges always has it.
pub(super) fn has(format: &str, text: &str) -> bool {
    match format {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "ip" => text.parse::<std::net::IpAddr>().is_ok(),
        "cidr" => {
            let parts = text.split_once('/');
            parts.is_some_and(|(ip, length)| {
                ip.parse::<std::net::IpAddr>().is_ok() && length.parse::<u8>().is_ok_and(|length| length <= 128)
            })
        }
        "byte" => STANDARD.decode(text).is_ok(),
        "date-time" => crate::kubernetes::kube::unstamp(text).is_some() && text.len() > 19,
        "date" => text.len() == 10 && crate::kubernetes::kube::unstamp(&format!("{text}T00:00:00Z")).is_some(),
        "uuid" => {
            let shape: Vec<usize> = text.split('-').map(str::len).collect();
            shape == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
        }
        "duration" => duration(text),
        "hostname" => {
            !text.is_empty()
                && text.len() <= 253
                && text.split('.').all(|label| {
                    !label.is_empty()
                        && label.len() <= 63
                        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                })
        }
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.')),
        "uri" => text.contains(':') && !text.contains(' '),
        "mac" => {
            text.split([':', '-']).count() == 6
                && text.split([':', '-']).all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
        }
        _ => true,
    }
}

/// `1h30m`, as Go reads it.
fn duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        if digits == 0 {
            return false;
        }
        rest = &rest[digits..];
        let Some(unit) = ["ns", "us", "µs", "ms", "h", "m", "s", "d", "w"].iter().find(|unit| rest.starts_with(**unit))
        else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_formats() {
        for (format, text, fits) in [
            ("ipv4", "1.2", false),
            ("cidr", "10.0.0.0/8", true),
            ("duration", "1h30m", true),
            ("duration", "5", false),
            ("date-time", "2026-01-01T00:00:00Z", true),
            ("uuid", "x", false),
            ("unheard", "x", true),
        ] {
            assert_eq!(has(format, text), fits, "{format} {text}");
        }
    }
}
