//! Amounts: `500m`, `1Gi`, and how they are written in their shortest form.

/// The suffixes of powers of ten, by their exponent.
const DECIMAL: [(&str, i32); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15)];
/// The suffixes of powers of 1024.
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// What is said of a text that is no amount.
pub(crate) const FAULT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// An amount in billionths.
pub(crate) fn nano(text: &str) -> Option<i128> {
    parse(text).map(|(nano, _)| nano)
}

/// An amount in thousandths, rounded up: processors.
pub(crate) fn milli(text: &str) -> i64 {
    nano(text).map_or(0, |nano| i64::try_from((nano + 999_999).div_euclid(1_000_000)).unwrap_or(i64::MAX))
}

/// An amount in whole units, rounded up: bytes.
pub(crate) fn whole(text: &str) -> i64 {
    nano(text).map_or(0, |nano| i64::try_from((nano + 999_999_999).div_euclid(1_000_000_000)).unwrap_or(i64::MAX))
}

fn parse(text: &str) -> Option<(i128, Suffix)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '+' && c != '-').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let (is_negative, digits) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (before, after) = digits.split_once('.').unwrap_or((digits, ""));
    if before.is_empty() && after.is_empty() || !before.bytes().chain(after.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mantissa: i128 = format!("{before}{after}").parse().ok()?;
    let scale = i32::try_from(after.len()).ok()?;
    let (exponent, binary, kind) = if let Some((_, shift)) = BINARY.iter().find(|(word, _)| *word == suffix) {
        (9 - scale, *shift, Suffix::Binary)
    } else if let Some((_, power)) = DECIMAL.iter().find(|(word, _)| *word == suffix) {
        (9 - scale + power, 0, Suffix::Decimal)
    } else if suffix == "E" {
        (9 - scale + 18, 0, Suffix::Decimal)
    } else {
        let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        (9 - scale + power, 0, Suffix::Exponent)
    };
    let mut nano = mantissa.checked_mul(1_i128.checked_shl(binary)?)?;
    if exponent >= 0 {
        nano = nano.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?)?;
    } else {
        let divisor = 10_i128.checked_pow(exponent.unsigned_abs())?;
        nano = (nano + divisor - 1) / divisor;
    }
    Some((if is_negative { -nano } else { nano }, kind))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Decimal,
    Binary,
    Exponent,
}

/// An amount in its shortest form; nothing if it is none.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (nano, kind) = parse(text)?;
    let billion = 1_000_000_000_i128;
    if nano == 0 {
        return Some("0".to_owned());
    }
    if kind == Suffix::Binary && nano % billion == 0 && (nano / billion).abs() >= 1_024 {
        let mut value = nano / billion;
        let mut suffix = "";
        for (word, _) in BINARY {
            if value % 1_024 != 0 {
                break;
            }
            (value, suffix) = (value / 1_024, word);
        }
        return Some(format!("{value}{suffix}"));
    }
    let (mut value, mut power) = (nano, -9);
    while value % 1_000 == 0 && power < 18 {
        (value, power) = (value / 1_000, power + 3);
    }
    if kind == Suffix::Exponent {
        return Some(if power == 0 { value.to_string() } else { format!("{value}e{power}") });
    }
    let suffix = DECIMAL.iter().find(|(_, own)| *own == power).map_or("E", |(word, _)| *word);
    Some(format!("{value}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_in_their_shortest_form() {
        for (text, short) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("512", "512"),
            ("1000", "1k"),
            ("0", "0"),
            ("0.1Gi", "107374182400m"),
            ("1e3", "1e3"),
            ("100n", "100n"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(short), "{text}");
        }
        assert_eq!(canonical("1x"), None);
        assert_eq!(canonical(""), None);
        assert_eq!((milli("250m"), milli("2"), whole("1Ki"), whole("100m")), (250, 2_000, 1_024, 1));
    }
}
