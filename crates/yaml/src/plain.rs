//! What a plain scalar means: the same words are text or not on the way in and need quotes or not on the way out.

use serde_json::Number;

/// The meaning of a plain scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A number that JSON does not have.
    NoNumber,
    /// Text, though Go would make a point in time of it.
    Time,
    /// `<<`.
    Merge,
    /// Text.
    Text,
}

/// Resolves a plain scalar as Go's library does.
#[must_use]
pub fn resolve(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "true" | "True" | "TRUE" => return Plain::Bool(true),
        "false" | "False" | "FALSE" => return Plain::Bool(false),
        "<<" => return Plain::Merge,
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return Plain::NoNumber,
        "-0" => return float("-0"),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            if is_time(text) {
                return Plain::Time;
            }
            let digits = text.replace('_', "");
            integer(&digits).unwrap_or_else(|| float(&digits))
        }
        _ => Plain::Text,
    }
}

/// Whether readers of YAML 1.1 would not see a text here, though Go does. It quotes these for their sake.
pub(super) fn misread_elsewhere(text: &str) -> bool {
    const OLD_BOOLS: [&str; 16] =
        ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF"];
    OLD_BOOLS.contains(&text) || is_base_60(text)
}

/// `190:20:30.15`: digits, then groups below 60.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (groups, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut groups = groups.split(':');
    let first = groups.next().unwrap_or_default();
    let mut below_60 = groups.map(|group| {
        let bytes = group.as_bytes();
        matches!(bytes, [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
    });
    first.starts_with(|first: char| first.is_ascii_digit())
        && digits(first)
        && digits(fraction)
        && below_60.next().is_some_and(|group| group && below_60.all(|group| group))
}

fn integer(text: &str) -> Option<Plain> {
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
    let Ok(magnitude) = u64::from_str_radix(digits, radix) else {
        // Go makes an imprecise number of it, silently, or a text if it has a prefix.
        return (radix == 10).then_some(Plain::NoNumber);
    };
    match (negative, magnitude) {
        (false, _) => Some(Plain::Number(magnitude.into())),
        (true, _) => match 0_i64.checked_sub_unsigned(magnitude) {
            Some(number) => Some(Plain::Number(number.into())),
            None => Some(Plain::NoNumber),
        },
    }
}

/// A decimal fraction or power; text if it is none.
fn float(text: &str) -> Plain {
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
        return Plain::Text;
    }
    // Beyond what a float holds it is a text, for Go as well.
    text.parse().ok().and_then(Number::from_f64).map_or(Plain::Text, Plain::Number)
}

/// A day, or a day and a time. Go writes these in quotes when they are text.
fn is_time(text: &str) -> bool {
    let Some((year, rest)) = text.split_once('-') else { return false };
    let Some((month, rest)) = rest.split_once('-') else { return false };
    let cut = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (day, rest) = rest.split_at(cut);
    let (Some(year), Some(month), Some(day)) =
        ((year.len() == 4).then(|| number(year, 9999)).flatten(), number(month, 12), number(day, 31))
    else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if month == 0 || day == 0 || day > days {
        return false;
    }
    match rest.as_bytes() {
        [] => true,
        [b'T' | b't', ..] => time_of_day(&rest[1..]).is_some_and(is_zone),
        [b' ', ..] => time_of_day(&rest[1..]).is_some_and(str::is_empty),
        _ => false,
    }
}

fn number(text: &str, most: u32) -> Option<u32> {
    let plausible = matches!(text.len(), 1 | 2 | 4) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| plausible && number <= most)
}

/// `15:4:5`, with or without a fraction: what follows it.
fn time_of_day(text: &str) -> Option<&str> {
    let (hour, rest) = text.split_once(':')?;
    let (minute, rest) = rest.split_once(':')?;
    let cut = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (second, rest) = rest.split_at(cut);
    number(hour, 23).filter(|_| hour.len() < 3)?;
    number(minute, 59).filter(|_| minute.len() < 3)?;
    number(second, 59).filter(|_| second.len() < 3)?;
    let Some(fraction) = rest.strip_prefix(['.', ',']) else { return Some(rest) };
    let cut = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    (cut > 0).then(|| &fraction[cut..])
}

/// Go takes one too many hours and minutes here.
fn is_zone(text: &str) -> bool {
    let offset = text.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':'));
    text == "Z"
        || offset.is_some_and(|(hours, minutes)| {
            hours.len() == 2 && minutes.len() == 2 && number(hours, 24).is_some() && number(minutes, 60).is_some()
        })
}
