//! Moments as SOPS files have them: read as Go reads them, written as RFC 3339.

use std::time::{SystemTime, UNIX_EPOCH};

use castle_seams::calendar;

/// Now, in UTC and to the second.
pub(super) fn stamp(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let [year, month, day, hour, minute, second] = calendar(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `lastmodified` as it takes part in the MAC: to the second, and `Z` where the offset is nought.
pub(super) fn modified(text: &str) -> Option<String> {
    let moment = read(text)?;
    let whole = moment.find('.').map_or(moment.as_str(), |dot| &moment[..dot]);
    let zone = if moment.ends_with('Z') { "Z" } else { &moment[moment.len() - 6..] };
    (text.len() > 10).then(|| format!("{}{zone}", whole.trim_end_matches(zone)))
}

/// A plain scalar that YAML takes for a moment, as RFC 3339 with what fraction of a second it has.
pub(super) fn read(text: &str) -> Option<String> {
    let mut rest = text;
    let year = number(&mut rest, 4, 4)?;
    let month = after(&mut rest, "-", 1, 2)?;
    let day = after(&mut rest, "-", 1, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    if rest.is_empty() {
        return Some(date + "T00:00:00Z");
    }
    let spaced = rest.starts_with(' ');
    rest = rest.strip_prefix(['T', 't', ' '])?;
    let hour = number(&mut rest, 1, 2)?;
    let minute = after(&mut rest, ":", 1, 2)?;
    let second = after(&mut rest, ":", 1, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = fraction(&mut rest)?;
    let zone = if spaced { rest.is_empty().then(|| "Z".to_owned())? } else { zone(rest)? };
    Some(format!("{date}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"))
}

fn number(rest: &mut &str, least: usize, most: usize) -> Option<u32> {
    let digits = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at(digits);
    *rest = after;
    (digits >= least).then(|| number.parse().ok())?
}

fn after(rest: &mut &str, mark: &str, least: usize, most: usize) -> Option<u32> {
    *rest = rest.strip_prefix(mark)?;
    number(rest, least, most)
}

/// At most nine digits, without the noughts at their end.
fn fraction(rest: &mut &str) -> Option<String> {
    let Some(after) = rest.strip_prefix(['.', ',']) else { return Some(String::new()) };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let (shown, after) = after.split_at(digits);
    *rest = after;
    let shown = shown[..digits.min(9)].trim_end_matches('0');
    Some(if shown.is_empty() { String::new() } else { format!(".{shown}") })
}

fn zone(text: &str) -> Option<String> {
    let mut rest = match text {
        "Z" | "+00:00" | "-00:00" => return Some("Z".to_owned()),
        _ => text.strip_prefix(['+', '-'])?,
    };
    let hours = number(&mut rest, 2, 2)?;
    let minutes = after(&mut rest, ":", 2, 2)?;
    (rest.is_empty() && hours <= 24 && minutes < 60).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stamps_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn moments_are_read_as_go_reads_them() {
        for (text, read_as) in [
            ("2024-01-02", Some("2024-01-02T00:00:00Z")),
            ("2024-1-2", Some("2024-01-02T00:00:00Z")),
            ("2024-02-30", None),
            ("2024-01-02T03:04:05Z", Some("2024-01-02T03:04:05Z")),
            ("2024-01-02t03:04:05.1200+02:00", Some("2024-01-02T03:04:05.12+02:00")),
            ("2024-01-02 3:04:05.5", Some("2024-01-02T03:04:05.5Z")),
            ("2024-01-02 03:04:05 +02:00", None),
            ("2024-01-02T03:04:05", None),
            ("24-01-02", None),
            ("2024-01-02T24:00:00Z", None),
        ] {
            assert_eq!(read(text).as_deref(), read_as, "{text}");
        }
    }

    #[test]
    fn the_modification_time_is_rendered_anew() {
        for (text, rendered) in [
            ("2024-01-02T03:04:05Z", Some("2024-01-02T03:04:05Z")),
            ("2024-01-02T03:04:05+00:00", Some("2024-01-02T03:04:05Z")),
            ("2024-01-02T03:04:05.75Z", Some("2024-01-02T03:04:05Z")),
            ("2024-01-02T03:04:05.75+02:00", Some("2024-01-02T03:04:05+02:00")),
            ("2024-01-02", None),
            ("yesterday", None),
        ] {
            assert_eq!(modified(text).as_deref(), rendered, "{text}");
        }
    }
}
