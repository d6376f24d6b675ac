//! Whether the clock of a node agrees with the one here, asked before the node gets its configuration: by that clock it will date its certificates and judge
//! castle's.

use std::sync::Arc;

use castle_engine::Fault;
use castle_seams::Clock;

use super::Wire;
use crate::client::{Compared, Lead, Node, Refusal, TimeSync};
use crate::model::pki::{Moment, NODE_CLOCK_SKEW};

/// By how many seconds a node may be ahead: its certificate is waited for as long.
const AHEAD: i64 = 60;
/// By how many it may be behind: castle's certificate is valid since then.
const BEHIND: i64 = NODE_CLOCK_SKEW.as_secs().cast_signed();
/// How long it is at most since a node last counted what its processors did, with some for one that is slow.
const COUNTED: i64 = 60;

/// Whose clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Nodes,
    Here,
    Unknown,
}

/// A clock beside that of a node and the one here.
#[derive(Clone)]
pub struct Third {
    /// Whose it is, for people.
    pub whose: String,
    /// By how many seconds it was ahead of the one here when that was last seen, if it was.
    pub ahead: Arc<dyn Fn() -> Option<i64> + Send + Sync>,
}

impl Third {
    /// Whose clock is wrong by this one, and how that is known, where a node's is so far ahead as far as that is known.
    fn judge(&self, lead: Option<Lead>) -> Option<(Whose, String)> {
        let (ahead, whose) = ((self.ahead)()?, &self.whose);
        let is_nodes = |lead: Lead| {
            lead.least.is_none_or(|least| least <= ahead + AHEAD) && lead.most.is_none_or(|most| most >= ahead - AHEAD)
        };
        Some(match lead {
            _ if ahead.abs() <= AHEAD => (
                Whose::Nodes,
                format!("the clock of {whose} agrees with this machine's, so it is the node's clock that is wrong"),
            ),
            Some(lead) if is_nodes(lead) => (
                Whose::Here,
                format!("the clock of {whose} agrees with the node's, so it is this machine's clock that is wrong"),
            ),
            _ => {
                let third = Lead { least: Some(ahead), most: Some(ahead) };
                (Whose::Unknown, format!("the clock of {whose} is {third}: of three clocks no two are known to agree"))
            }
        })
    }
}

impl Wire {
    /// What is told of a certificate that is not of its time, with whose clock it is as far as a third one tells.
    pub(super) fn untimely(&self, refusal: Refusal) -> Fault {
        let judged = self.third.as_ref().and_then(|third| third.judge(refusal.lead));
        let name = refusal.node.clone();
        let fault = Fault::from(refusal);
        match judged {
            None => fault,
            Some((whose, why)) => {
                let evidence = format!("{}; {why}", fault.evidence);
                Fault { evidence, ..fault }.next(advice(whose, &name))
            }
        }
    }
}

/// What to do about a clock, in words.
fn advice(whose: Whose, name: &str) -> String {
    let node = format!(
        "give {name} a time server that it can reach (network.timeServers, or the usual ones of Talos), or put the clock of the host right that it runs on, \
         whose clock it begins with"
    );
    let here = "put this machine's clock right: timedatectl";
    let advice = match whose {
        Whose::Nodes => format!("{node}; this machine's clock: date -u"),
        Whose::Here => here.to_owned(),
        Whose::Unknown => format!("compare date -u here with that of its host; then {node}, or {here}"),
    };
    format!("{advice}. Then run the same command again")
}

/// Two clocks that do not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disagreement {
    pub(super) lead: Lead,
    pub(super) whose: Whose,
    /// How that is known.
    why: String,
}

impl Disagreement {
    /// What was seen, in words.
    pub(super) fn evidence(&self) -> String {
        format!("its clock is {}; {}", self.lead, self.why)
    }

    /// What to do, in words.
    pub(super) fn next(&self, name: &str) -> String {
        advice(self.whose, name)
    }

    /// Whether another look at the same two clocks may have given it. Each tells other bounds.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let meets = |one: &Lead, two: &Lead| one.least.zip(two.most).is_none_or(|(least, most)| least <= most);
        self.whose == other.whose && meets(&self.lead, &other.lead) && meets(&other.lead, &self.lead)
    }
}

fn disagree(lead: Lead) -> bool {
    lead.exceeds(AHEAD) || lead.falls_short(BEHIND)
}

/// Compares the clock of a node in maintenance mode with the one here. Nothing unless they differ for certain, and by more than what does no harm.
///
/// What its services noted is asked first. From the newest of it a clock that is ahead is known; one that is behind looks like a node that runs for long. Only
/// then is it asked more; and what it does not tell keeps nobody from what it does.
pub(super) async fn compare(node: &Node, clock: &dyn Clock, third: Option<&Third>) -> Option<Disagreement> {
    let now = || Moment::of(clock.wall());
    let noted = node.noted().await.ok()?;
    let seen = noted.map_or(Lead { least: None, most: None }, |noted| Lead::since(noted, now()));
    if !seen.exceeds(AHEAD) && seen.exceeds(-BEHIND) {
        return None;
    }
    let sync = node.time_sync().await.ok().flatten();
    if sync == Some(TimeSync::Synced) {
        let before = now();
        if let Ok(compared) = node.compared().await {
            return by_server(compared, (before, now()));
        }
    }
    by_itself(node, now, seen, (sync, third)).await
}

/// What a node noted before it reached a time server says nothing of its clock now: it was asked for both.
fn by_server(compared: Compared, (before, after): (Moment, Moment)) -> Option<Disagreement> {
    let lead = between(compared.there, (before, after), 1);
    let (server, right) = (compared.server, compared.right);
    let (whose, why) = if compared.there.seconds_after(right).abs() > AHEAD {
        (Whose::Nodes, format!("by its time server {server} it is {right}, so it is the node's clock that is wrong"))
    } else {
        (
            Whose::Here,
            format!("it is in sync with its time server {server}, so it is this machine's clock that is wrong"),
        )
    };
    disagree(lead).then_some(Disagreement { lead, whose, why })
}

