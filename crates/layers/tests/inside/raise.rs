//! From nothing to the handover, with machines and nodes that take their time, and nothing to do after that.

use castle_datacenter::Version;
use castle_engine::Outcome;
use castle_testbed::in_virtual_time;

use crate::keep::{Keep, full};
use crate::room::{blueprint, done, door};
use crate::stands::fallen;

#[test]
fn a_castle_is_raised_to_its_handover() {
    in_virtual_time(async |clock| {
        let keep = Keep::new(blueprint(&["pve"], Version::Nine), &full(3, 2), door(clock));
        let planned = keep.plan().await;
        let planned = planned.ended(|outcome| matches!(outcome, Outcome::Planned { .. })).count();
        assert!(planned > 18, "more than a cluster is planned: {planned}");
        done(&keep.up().await);
        assert_eq!(fallen(&keep), None);
        assert_eq!(keep.scribe.take().broken(), Vec::<String>::new());
        let again = keep.up().await;
        done(&again);
        assert_eq!(again.effects(), 0);
        done(&keep.plan().await);
    });
}
