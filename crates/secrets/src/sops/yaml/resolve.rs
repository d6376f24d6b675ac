//! What a scalar means, as go-yaml 3 resolves it: MACs of values in clear depend on it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::sops::moment;
use crate::sops::tree::{Kind, Value};

/// The value of a scalar, or why it has none in a SOPS file. `tag` is its core tag, if it has one.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&str>) -> Result<Value, &'static str> {
    match tag {
        Some("binary") => {
            let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            let bytes = BASE64_STANDARD.decode(packed).map_err(|_| "a `!!binary` is not base64")?;
            Ok(Value::new(Kind::Text, bytes))
        }
        None if plain => implied(text),
        Some("str") | None => Ok(Value::text(text)),
        Some(wanted) => {
            let value = implied(text)?;
            match (wanted, value.kind) {
                ("int", Kind::Integer)
                | ("float", Kind::Float)
                | ("bool", Kind::Bool)
                | ("null", Kind::Null)
                | ("timestamp", Kind::Time) => Ok(value),
                ("float", Kind::Integer) => {
                    let number = value.clear().parse().map_err(|_| "a `!!float` is not a number")?;
                    Ok(Value::float(number))
                }
                ("int" | "float" | "bool" | "null" | "timestamp", _) => Err("a value does not fit its tag"),
                _ => Ok(Value::text(text)),
            }
        }
    }
}

/// What a plain scalar without a tag means.
fn implied(text: &str) -> Result<Value, &'static str> {
    let named = match text {
        "" | "~" | "null" | "Null" | "NULL" => Some(Value::null()),
        "true" | "True" | "TRUE" => Some(Value::bool(true)),
        "false" | "False" | "FALSE" => Some(Value::bool(false)),
        ".nan" | ".NaN" | ".NAN" => Some(Value::float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(Value::float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => Some(Value::float(f64::NEG_INFINITY)),
        _ => None,
    };
    if let Some(value) = named {
        return Ok(value);
    }
    match text.as_bytes().first() {
        Some(b'.') => Ok(decimal(text).map_or_else(|| Value::text(text), Value::float)),
        Some(b'0'..=b'9' | b'+' | b'-') => number(text),
        _ => Ok(Value::text(text)),
    }
}

fn number(text: &str) -> Result<Value, &'static str> {
    if let Some(moment) = moment::read(text) {
        return Ok(Value::new(Kind::Time, moment));
    }
    let bare = text.replace('_', "");
    if let Some(whole) = whole(&bare) {
        let number = i64::try_from(whole).map_err(|_| "a number is too large for sops: quote it to keep it as text")?;
        return Ok(Value::new(Kind::Integer, number.to_string()));
    }
    Ok(decimal(&bare).map_or_else(|| Value::text(text), Value::float))
}

/// A whole number between the least of 64 bits and the most without a sign; its base by its prefix.
fn whole(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    // Go takes neither a second sign nor anything but digits here.
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let number = i128::from_str_radix(digits, base).ok()?;
    let number = if negative { -number } else { number };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number).then_some(number)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, unless it is out of range.
fn decimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').map_or((mantissa, None), |(whole, part)| (whole, Some(part)));
    let shaped = digits(whole) && part.is_none_or(digits) && !(whole.is_empty() && part.is_none_or(str::is_empty));
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    if !shaped || exponent.is_some_and(|exponent| exponent.is_empty() || !digits(exponent)) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_go_yaml_takes_them_for() {
        for (text, kind, bytes) in [
            ("yes", Kind::Text, "yes"),
            ("off", Kind::Text, "off"),
            ("True", Kind::Bool, "True"),
            ("~", Kind::Null, ""),
            ("0777", Kind::Integer, "511"),
            ("0o17", Kind::Integer, "15"),
            ("0x1F", Kind::Integer, "31"),
            ("-0b101", Kind::Integer, "-5"),
            ("089", Kind::Float, "89"),
            ("12345_54321", Kind::Integer, "1234554321"),
            ("1_000.5", Kind::Float, "1000.5"),
            ("+12", Kind::Integer, "12"),
            ("-9223372036854775808", Kind::Integer, "-9223372036854775808"),
            ("18446744073709551616", Kind::Float, "18446744073709552000"),
            ("1e3", Kind::Float, "1000"),
            ("1.0", Kind::Float, "1"),
            ("-0.0", Kind::Float, "-0"),
            (".5", Kind::Float, "0.5"),
            (".inf", Kind::Float, "+Inf"),
            ("-.INF", Kind::Float, "-Inf"),
            (".nan", Kind::Float, "NaN"),
            ("1e999", Kind::Text, "1e999"),
            ("1:20", Kind::Text, "1:20"),
            ("--1", Kind::Text, "--1"),
            ("-", Kind::Text, "-"),
            (".", Kind::Text, "."),
            ("..", Kind::Text, ".."),
            ("1.2.3", Kind::Text, "1.2.3"),
            ("2024-1-2", Kind::Time, "2024-01-02T00:00:00Z"),
            ("192.168.1.0/24", Kind::Text, "192.168.1.0/24"),
        ] {
            let value = resolve(text, true, None).unwrap();
            assert_eq!((value.kind, value.clear()), (kind, bytes), "{text}");
        }
        assert!(resolve("18446744073709551615", true, None).is_err(), "sops has no place for it");
    }

    #[test]
    fn quotes_and_tags_decide() {
        assert_eq!(resolve("12", false, None).unwrap(), Value::text("12"));
        assert_eq!(resolve("12", true, Some("str")).unwrap(), Value::text("12"));
        assert_eq!(resolve("aGk=", false, Some("binary")).unwrap(), Value::text("hi"));
        assert_eq!(resolve("12", false, Some("int")).unwrap().kind, Kind::Integer);
        assert_eq!(resolve("12", true, Some("float")).unwrap(), Value::float(12.0));
        assert_eq!(resolve("12", true, Some("custom")).unwrap(), Value::text("12"));
        assert!(resolve("x", true, Some("int")).is_err());
    }
}
