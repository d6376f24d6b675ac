//! Seconds as the calendar tells them.

const DAY: u64 = 86_400;

/// Year, month, day, hour, minute and second, in UTC, of a second counted from the beginning of 1970.
///
/// Counts in years that begin in March, so that the leap day is the last of its year; 400 years have 146,097 days.
#[must_use]
pub fn calendar(seconds: u64) -> [u64; 6] {
    let (days, second) = (seconds / DAY + 719_468, seconds % DAY);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [year, month, day, second / 3_600, second / 60 % 60, second % 60]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_days_are_where_they_belong() {
        for (seconds, date) in [
            (0, [1970, 1, 1, 0, 0, 0]),
            (951_782_399, [2000, 2, 28, 23, 59, 59]),
            (951_782_400, [2000, 2, 29, 0, 0, 0]),
            (1_709_251_199, [2024, 2, 29, 23, 59, 59]),
            (1_794_752_000, [2026, 11, 15, 14, 13, 20]),
            (4_107_542_400, [2100, 3, 1, 0, 0, 0]),
            (253_402_300_799, [9999, 12, 31, 23, 59, 59]),
        ] {
            assert_eq!(calendar(seconds), date);
        }
    }
}
