//! Moments as objects write them.

use std::time::Duration;

/// A moment as objects write it: `2026-09-21T14:13:20Z`.
pub(crate) fn stamp(since_1970: Duration) -> String {
    let [year, month, day, hour, minute, second] = castle_seams::calendar(since_1970.as_secs());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The same with millionths of seconds: `2026-09-21T14:13:20.250000Z`.
pub(crate) fn fine_stamp(since_1970: Duration) -> String {
    format!("{}.{:06}Z", stamp(since_1970).trim_end_matches('Z'), since_1970.subsec_micros())
}

/// A moment that objects wrote, as the time since 1970; nothing if it is none.
pub(crate) fn unstamp(text: &str) -> Option<Duration> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    let shifted_year = if month <= 2 { year.checked_sub(1)? } else { year };
    let month_from_march = (month + 9) % 12;
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(Duration::from_secs(days * 86_400 + hour * 3_600 + minute * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates_and_read_again() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_790_000_000, "2026-09-21T14:13:20Z"),
        ] {
            assert_eq!(stamp(Duration::from_secs(seconds)), text);
            assert_eq!(unstamp(text), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(unstamp("soon"), None);
    }
}