/// What a node says that follows no time server, or whose time server does not answer now. What is counted again and again tells its clock as it is now; without
/// that only what was `seen` is certain, and nothing of one that may have been set right since.
async fn by_itself(
    node: &Node,
    now: impl Fn() -> Moment,
    seen: Lead,
    (sync, third): (Option<TimeSync>, Option<&Third>),
) -> Option<Disagreement> {
    let before = now();
    let counted = node.counted().await.ok().flatten();
    let lead = match (counted, sync) {
        (Some(counted), _) => between(counted, (before, now()), COUNTED),
        (None, Some(TimeSync::Waiting | TimeSync::Off)) => seen,
        (None, Some(TimeSync::Synced) | None) => return None,
    };
    let how = match sync {
        Some(TimeSync::Off) => "it asks no time server",
        Some(TimeSync::Waiting) => "it has not reached a time server yet",
        Some(TimeSync::Synced) => "its time server does not answer",
        None => "it does not say whether it follows a time server",
    };
    let judged = third.and_then(|third| third.judge(Some(lead)));
    let (whose, why) = match (sync, judged) {
        (_, Some((whose, why))) => (whose, format!("{how}; {why}")),
        (Some(TimeSync::Waiting), None) => {
            (Whose::Nodes, format!("{how}, so it is most likely the node's clock that is wrong"))
        }
        (_, None) => (Whose::Unknown, format!("{how}, so either clock may be wrong")),
    };
    disagree(lead).then_some(Disagreement { lead, whose, why })
}

/// What is known of a node whose clock said that, or so many seconds more at most, at some time from the one here to the other.
fn between(there: Moment, (before, after): (Moment, Moment), slack: i64) -> Lead {
    Lead { least: Some(there.seconds_after(after)), most: Some(there.seconds_after(before) + slack) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::of(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_790_000_000 + seconds))
    }

    #[test]
    fn bounds_hold_whenever_within_the_question_it_was_answered() {
        let lead = between(at(7200), (at(0), at(3)), COUNTED);
        assert_eq!(lead, Lead { least: Some(7197), most: Some(7260) });
        assert!(disagree(lead));
    }

    /// Goal: what does no harm, or is not certain, holds nobody up.
    #[test]
    fn only_what_does_harm_is_a_disagreement() {
        let check = |least, most, expected| assert_eq!(disagree(Lead { least, most }), expected, "{least:?} {most:?}");
        check(Some(60), Some(120), false);
        check(Some(61), None, true);
        check(Some(-90_000), None, false);
        check(Some(-3660), Some(-3600), false);
        check(Some(-3661), Some(-3601), true);
        check(None, Some(-3601), true);
    }

    /// Goal: of three clocks the one is wrong that the two others contradict; where no two agree, nobody is blamed.
    #[test]
    fn a_third_clock_tells_whose_is_wrong() {
        let judge = |third: Option<i64>, lead: Option<Lead>| {
            let third = Third { whose: "Proxmox (pve)".to_owned(), ahead: Arc::new(move || third) };
            third.judge(lead)
        };
        let early = Some(Lead { least: Some(7000), most: None });
        let late = Some(Lead { least: None, most: Some(-7000) });
        let whose = |third: i64, lead| judge(Some(third), lead).unwrap().0;
        for lead in [early, late, None] {
            assert_eq!([0, 60, -60].map(|third| whose(third, lead)), [Whose::Nodes; 3], "{lead:?}");
        }
        assert_eq!(
            [7200, 6950, 6900, -7200].map(|third| whose(third, early)),
            [Whose::Here, Whose::Here, Whose::Unknown, Whose::Unknown]
        );
        assert_eq!([-7200, -6950, 7200].map(|third| whose(third, late)), [Whose::Here, Whose::Here, Whose::Unknown]);
        let (_, why) = judge(Some(1800), early).unwrap();
        assert_eq!(
            why,
            "the clock of Proxmox (pve) is ahead of this machine's by 30 min: of three clocks no two are known to agree"
        );
        assert_eq!((judge(None, early), whose(7200, None)), (None, Whose::Unknown));
    }

    #[test]
    fn looks_that_may_mean_the_same_are_the_same() {
        let of = |least, most| Disagreement { lead: Lead { least, most }, whose: Whose::Nodes, why: String::new() };
        let first = of(Some(7170), Some(7230));
        assert!(first.is_as(&of(Some(7200), Some(7260))) && first.is_as(&of(Some(7000), None)));
        assert!(!first.is_as(&of(Some(7300), Some(7360))) && !first.is_as(&of(Some(60), Some(120))));
        assert!(!first.is_as(&Disagreement { whose: Whose::Here, ..first.clone() }));
    }

    #[test]
    fn what_to_do_follows_from_whose_clock_it_is() {
        let of = |whose| Disagreement { lead: Lead { least: Some(7200), most: None }, whose, why: "so".into() };
        assert_eq!(of(Whose::Here).evidence(), "its clock is ahead of this machine's by at least 2 h; so");
        assert!(of(Whose::Here).next("w-1").starts_with("put this machine's clock right: timedatectl"));
        assert!(
            of(Whose::Nodes).next("w-1").starts_with("give w-1 a time server that it can reach (network.timeServers")
        );
        let both = of(Whose::Unknown).next("w-1");
        assert!(both.contains("timedatectl") && both.contains("network.timeServers"), "{both}");
    }
}
