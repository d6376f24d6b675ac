//! Addresses of machines that are not made yet, at which another cluster answers: two of one address would hurt both.

use std::time::Duration;

use castle_layers::Survey;
use castle_layers::doctor::{self, Finding};
use serde_json::{Value, json};

use crate::masking;
use crate::output::Printer;
use crate::stand::{REACHING, Stand};

/// How long a machine that was just removed may still answer.
const GOING: Duration = Duration::from_secs(1);

/// Who is where castle would make machines.
pub(crate) async fn occupied(stand: &Stand, survey: &Survey) -> Vec<Finding> {
    let kept = &stand.kept;
    let (dial, castle) = (kept.doors.dial(REACHING), &kept.castle);
    let look = || doctor::occupied(dial.as_ref(), kept.clock(), castle, &kept.nodes, &survey.guests);
    if look().await.is_empty() {
        return Vec::new();
    }
    // It may just be on its way out.
    kept.clock().sleep(GOING).await;
    look().await.iter().map(masking::finding).collect()
}

/// Tells people, and returns the same for programs.
pub(crate) fn tell(occupied: &[Finding], printer: &mut Printer) -> Vec<Value> {
    for found in occupied {
        printer.complain_to_people(&format!("{}: {}\n  next: {}", found.subject, found.evidence, found.next));
    }
    let problem = |found: &Finding| json!({"severity": "error", "summary": format!("{}: {}", found.subject, found.evidence), "hint": found.next});
    occupied.iter().map(problem).collect()
}
