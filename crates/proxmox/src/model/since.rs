//! Since when a guest is what castle made it: told by a tag.
//!
//! The list of all guests is put together from two sources. Host, tags, lock and pool are as of now. Status, name, sizes and whether it
//! is a template come from statistics that hosts tell each other by the guest's *number*: they outlive a guest by five minutes, and what
//! is made with its number meanwhile is shown as the dead one was, until the next round of statistics. Nothing in the list tells whose
//! statistics they are.
//!
//! So castle writes the time into the tags, which are as of now, whenever it writes there that a guest is as wanted; and the guest's
//! number with it, for tags are copied along with guests. A guest whose tag is older than the longest life of statistics has had
//! its number for as long, so its statistics are its own. Of all others castle asks the host that carries them. A backup has the tags of
//! what it is of: what decides whether a guest runs is asked of its host in any case, of all that it carries at once.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How such a tag begins. It has no version: whatever is behind the guest's number and is no time tells nothing, so a later castle may write
/// something else there, and this one asks the host.
const SINCE: &str = "castle-since-";
/// How long statistics outlive their guest.
const HAUNTED: Duration = Duration::from_secs(5 * 60);
/// How much the clocks of the hosts may differ. The one that castle asks tells the time, when a tag is written and when it is read: castle may be run on several
/// machines, and the clock of one may be put right in between.
const CLOCKS: Duration = Duration::from_secs(5 * 60);

/// The tag of a guest that is made, or made as wanted, now.
pub(crate) fn since_tag(vmid: u32, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{}{seconds}", own(vmid))
}

fn own(vmid: u32) -> String {
    format!("{SINCE}{vmid}-")
}

/// Whether a tag tells since when, of whichever guest.
pub(crate) fn is_since(tag: &str) -> bool {
    tag.starts_with(SINCE)
}

/// The number of the guest that such a tag is of.
pub(crate) fn number_in(tag: &str) -> Option<u32> {
    tag.strip_prefix(SINCE)?.split('-').next()?.parse().ok()
}

/// Whether the tags tell since when the guest of this number is as castle made it.
pub(crate) fn tells_since(tags: &BTreeSet<String>, vmid: u32) -> bool {
    tags.iter().any(|tag| tag.starts_with(&own(vmid)))
}

/// Whether the statistics that are shown of the guest of this number are certainly its own.
pub(crate) fn is_settled(tags: &BTreeSet<String>, vmid: u32, now: SystemTime) -> bool {
    let own = own(vmid);
    let is_old = |seconds: &str| {
        let since = seconds.parse().ok().and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        since.and_then(|since| now.duration_since(since).ok()).is_some_and(|age| age > HAUNTED + CLOCKS)
    };
    let mut told = tags.iter().filter_map(|tag| tag.strip_prefix(&own)).peekable();
    told.peek().is_some() && told.all(is_old)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tag as guests have it.
    const RECORDED: &str = "castle-since-421-1000";

    #[test]
    fn the_recorded_tag_is_written() {
        assert_eq!(since_tag(421, UNIX_EPOCH + Duration::from_secs(1_000)), RECORDED);
    }

    #[test]
    fn statistics_are_believed_of_guests_that_have_had_their_number_for_long() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let tags = |all: &[&str]| all.iter().map(|&tag| tag.to_owned()).collect::<BTreeSet<String>>();
        let one = tags(&["castle", RECORDED]);
        assert!(one.iter().any(|tag| is_since(tag)));
        assert!(
            !is_settled(&one, 421, at(1_000)) && !is_settled(&one, 421, at(1_600)) && is_settled(&one, 421, at(1_601))
        );
        assert!(!is_settled(&one, 421, at(900)), "the clock of another host was ahead");
        assert!(tells_since(&one, 421));
        assert_eq!((number_in(RECORDED), number_in("castle-since-x-1"), number_in("castle")), (Some(421), None, None));
        assert!(!tells_since(&one, 42) && !is_settled(&one, 422, at(9_000)), "a copy has the tags of another number");
        assert!(!is_settled(&tags(&["castle"]), 421, at(9_000)));
        for odd in ["castle-since-421-", "castle-since-421-x", "castle-since-421-99999999999999999999"] {
            assert!(!is_settled(&tags(&[odd]), 421, at(9_000)), "{odd}");
        }
        let two = tags(&["castle-since-421-10", "castle-since-421-8990"]);
        assert!(!is_settled(&two, 421, at(9_000)), "the younger one decides");
    }
}
