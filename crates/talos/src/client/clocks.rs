//! Two clocks that differ: by how much, as far as it can be told, and in which words.

use std::fmt;

use crate::model::pki::{Moment, Validity};

/// How far a node's clock is ahead of the one here, in seconds: at least and at most, as far as either is known. Below zero it is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// It is ahead by no less.
    pub least: Option<i64>,
    /// It is ahead by no more.
    pub most: Option<i64>,
}

impl Lead {
    /// What is known of a node that says that it was `there` by its clock at a moment which was not after `here`.
    #[must_use]
    pub fn since(there: Moment, here: Moment) -> Self {
        Self { least: Some(there.seconds_after(here)), most: None }
    }

    /// Whether it is ahead by more than that, for certain.
    #[must_use]
    pub fn exceeds(&self, seconds: i64) -> bool {
        self.least.is_some_and(|least| least > seconds)
    }

    /// Whether it is behind by more than that, for certain.
    #[must_use]
    pub fn falls_short(&self, seconds: i64) -> bool {
        self.most.is_some_and(|most| most < -seconds)
    }
}

impl fmt::Display for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { least: Some(least), most } if least > 0 => {
                write!(f, "ahead of this machine's by {}", Range(least, most))
            }
            Self { least, most: Some(most) } if most < 0 => {
                write!(f, "behind this machine's by {}", Range(-most, least.map(|least| -least)))
            }
            _ => f.write_str("about that of this machine"),
        }
    }
}

/// From so many seconds to so many.
struct Range(i64, Option<i64>);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = span(self.0, false);
        match self.1.map(|most| span(most, true)) {
            Some(most) if most == least => f.write_str(&least),
            Some(most) => write!(f, "at least {least} and at most {most}"),
            None => write!(f, "at least {least}"),
        }
    }
}

/// So many seconds as people say it, rounded up or down.
fn span(seconds: i64, up: bool) -> String {
    let in_units =
        |unit: i64| if up { seconds.div_euclid(unit) + i64::from(seconds % unit != 0) } else { seconds / unit };
    const MINUTE: i64 = 60;
    const DAY: i64 = 24 * 60 * MINUTE;
    if seconds < 2 * MINUTE {
        return format!("{seconds} s");
    }
    if seconds >= 2 * DAY {
        return format!("{} days", in_units(DAY));
    }
    let minutes = in_units(MINUTE);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// What is said of a certificate that is not of its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Untimely {
    pub(super) sentence: String,
    /// How far the node's clock is ahead, where the dates tell.
    pub(super) lead: Option<Lead>,
}

/// What is said of a node's certificate that is not valid yet: it was made when the node's clock, or that of the control plane which signed it,
/// said so.
pub(super) fn early(from: Moment, here: Moment) -> Untimely {
    let lead = Lead::since(from, here);
    let sentence = format!(
        "its certificate is valid from {from} on, and here it is {here}: its clock is {lead}, or this machine's is behind by as much"
    );
    Untimely { sentence, lead: Some(lead) }
}

/// What is said of a node's certificate that is over: it makes another one long before.
pub(super) fn late(until: Moment, here: Moment) -> Untimely {
    let lead = Lead { least: None, most: Some(until.seconds_after(here)) };
    let sentence = format!(
        "its certificate was valid until {until}, and here it is {here}: its clock is {lead}, or this machine's is ahead by as much"
    );
    Untimely { sentence, lead: Some(lead) }
}

/// What is said where a node takes castle's own certificate for one whose time is over or has not come; it does not say which. The dates of the
/// certificate that it has `shown` tell, for it was made by the same clock not long ago.
pub(super) fn refused(own: Option<Validity>, shown: Option<Validity>, here: Moment) -> Untimely {
    let unknown = |sentence: String| Untimely { sentence, lead: None };
    let Some(own) = own else {
        return unknown(
            "to the node, castle's certificate has expired or is not valid yet: by its clock it is another time than here"
                .to_owned(),
        );
    };
    let Validity { from, until } = own;
    if here > until {
        return unknown(format!("castle's certificate was valid until {until}, and here it is {here}"));
    }
    if here < from {
        return unknown(format!(
            "castle's certificate is valid from {from} on, and here it is {here}: this machine's clock is behind what it was when the certificate was made"
        ));
    }
    let behind = Lead { least: None, most: Some(from.seconds_after(here)) };
    let ahead = Lead { least: Some(until.seconds_after(here)), most: None };
    let may_be_behind = shown.is_none_or(|shown| shown.from < from);
    let may_be_ahead = shown.is_none_or(|shown| shown.until > until);
    match (shown, may_be_behind, may_be_ahead) {
        (Some(shown), true, false) => {
            let behind = Lead { least: Some(shown.from.seconds_after(here)), ..behind };
            let sentence = format!(
                "to the node castle's certificate, which is valid from {from} on, is not valid yet: its clock is {behind}, or this machine's is ahead by as much"
            );
            Untimely { sentence, lead: Some(behind) }
        }
        (Some(_), false, true) => {
            let sentence = format!(
                "to the node castle's certificate, which is valid until {until}, has expired: its clock is {ahead}, or this machine's is behind by as much"
            );
            Untimely { sentence, lead: Some(ahead) }
        }
        _ => unknown(format!(
            "to the node castle's certificate, which is valid from {from} until {until}, has expired or is not valid yet: its clock is {behind}, or {}; or it is \
             this machine's that is wrong",
            ahead.to_string().replace("this machine's", "it")
        )),
    }
}

