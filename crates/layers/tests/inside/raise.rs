//! From nothing to the handover, and nothing to do after that.

use castle_datacenter::Version;
use castle_engine::Outcome;
use castle_testkit::in_virtual_time;

use crate::keep::{Keep, full};
use crate::room::{blueprint, done, door};

#[test]
fn a_castle_is_raised_to_its_handover() {
    in_virtual_time(async |clock| {
        let keep = Keep::new(blueprint(&["pve"], Version::Nine), &full(3, 2), door(clock));
        let planned = keep.plan().await;
        let planned: Vec<String> = planned
            .outcomes
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Planned { .. }))
            .map(|(step, _)| step.to_string())
            .collect();
        println!("{planned:#?}");
        let report = keep.up().await;
        for (step, outcome) in &report.outcomes {
            if !outcome.is_done() {
                println!("{step}: {outcome:?}");
            }
        }
        done(&report);
        let again = keep.up().await;
        done(&again);
        assert_eq!(again.effects(), 0);
        done(&keep.plan().await);
    });
}
