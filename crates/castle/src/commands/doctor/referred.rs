//! What a castle's file refers to: secrets and patches, whether they can be had and are what they should be.

use castle_layers::doctor::{Finding, Verdict};
use castle_secrets::validate::check_all;
use castle_spec::values::SecretReference;

use super::nobody;
use super::remembered::wrong;
use crate::keeping::{Kept, Unreferred};

const SECRETS: &str = "secrets";
const PATCHES: &str = "patches";

/// What of it is in the way, beside what was found before. What is in a vault that does not let castle in is not asked for.
pub(super) async fn referred(kept: &Kept, before: &[Finding], vault: Result<(), &str>) -> Vec<Finding> {
    let is_vaulted = |reference: &SecretReference| matches!(reference, SecretReference::Vault(_));
    let is_meant = |reference: &SecretReference| vault.is_ok() || !is_vaulted(reference);
    let mut findings = Vec::new();
    let references = kept.castle.references();
    if let (Err(why), true) = (vault, references.iter().any(|reference| is_vaulted(&reference.value))) {
        findings.push(Finding::not_asked(SECRETS, why));
    }
    let mut secrets: Vec<String> = Vec::new();
    for checks in kept.each_check(is_meant).await {
        match checks {
            Ok(checks) => secrets.extend(check_all(&checks, kept.clock().wall()).iter().map(ToString::to_string)),
            Err(why) => secrets.push(why),
        }
    }
    match kept.referred().await {
        Ok(_) => {}
        Err(Unreferred::Refused(why) | Unreferred::Patch(why)) => findings.push(wrong(PATCHES, "", &why)),
        // It is not known what is in the vault.
        Err(Unreferred::Credential(_)) if vault.is_err() => {}
        Err(Unreferred::Credential(why)) => secrets.push(why),
    }
    let bundle = kept.castle.talos.bundle.as_ref().filter(|reference| is_meant(&reference.value));
    if bundle.is_some()
        && let Some(Err(fault)) = kept.strongroom(&nobody(kept), None).given().await
    {
        findings.push(Finding::wrong(SECRETS, fault.subject, fault.evidence).next(fault.next));
    }
    // A token without which there is nothing to ask with has been told of.
    let is_told = |found: &Finding| {
        let is_it = |it: &Finding| it.check == "token" && it.verdict == Verdict::Wrong && it.evidence == found.evidence;
        before.iter().any(is_it)
    };
    secrets.sort();
    secrets.dedup();
    let next = "correct what is named where it comes from";
    let told = secrets.iter().map(|why| wrong(SECRETS, "", why)).filter(|found| !is_told(found));
    findings.extend(told.map(|found| if found.next.is_empty() { found.next(next) } else { found }));
    findings
}
