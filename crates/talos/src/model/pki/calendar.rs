//! Points in time as certificates write them.

use std::fmt;
use std::time::{Duration, SystemTime};

use castle_seams::calendar;

use super::der::{Element, element, tag};

const DAY: u64 = 86_400;

/// A second of the calendar, in UTC, from 1970 to 9999.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Moment(u64);

/// The last second that a certificate can name.
const LAST: u64 = 253_402_300_799;

impl Moment {
    /// The second that a point in time falls into; outside of the calendar, the nearest.
    #[must_use]
    pub fn of(time: SystemTime) -> Self {
        Self(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().min(LAST))
    }

    /// So much later. None beyond the calendar.
    #[must_use]
    pub fn after(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration.as_secs()).filter(|&seconds| seconds <= LAST).map(Self)
    }

    /// So much earlier, at most until 1970.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.as_secs()))
    }

    /// How many seconds it lies after another one; below zero, before it.
    pub(crate) fn seconds_after(self, other: Self) -> i64 {
        self.0.cast_signed() - other.0.cast_signed()
    }

    /// As Go writes it: `2026-09-21T14:13:20Z`, or with another zone for it, which is not read.
    pub(crate) fn from_rfc3339(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let numbers: Option<Vec<u64>> =
            date.split('-').chain(time.split(':')).map(|number| digits(number.as_bytes())).collect();
        Self::from_fields(numbers?.try_into().ok()?)
    }

    /// Year, month, day, hour, minute, second.
    fn fields(self) -> [u64; 6] {
        calendar(self.0)
    }

    fn from_fields([year, month, day, hour, minute, second]: [u64; 6]) -> Option<Self> {
        let plausible = year >= 1970 && month <= 12 && month > 0 && hour < 24 && minute < 60 && second < 60;
        if !plausible {
            return None;
        }
        let year_from_march = year - u64::from(month <= 2);
        let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
        let month_from_march = (month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        let moment = Self(days * DAY + hour * 3600 + minute * 60 + second);
        // A day that the month does not have would be another one's.
        (moment.fields() == [year, month, day, hour, minute, second] && moment.0 <= LAST).then_some(moment)
    }

    /// As a certificate writes it: in the short form until 2049.
    pub(super) fn to_der(self) -> Vec<u8> {
        let [year, month, day, hour, minute, second] = self.fields();
        let rest = format!("{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
        if year < 2050 {
            element(tag::UTC_TIME, &[format!("{:02}", year % 100).as_bytes(), rest.as_bytes()])
        } else {
            element(tag::GENERALIZED_TIME, &[format!("{year:04}").as_bytes(), rest.as_bytes()])
        }
    }

    /// As a certificate writes it. What lies before 1970 is 1970.
    pub(super) fn from_der(element: &Element<'_>) -> Option<Self> {
        let text = element.content.strip_suffix(b"Z")?;
        let (year, rest) = match element.tag {
            tag::UTC_TIME => text.split_at_checked(2)?,
            tag::GENERALIZED_TIME => text.split_at_checked(4)?,
            _ => return None,
        };
        let year = match (digits(year)?, element.tag) {
            (short @ ..50, tag::UTC_TIME) => short + 2000,
            (short, tag::UTC_TIME) => short + 1900,
            (year, _) => year,
        };
        let (pairs, []) = rest.as_chunks::<2>() else { return None };
        let &[month, day, hour, minute, second] = pairs else { return None };
        if year < 1970 {
            return Some(Self(0));
        }
        Self::from_fields([year, digits(&month)?, digits(&day)?, digits(&hour)?, digits(&minute)?, digits(&second)?])
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [year, month, day, hour, minute, second] = self.fields();
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

#[cfg(test)]
mod tests {
    use super::super::der::Reader;
    use super::*;

    fn check(seconds: u64, shown: &str, der: &str) {
        let moment = Moment::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(moment.to_string(), shown);
        assert_eq!(moment.to_der()[2..], *der.as_bytes());
        let written = moment.to_der();
        assert_eq!(Moment::from_der(&Reader::new(&written).next().unwrap()), Some(moment));
    }

    #[test]
    fn moments_are_written_and_read() {
        check(0, "1970-01-01 00:00:00 UTC", "700101000000Z");
        check(951_782_400, "2000-02-29 00:00:00 UTC", "000229000000Z");
        check(1_697_107_569, "2023-10-12 10:46:09 UTC", "231012104609Z");
        check(2_524_607_999, "2049-12-31 23:59:59 UTC", "491231235959Z");
        check(2_524_608_000, "2050-01-01 00:00:00 UTC", "20500101000000Z");
        check(LAST, "9999-12-31 23:59:59 UTC", "99991231235959Z");
    }

    #[test]
    fn moments_are_read_as_go_writes_them() {
        let moment = Moment::from_rfc3339("2023-10-12T10:46:09Z").unwrap();
        assert_eq!(moment.to_string(), "2023-10-12 10:46:09 UTC");
        assert_eq!(moment.seconds_after(Moment::from_rfc3339("2023-10-12T10:47:09Z").unwrap()), -60);
        for text in ["", "2023-10-12T10:46:09+02:00", "2023-10-12Z", "2023-10T10:46:09Z", "2023-10-32T10:46:09Z"] {
            assert_eq!(Moment::from_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_comes_back() {
        for day in (0..2_932_897).step_by(7) {
            let moment = Moment(day * DAY + 3661);
            assert_eq!(Moment::from_fields(moment.fields()), Some(moment));
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for (form, text) in [
            (tag::UTC_TIME, "231312104609Z"),
            (tag::UTC_TIME, "230229104609Z"),
            (tag::UTC_TIME, "231012104660Z"),
            (tag::UTC_TIME, "231012104609"),
            (tag::UTC_TIME, "231000104609Z"),
            (tag::UTC_TIME, "23101210460aZ"),
            (tag::UTC_TIME, "2310121046Z"),
            (tag::GENERALIZED_TIME, "231012104609Z"),
            (tag::OCTETS, "231012104609Z"),
        ] {
            let written = element(form, &[text.as_bytes()]);
            assert_eq!(Moment::from_der(&Reader::new(&written).next().unwrap()), None, "{text}");
        }
        assert_eq!(Moment(LAST).after(Duration::from_secs(1)), None);
        assert_eq!(Moment::of(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), Moment(0));
        assert_eq!(Moment::of(SystemTime::UNIX_EPOCH + Duration::from_secs(LAST + 1)), Moment(LAST));
        assert_eq!(Moment(5).before(Duration::from_secs(10)), Moment(0));
        let long_ago = element(tag::UTC_TIME, &[b"650101000000Z"]);
        assert_eq!(Moment::from_der(&Reader::new(&long_ago).next().unwrap()), Some(Moment(0)));
    }
}
