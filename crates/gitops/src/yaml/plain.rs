//! What a plain scalar means.

use serde_json::{Number, Value};

/// The value of a plain scalar; `old` also takes `yes`, `on` and the like for truth values.
pub(super) fn value(text: &str, old: bool) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" if old => return Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" if old => return Value::Bool(false),
        _ => {}
    }
    // Go makes a point in time of a day, and a text of that again.
    if !old && text.len() == 10 && is_time(text) {
        return Value::String(format!("{text}T00:00:00Z"));
    }
    let digits = text.replace('_', "");
    integer(&digits)
        .or_else(|| float(&digits))
        .filter(|_| text.starts_with(['.', '+', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']))
        .map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn integer(text: &str) -> Option<Number> {
    let (negative, unsigned) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| char::from(digit).is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative { 0_i64.checked_sub_unsigned(magnitude).map(Number::from) } else { Some(magnitude.into()) }
}

/// A decimal fraction or power.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = digits(whole)
        && digits(fraction)
        && (!whole.is_empty() || !fraction.is_empty())
        && exponent.is_none_or(|exponent| {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent)
        });
    if !is_number {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    // Whole numbers are written without a fraction once they have been JSON.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[allow(clippy::cast_possible_truncation, reason = "whole, and within what both hold")]
        return Some((number as i64).into());
    }
    Number::from_f64(number)
}

/// Whether a text that is written plain would be read as something else by either reader.
pub(super) fn misread(text: &str) -> bool {
    !value(text, true).is_string() || text == "<<" || text == "=" || is_time(text) || is_base_60(text)
}

/// A day, or a day and a time.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let dash = |at: usize| bytes.get(at) == Some(&b'-');
    (0..4).all(digit) && dash(4) && digit(5) && (dash(6) || (digit(6) && dash(7)))
}

/// `190:20:30`: what old readers take for a number.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    unsigned.contains(':')
        && unsigned.starts_with(|first: char| first.is_ascii_digit())
        && unsigned.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'_' | b'.'))
}
