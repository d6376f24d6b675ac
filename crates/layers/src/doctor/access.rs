//! Whether Proxmox lets castle in, and what it may do there.

use castle_proxmox::model::{ErrorClass, Refusal, Release, Requirement};

use super::{Finding, names};

/// The oldest release that takes disk images by download; and the newest generation that castle was tried on.
const OLDEST: Release = Release { major: 8, minor: 4 };
const NEWEST: u32 = 9;

/// What the first answer tells, or that there was none.
pub(super) fn admission(answer: Result<Release, Refusal>) -> (Vec<Finding>, Option<Release>) {
    let reached = || Finding::well("reachable", "", "it answers");
    let believed = || Finding::well("certificate", "", "it is the one that castle.yaml lets castle believe");
    let refusal = match answer {
        Ok(release) => {
            return (vec![reached(), believed(), Finding::well("token", "", "it is accepted")], Some(release));
        }
        Err(refusal) => refusal,
    };
    let sentence = refusal.sentence.clone();
    let findings = match refusal.class {
        ErrorClass::Untrusted => {
            let certificate = Finding::wrong("certificate", "", sentence)
                .next("on the host: pvenode cert info; if its fingerprint is that one, write it into castle.yaml as platform.proxmox.fingerprint");
            vec![reached(), certificate]
        }
        ErrorClass::Unauthenticated => {
            let token = Finding::wrong("token", "", format!("it is wrong, expired or disabled: {sentence}"))
                .next("Datacenter > Permissions > API Tokens shows it; castle doctor --pveum makes a new one");
            vec![reached(), believed(), token]
        }
        ErrorClass::Unreadable => {
            let evidence = format!("something answers, and it is not Proxmox: {sentence}");
            vec![Finding::wrong("reachable", "", evidence).next("is platform.proxmox.endpoint right? Its port is 8006 as a rule")]
        }
        _ => {
            let next = "is the host up, and platform.proxmox.endpoint right? refused: nothing listens there; no answer: a firewall, or \
                        nobody has that address; no route or no name: this machine's network";
            vec![Finding::wrong("reachable", "", sentence).next(next)]
        }
    };
    (findings, None)
}

pub(super) fn version(release: Release) -> Finding {
    let subject = format!("Proxmox VE {release}");
    if release < OLDEST {
        return Finding::wrong("version", subject, format!("castle needs {OLDEST}: older ones do not take disk images by download"))
            .next("upgrade Proxmox");
    }
    if release.major > NEWEST {
        return Finding::warning("version", subject, format!("castle was never tried on anything newer than {NEWEST}.x"));
    }
    Finding::well("version", subject, "castle knows it")
}

pub(super) fn quorum(answer: Result<Option<bool>, Refusal>) -> Finding {
    match answer {
        Ok(Some(true)) => Finding::well("quorum", "", "enough hosts are there"),
        Ok(None) => Finding::well("quorum", "", "a single host needs none"),
        Ok(Some(false)) => Finding::wrong("quorum", "", "too few hosts of the cluster are there: nothing can be changed")
            .next("bring the other hosts back: pvecm status"),
        Err(refusal) => Finding::refused("quorum", "", &refusal),
    }
}

/// One finding for each privilege that lacks.
pub(super) fn privileges(all: &[Requirement], lacks: &[Requirement]) -> Vec<Finding> {
    if lacks.is_empty() {
        let mut places: Vec<&str> = all.iter().map(|it| it.path.as_str()).collect();
        places.dedup();
        return vec![Finding::well("privileges", "", format!("all that castle needs on {}", names(places)))];
    }
    let finding = |lack: &Requirement| {
        let Requirement { path, privilege, reason, optional, .. } = lack;
        let evidence = format!("{privilege} is missing: {reason}");
        let finding = match optional {
            true => Finding::warning("privileges", path, evidence),
            false => Finding::wrong("privileges", path, evidence),
        };
        finding.next("castle doctor --pveum prints the commands that grant it")
    };
    lacks.iter().map(finding).collect()
}