/// How Go tells that a certificate's time is over or has not come, and how the other side is told.
const UNTIMELY: &str = "x509: certificate has expired or is not yet valid: current time ";
const ALERT: &str = "tls: expired certificate";

/// What a node in memory says that TLS would have found out, in the same words; nothing if it is something else.
pub(super) fn told(sentence: &str, own: Option<Validity>, here: Moment) -> Option<Untimely> {
    if sentence.contains(ALERT) {
        return Some(refused(own, None, here));
    }
    let (_, times) = sentence.split_once(UNTIMELY)?;
    let moment = |text: &str| Moment::from_rfc3339(text.trim_end_matches(|last: char| last != 'Z'));
    let (now, rest) = times.split_once(" is ")?;
    let now = moment(now)?;
    match rest.split_once(' ')? {
        ("before", from) => Some(early(moment(from)?, now)),
        ("after", until) => Some(late(moment(until)?, now)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn at(text: &str) -> Moment {
        Moment::from_rfc3339(&format!("2026-09-{text}Z")).unwrap()
    }

    fn said(least: Option<i64>, most: Option<i64>) -> String {
        Lead { least, most }.to_string()
    }

    #[test]
    fn a_difference_is_told_by_its_bounds() {
        assert_eq!(said(Some(2 * HOUR), None), "ahead of this machine's by at least 2 h");
        assert_eq!(said(Some(61), Some(61)), "ahead of this machine's by 61 s");
        assert_eq!(
            said(Some(2 * HOUR - 20), Some(2 * HOUR + 40)),
            "ahead of this machine's by at least 1 h 59 min and at most 2 h 1 min"
        );
        assert_eq!(said(None, Some(-2 * HOUR - 1)), "behind this machine's by at least 2 h");
        assert_eq!(
            said(Some(-100 * HOUR), Some(-50 * HOUR)),
            "behind this machine's by at least 2 days and at most 5 days"
        );
        for (least, most) in [(None, None), (Some(-5), Some(5)), (Some(-5), None), (None, Some(5))] {
            assert_eq!(said(least, most), "about that of this machine");
        }
    }

    /// Goal: only what is certain counts.
    #[test]
    fn only_certain_bounds_count() {
        let ahead = Lead { least: Some(120), most: None };
        assert!(ahead.exceeds(60) && !ahead.exceeds(120) && !ahead.falls_short(0));
        let behind = Lead { least: None, most: Some(-120) };
        assert!(behind.falls_short(60) && !behind.falls_short(120) && !behind.exceeds(0));
        let unknown = Lead::default();
        assert!(!unknown.exceeds(i64::MIN) && !unknown.falls_short(i64::MIN));
        assert_eq!(Lead::since(at("21T14:00:00"), at("21T15:00:00")), Lead { least: Some(-HOUR), most: None });
    }

    /// Goal: what Go says of dates is understood, whichever side says it, and nothing else is.
    #[test]
    fn what_go_says_of_dates_is_understood() {
        let go = |words: &str| {
            let sentence = format!(
                "connection error: desc = \"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate has expired or is \
                 not yet valid: current time 2026-09-21T14:00:00Z is {words}\""
            );
            told(&sentence, None, at("21T14:00:00")).unwrap().sentence
        };
        assert!(go("before 2026-09-21T16:00:00Z").contains("its clock is ahead of this machine's by at least 2 h, or"));
        assert!(go("after 2026-09-21T13:00:00Z").contains("its clock is behind this machine's by at least 1 h, or"));
        let own = Validity { from: at("21T13:00:00"), until: at("30T00:00:00") };
        let alert = told("remote error: tls: expired certificate", Some(own), at("21T14:00:00")).unwrap().sentence;
        assert!(alert.contains("behind this machine's by at least 1 h, or ahead of it by at least 8 days"), "{alert}");
        for other in
            ["remote error: tls: bad certificate", "x509: certificate has expired or is not yet valid: current time x"]
        {
            assert_eq!(told(other, Some(own), at("21T14:00:00")), None, "{other}");
        }
    }
}
