//! Numbers, truth values and sizes.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::shape::{Scalar, Unfit};

/// A whole number within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    /// The number `value`, brought within the bounds.
    #[must_use]
    pub fn clamped(value: u32) -> Self {
        Self(value.clamp(MIN, MAX))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32> Scalar for Bounded<MIN, MAX> {
    const NOUN: &'static str = "a whole number";
    const EXAMPLE: &'static str = "3";

    fn parse(text: &str) -> Result<Self, Unfit> {
        match text.parse() {
            Ok(value) if (MIN..=MAX).contains(&value) => Ok(Self(value)),
            Ok(_) => Err(format!("it must be from {MIN} to {MAX}").into()),
            Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(format!("it must be from {MIN} to {MAX}").into())
            }
            Err(_) => Err("not a whole number".into()),
        }
    }

    fn placeholder() -> Self {
        Self(MIN)
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }

    fn show(&self) -> Value {
        self.0.into()
    }
}

impl Scalar for bool {
    const NOUN: &'static str = "true or false";
    const EXAMPLE: &'static str = "true";

    fn parse(text: &str) -> Result<Self, Unfit> {
        text.parse().map_err(|_| Unfit::from("write `true` or `false`"))
    }

    fn placeholder() -> Self {
        false
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }

    fn show(&self) -> Value {
        (*self).into()
    }
}

/// An amount of memory or disk, in whole MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    mib: u64,
}

const UNITS: [(&str, u64); 3] = [("TiB", 1 << 20), ("GiB", 1 << 10), ("MiB", 1)];

impl Size {
    /// That many MiB.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self { mib }
    }

    /// The amount in MiB.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.mib
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS.into_iter().find(|(_, factor)| self.mib.is_multiple_of(*factor)).unwrap_or(UNITS[2]);
        write!(f, "{}{unit}", self.mib / factor)
    }
}

impl std::iter::Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        Self { mib: sizes.fold(0, |sum, size| sum.saturating_add(size.mib)) }
    }
}

impl Scalar for Size {
    const NOUN: &'static str = "a size";
    const EXAMPLE: &'static str = "4GiB";

    fn parse(text: &str) -> Result<Self, Unfit> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let unit = unit.strip_prefix(' ').unwrap_or(unit);
        if number.is_empty() || unit.starts_with('.') {
            return Err("write a whole number and a unit: MiB, GiB or TiB".into());
        }
        let Some((_, factor)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
            return Err(match unit {
                "" => "a number of what? Add a unit: MiB, GiB or TiB".into(),
                "K" | "M" | "G" | "T" | "KB" | "MB" | "GB" | "TB" | "Ki" | "Mi" | "Gi" | "Ti" => {
                    format!("`{unit}` is ambiguous between tools; write MiB, GiB or TiB").into()
                }
                _ => "unknown unit; write MiB, GiB or TiB".into(),
            });
        };
        let mib = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        // Far above any machine, far below what sums could overflow at.
        match mib {
            Some(0) => Err("it must be more than nothing".into()),
            Some(mib) if mib <= 1 << 40 => Ok(Self { mib }),
            _ => Err("larger than any machine".into()),
        }
    }

    fn placeholder() -> Self {
        Self { mib: 0 }
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9]+ ?(MiB|GiB|TiB)$"})
    }

    fn show(&self) -> Value {
        self.to_string().into()
    }
}

/// A time in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    seconds: u32,
}

const TIMES: [(&str, u32); 3] = [("h", 3_600), ("m", 60), ("s", 1)];
/// Nothing that somebody waits for takes longer.
const LONGEST: u32 = 24 * 3_600;

impl Time {
    /// As the system measures it.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds as u64)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = TIMES.into_iter().find(|(_, factor)| self.seconds.is_multiple_of(*factor));
        let (unit, factor) = whole.unwrap_or(TIMES[2]);
        write!(f, "{}{unit}", self.seconds / factor)
    }
}

impl Scalar for Time {
    const NOUN: &'static str = "a time";
    const EXAMPLE: &'static str = "5m";

    fn parse(text: &str) -> Result<Self, Unfit> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let factor = TIMES.into_iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let seconds = factor.and_then(|factor| number.parse::<u32>().ok()?.checked_mul(factor));
        match (factor, seconds) {
            _ if number.is_empty() => Err("write a whole number and a unit: s, m or h".into()),
            (None, _) if unit.is_empty() => Err("a number of what? Add a unit: s, m or h".into()),
            (None, _) => Err("unknown unit; write a whole number and s, m or h".into()),
            (_, Some(0)) => Err("it must be more than nothing".into()),
            (_, Some(seconds)) if seconds <= LONGEST => Ok(Self { seconds }),
            _ => Err("longer than a day".into()),
        }
    }

    fn placeholder() -> Self {
        Self { seconds: 0 }
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9]+(s|m|h)$"})
    }

    fn show(&self) -> Value {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::read_all;

    #[test]
    fn sizes_are_whole_numbers_with_a_binary_unit() {
        let texts = [
            "4GiB",
            "4 GiB",
            "1536MiB",
            "2048GiB",
            "4",
            "4G",
            "4GB",
            "4 gib",
            "1.5GiB",
            "0GiB",
            "-1GiB",
            "GiB",
            "",
            "99999999999999999999GiB",
            "9999999TiB",
        ];
        insta::assert_snapshot!(read_all::<Size>(&texts), @r#"
        "4GiB" is "4GiB"
        "4 GiB" is "4GiB"
        "1536MiB" is "1536MiB"
        "2048GiB" is "2TiB"
        "4": a number of what? Add a unit: MiB, GiB or TiB
        "4G": `G` is ambiguous between tools; write MiB, GiB or TiB
        "4GB": `GB` is ambiguous between tools; write MiB, GiB or TiB
        "4 gib": unknown unit; write MiB, GiB or TiB
        "1.5GiB": write a whole number and a unit: MiB, GiB or TiB
        "0GiB": it must be more than nothing
        "-1GiB": write a whole number and a unit: MiB, GiB or TiB
        "GiB": write a whole number and a unit: MiB, GiB or TiB
        "": write a whole number and a unit: MiB, GiB or TiB
        "99999999999999999999GiB": larger than any machine
        "9999999TiB": larger than any machine
        "#);
    }

    #[test]
    fn times_are_whole_numbers_with_a_unit() {
        let texts = ["90s", "120s", "5m", "1h", "5", "5 m", "m", "0s", "1.5h", "25h", "99999999999h", ""];
        insta::assert_snapshot!(read_all::<Time>(&texts), @r#"
        "90s" is "90s"
        "120s" is "2m"
        "5m" is "5m"
        "1h" is "1h"
        "5": a number of what? Add a unit: s, m or h
        "5 m": unknown unit; write a whole number and s, m or h
        "m": write a whole number and a unit: s, m or h
        "0s": it must be more than nothing
        "1.5h": unknown unit; write a whole number and s, m or h
        "25h": longer than a day
        "99999999999h": longer than a day
        "": write a whole number and a unit: s, m or h
        "#);
    }

    #[test]
    fn numbers_keep_their_bounds() {
        insta::assert_snapshot!(read_all::<Bounded<1, 7>>(&["1", "7", "8", "0", "-1", "99999999999", "1.0", "x"]), @r#"
        "1" is 1
        "7" is 7
        "8": it must be from 1 to 7
        "0": it must be from 1 to 7
        "-1": not a whole number
        "99999999999": it must be from 1 to 7
        "1.0": not a whole number
        "x": not a whole number
        "#);
    }
}
