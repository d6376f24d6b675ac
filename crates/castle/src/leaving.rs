//! Nodes that the file does not name any more: somebody agrees that they go, and knows what goes with them.

#[cfg(test)]
mod tests;

use castle_kubernetes::model::{Kind, condition};
use castle_layers::platform::Doomed;

use crate::commands::confirm::confirmed;
use crate::commands::down::{counted, listed};
use crate::commands::owners::connect;
use crate::masking;
use crate::output::Printer;
use crate::stand::{Stand, Trouble};

/// What it means that a node does not answer.
const LOST: &str = "Pods on it cannot end there: where their budgets allow it, they go with the machine, and with what they have not yet written. \
                    If it holds the only sound copy of a volume, it stays.";

/// Has somebody agree that nodes go which the file does not name any more.
pub(crate) async fn agree(stand: &Stand, leaving: &[Doomed], yes: bool, printer: &mut Printer) -> Result<(), Trouble> {
    stand.agree_to(leaving);
    if leaving.is_empty() {
        return Ok(());
    }
    printer.say(&format!("Not in the file any more:\n{}", listed(leaving)));
    for (name, why) in silent(stand, leaving).await {
        printer.say(&format!("{} {}. {LOST}", masking::text(name), masking::text(&why)));
    }
    let question = format!("Remove {} of {} for good?", counted(leaving), stand.kept.name());
    if confirmed(&question, yes, printer) {
        return Ok(());
    }
    Err(Trouble::Refused("nothing was changed: answer yes, or give --yes".to_owned()))
}

/// Those of them that do not answer, and how that shows. Where nobody says, it is taken to be well.
async fn silent<'l>(stand: &Stand, leaving: &'l [Doomed]) -> Vec<(&'l str, String)> {
    let api = connect(&stand.kept).await.ok();
    let mut silent = Vec::new();
    for Doomed { vmid, name, host, .. } in leaving {
        if matches!(stand.client.is_running(host, *vmid).await, Ok(Some(false))) {
            silent.push((name.as_str(), "is switched off".to_owned()));
            continue;
        }
        let Some(api) = &api else { continue };
        let Ok(Some(node)) = api.get(&Kind::new("v1", "Node"), "", name).await else { continue };
        match condition(&node, "Ready") {
            Some(ready) if ready.status == "True" => {}
            Some(ready) => silent.push((name, format!("is not ready ({})", ready.reason))),
            None => silent.push((name, "has not been ready yet".to_owned())),
        }
    }
    silent
}
