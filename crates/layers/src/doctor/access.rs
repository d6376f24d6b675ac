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
            vec![
                Finding::wrong("reachable", "", evidence)
                    .next("is platform.proxmox.endpoint right? Its port is 8006 as a rule"),
            ]
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
        return Finding::wrong(
            "version",
            subject,
            format!("castle needs {OLDEST}: older ones do not take disk images by download"),
        )
        .next("upgrade Proxmox");
    }
    if release.major > NEWEST {
        return Finding::warning(
            "version",
            subject,
            format!("castle was never tried on anything newer than {NEWEST}.x"),
        );
    }
    Finding::well("version", subject, "castle knows it")
}

pub(super) fn quorum(answer: Result<Option<bool>, Refusal>) -> Finding {
    match answer {
        Ok(Some(true)) => Finding::well("quorum", "", "enough hosts are there"),
        Ok(None) => Finding::well("quorum", "", "a single host needs none"),
        Ok(Some(false)) => {
            Finding::wrong("quorum", "", "too few hosts of the cluster are there: nothing can be changed")
                .next("bring the other hosts back: pvecm status")
        }
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

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn last(class: ErrorClass) -> Finding {
        let refusal = Refusal { class, subject: "the version".into(), sentence: "so it is".into(), changes: false };
        let (mut findings, release) = admission(Err(refusal));
        assert_eq!(release, None);
        let last = findings.pop().expect("something is found");
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Well), "{findings:?}");
        last
    }

    #[test]
    fn each_way_of_not_being_let_in_is_told_apart() {
        for (class, check) in [
            (ErrorClass::Unreachable, "reachable"),
            (ErrorClass::Unknown, "reachable"),
            (ErrorClass::Unreadable, "reachable"),
            (ErrorClass::Untrusted, "certificate"),
            (ErrorClass::Unauthenticated, "token"),
        ] {
            let finding = last(class);
            assert_eq!((finding.check, finding.verdict), (check, Verdict::Wrong), "{class:?}");
            assert!(finding.evidence.contains("so it is") && !finding.next.is_empty(), "{finding:?}");
        }
        assert!(last(ErrorClass::Untrusted).next.contains("pvenode cert info"));
    }

    #[test]
    fn releases_are_judged() {
        for (major, minor, verdict) in [
            (7, 4, Verdict::Wrong),
            (8, 3, Verdict::Wrong),
            (8, 4, Verdict::Well),
            (9, 0, Verdict::Well),
            (9, 9, Verdict::Well),
            (10, 0, Verdict::Warning),
        ] {
            assert_eq!(version(Release { major, minor }).verdict, verdict, "{major}.{minor}");
        }
    }
}
