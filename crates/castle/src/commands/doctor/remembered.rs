//! What castle remembers of a castle, and what it raises it from: whether all of it can be had.

use castle_engine::{CastleId, look};
use castle_layers::doctor::Finding;
use castle_layers::{platform, secrets, survey};

use crate::furnish::Furnishing;
use crate::keeping::Kept;
use crate::stand::{Stand, Trouble};
use crate::standing::vanished;

/// Why nobody knows whether the machines are there.
const UNHELD: &str = "what the state knows of them was not held against the hypervisor";

/// A sentence of another verb as a finding.
pub(super) fn wrong(check: &'static str, subject: impl Into<String>, why: &str) -> Finding {
    let (evidence, next) = why.split_once("\n  next: ").unwrap_or((why, ""));
    Finding::wrong(check, subject, evidence).next(next)
}

/// Whether the key to the state is there, and everything in it can be read.
pub(super) async fn state(kept: &Kept) -> Vec<Finding> {
    let name = kept.key();
    let mut findings = Vec::new();
    if let Err(error) = look(kept.store.as_ref(), &name).await {
        let next = "castle lease take, once nobody works on this castle";
        findings.push(Finding::wrong("lease", "", error.to_string()).next(next));
    }
    let castle = match kept.castle_id().await {
        // That it cannot be read is told with its identity.
        Err(_) => return findings,
        Ok(None) => {
            // The embedded datacenter gets a key of its own when a castle is raised for the first time.
            let key = kept.seal_exists();
            findings.push(match key {
                Ok(()) => Finding::well("state", "", "nothing is remembered yet"),
                Err(why) => wrong("state", &kept.place, &why),
            });
            return findings;
        }
        Ok(Some(castle)) => castle,
    };
    match unread(kept, &castle).await {
        Ok(()) => findings.push(Finding::well("state", "", "can be opened, and read")),
        Err(why) => findings.push(wrong("state", &kept.place, &why)),
    }
    findings
}

async fn unread(kept: &Kept, castle: &CastleId) -> Result<(), String> {
    let mut state = kept.state(castle.clone())?;
    for layer in [secrets::layer(), platform::layer()] {
        state.latest(&layer).await.map_err(|error| kept.told(&error))?;
    }
    Ok(())
}

/// Whether all that a castle is raised from can be had, by somebody who does not get as far as to stand anywhere.
pub(super) async fn manifests(kept: &Kept) -> Option<Finding> {
    let trouble = Furnishing::of(kept, None, true).await.err()?;
    Some(wrong("manifests", "", trouble.told()))
}

/// Whether the machines are there that a castle stands on by its record, and all that it is raised from can be had.
pub(super) async fn standing(stand: &Stand, castle: &CastleId) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(trouble) = stand.furnishing().await {
        findings.push(wrong("manifests", "", trouble.told()));
    }
    let ground = stand.ground(castle, false);
    // Why the site or the state cannot be looked at is told better by others; that the machines were not held against it is told here.
    let Ok(survey) = survey(&ground, &stand.site).await else {
        findings.push(Finding::not_asked("machines", UNHELD));
        return findings;
    };
    match vanished(stand, &stand.window(castle), &ground, &survey).await {
        Ok(Some(fault)) => findings.push(Finding::wrong("machines", fault.subject, fault.evidence).next(fault.next)),
        Ok(None) => {}
        Err(Trouble::Failed(_)) => findings.push(Finding::not_asked("machines", UNHELD)),
        Err(trouble) => findings.push(wrong("machines", "", trouble.told())),
    }
    findings
}
