//! What a plain scalar means to the two libraries that read manifests on their way through Flux.

use castle_yaml::{Plain, resolve};
use serde_json::{Number, Value};

/// Whole numbers below this are the same as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The value of a plain scalar; `old` also takes `yes`, `on` and the like for truth values.
pub(super) fn value(text: &str, old: bool) -> Value {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" if old => return Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" if old => return Value::Bool(false),
        _ => {}
    }
    let number = match resolve(text) {
        Plain::Null => return Value::Null,
        Plain::Bool(truth) => return Value::Bool(truth),
        Plain::Number(number) => Some(whole(number)),
        // Go makes an imprecise number of one that is too long.
        Plain::NoNumber => text.replace('_', "").parse().ok().and_then(Number::from_f64),
        // Go makes a point in time of a day, and a text of that again.
        Plain::Time if !old && text.len() == 10 => return Value::String(format!("{text}T00:00:00Z")),
        Plain::Time | Plain::Merge | Plain::Text => None,
    };
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

/// Whole numbers are written without a fraction once they have been JSON.
fn whole(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            #[allow(clippy::cast_possible_truncation, reason = "whole, and within what both hold")]
            let whole = float as i64;
            whole.into()
        }
        _ => number,
    }
}

/// Whether a text that is written plain would be read as something else by either reader.
pub(super) fn misread(text: &str) -> bool {
    !value(text, true).is_string()
        || text == "="
        || matches!(resolve(text), Plain::Time | Plain::Merge)
        || is_base_60(text)
}

/// `190:20:30`: what old readers take for a number.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    unsigned.contains(':')
        && unsigned.starts_with(|first: char| first.is_ascii_digit())
        && unsigned.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'_' | b'.'))
}
