//! `castle doctor`: what is in the way of a castle, asked of the world without changing it.

mod referred;
mod remembered;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use castle_engine::{CastleId, Fault};
use castle_http::{Endpoint, Trust};
use castle_layers::Site;
use castle_layers::cluster;
use castle_layers::doctor::{Case, Finding, Verdict, examine, needs, pointless_after};
use castle_proxmox::client::{Access, Client, Token};
use castle_proxmox::model::{Refusal, Release, pveum};
use castle_secrets::{Secret, redact};
use castle_spec::model::Platform;
use castle_spec::values::SecretReference;
use clap::Args;
use serde_json::{Value, json};

use crate::doors::Doors;
use crate::hypervisor;
use crate::keeping::Kept;
use crate::masking;
use crate::output::{Exit, Printer};
use crate::preflight;
use crate::secret::members_there;
use crate::stand::{Stand, Trouble};

/// How long a host may take to be connected to when only its certificate is looked at.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The members of mappings that are secret: of an identity of the vault, and of credentials for repositories.
const SECRET_PARTS: [&str; 4] = ["clientSecret", "password", "bearerToken", "identity"];
/// Whom `--pveum` makes.
const USER: &str = "castle@pve";

/// Look for anything in the way of a castle, without changing anything
///
/// Asks the hypervisor whether it is there, lets castle in and has all that the file needs: privileges, hosts, storages, bridge,
/// memory, free VMIDs and addresses; and the vault and the Git repository whether they can be used. Each finding says what was seen
/// and what to do about it (docs/doctor.md).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  castle doctor\n  castle doctor clusters/blue/proxmox --pveum | ssh root@pve sh")]
pub(crate) struct DoctorArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Print the commands that make a Proxmox token with just the privileges this castle needs
    #[arg(long)]
    pveum: bool,
    /// The release that the commands are for; asked of Proxmox, or else the newest
    #[arg(long, value_name = "MAJOR", requires = "pveum", value_parser = clap::value_parser!(u32).range(8..=9))]
    release: Option<u32>,
}

pub(crate) async fn doctor(args: &DoctorArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let kept = Kept::open(doors, &args.path).map_err(Trouble::Invalid)?;
    let site = Site::of(&kept.castle);
    if args.pveum {
        return Ok(commands(args, &kept, &site, printer).await);
    }
    let probe_addresses = matches!(kept.castle.platform.value, Platform::Proxmox(_));
    match hypervisor::reach(&kept).await {
        Ok(client) => Ok(visit(Stand::at(kept, client, site).looking(), probe_addresses, &args.path, printer).await),
        Err(why) => {
            let mut findings = unequipped(&site, probe_addresses, &why);
            // The way there can be tried without a token.
            if let (Platform::Proxmox(proxmox), Some(reached)) = (&kept.castle.platform.value, findings.first_mut())
                && reached.check == "reachable"
                && reached.verdict == Verdict::Unknown
            {
                *reached = reachable(&kept, proxmox.endpoint.as_str()).await;
            }
            findings.extend(remembered::state(&kept).await);
            findings.push(Finding::not_asked("machines", "castle does not get that far"));
            if why.starts_with(hypervisor::ABSENT) {
                // The vault may be in it, and manifests are made for who is in that.
                findings.extend(["vault", "manifests"].map(|check| Finding::not_asked(check, hypervisor::ABSENT)));
                let found = referred::referred(&kept, &findings, Err(hypervisor::ABSENT)).await;
                findings.extend(found);
            } else {
                let vault = vault(&kept).await;
                let found = referred::referred(&kept, &findings, opened(vault.as_ref())).await;
                findings.extend(vault.into_iter().chain(found));
                findings.extend(remembered::manifests(&kept).await);
            }
            findings.extend(preflight::look(&kept).await.findings());
            findings.extend(plain_secrets(&kept).await);
            Ok(tell(&kept, &findings, &args.path, printer))
        }
    }
}

/// Looks at the castle from where it stands.
async fn visit(stand: Stand, probe_addresses: bool, path: &Path, printer: &mut Printer) -> Exit {
    let kept = &stand.kept;
    let doubtful = |why: String| (nobody(kept), Some(Finding::wrong("identity", kept.key(), why)));
    let (identity, doubt) = match kept.castle_id().await {
        Ok(Some(castle)) => (castle, None),
        Ok(None) => match stand.identify().await {
            Ok(identity) => (identity.castle, None),
            // That Proxmox does not answer is said better below.
            Err(Trouble::Failed(_) | Trouble::Said(_) | Trouble::Interrupted) => (nobody(kept), None),
            Err(Trouble::Refused(why) | Trouble::Invalid(why)) => doubtful(why),
        },
        Err(why) => doubtful(why),
    };
    let dial = kept.doors.dial(CONNECT_TIMEOUT);
    let case = Case {
        client: &stand.client,
        site: &stand.site,
        castle: &kept.castle,
        nodes: &kept.nodes,
        identity: &identity,
        dial: dial.as_ref(),
        probe_addresses,
    };
    let at = stand.looking_at("what the castle needs");
    let mut findings = examine(case).await;
    drop(at);
    for finding in findings.iter_mut().filter(|it| it.check == "certificate" && it.verdict == Verdict::Wrong) {
        if let Some(Ok(fingerprint)) = fingerprint_seen(kept).await {
            finding.evidence = format!("{}; the fingerprint of what is there: {fingerprint}", finding.evidence);
            finding.next = format!(
                "on the host: pvenode cert info; if it shows the same, write into castle.yaml, under platform.proxmox: fingerprint: \"{fingerprint}\""
            );
        }
    }
    findings.extend(doubt);
    findings.extend(remembered::state(kept).await);
    findings.extend(remembered::standing(&stand, &identity).await);
    let vault = vault(kept).await;
    let found = referred::referred(kept, &findings, opened(vault.as_ref())).await;
    findings.extend(vault.into_iter().chain(found));
    findings.extend(preflight::look(kept).await.findings());
    findings.extend(plain_secrets(kept).await);
    tell(kept, &findings, path, printer)
}

/// Secrets of the file that castle cannot keep out of what it prints, by name. That one cannot be had is told elsewhere.
async fn plain_secrets(kept: &Kept) -> Vec<Finding> {
    let mut findings = Vec::new();
    for reference in kept.castle.references() {
        for (name, _) in secret_parts(kept, &reference.value).await.iter().filter(|(_, part)| !is_masked(part)) {
            let evidence = format!(
                "is too short or too plain to be masked: castle takes a secret out of all that it prints only if it has {} letters or more, four of them \
                 different",
                redact::SHORTEST
            );
            let next = "replace it by a longer one, drawn by chance";
            findings.push(Finding::warning("secrets", name.clone(), evidence).next(next));
        }
    }
    findings
}

fn is_masked(part: &Secret) -> bool {
    redact::is_masked(part.expose())
}

/// The secret parts of what a reference refers to, each with its name: the text, or members of a mapping in a SOPS file or of an object, or the password beside a
/// user.
async fn secret_parts(kept: &Kept, reference: &SecretReference) -> Vec<(String, Secret)> {
    let named = |(name, part): (String, Secret)| (format!("{reference} ({name})"), part);
    if let SecretReference::Sops { file, path } = reference {
        let file = kept.file.parent().unwrap_or(Path::new("")).join(file);
        let parts = members_there(&file, path, &SECRET_PARTS, &kept.doors).unwrap_or_default();
        if !parts.is_empty() {
            return parts.into_iter().map(named).collect();
        }
    }
    let Ok(secret) = kept.secret(reference).await else { return Vec::new() };
    let mut mirrors = kept.castle.talos.mirrors.iter();
    let is_login = mirrors.any(|(_, mirror)| mirror.credential.as_ref().is_some_and(|known| known.value == *reference));
    if let Some(password) = cluster::password(&secret).filter(|_| is_login) {
        return vec![named(("password".to_owned(), password))];
    }
    let object: Option<BTreeMap<String, String>> = serde_json::from_str(secret.expose()).ok();
    let Some(object) = object else { return vec![(reference.to_string(), secret)] };
    let parts = object.into_iter().filter(|(name, _)| SECRET_PARTS.contains(&name.as_str()));
    parts.map(|(name, part)| named((name, Secret::from(part)))).collect()
}

/// Whether the castle's vault lets castle in, if there is one.
async fn vault(kept: &Kept) -> Option<Finding> {
    let chamber = match kept.chamber() {
        Ok(chamber) => chamber?,
        Err(why) => return Some(Finding::wrong("vault", "", why)),
    };
    let _at = kept.doors.at(format!("asking the vault whether it lets castle in ({})", chamber.address()));
    Some(match chamber.vault.whoami().await {
        Ok(account) => Finding::well("vault", account.place, "lets castle in"),
        Err(error) => {
            let fault = Fault::from(error);
            Finding::wrong("vault", fault.subject, fault.evidence).next(fault.next)
        }
    })
}

/// Whether what is in the vault can be asked for, by what was found of it.
fn opened(vault: Option<&Finding>) -> Result<(), &'static str> {
    match vault {
        Some(found) if found.verdict == Verdict::Wrong => Err("the vault does not let castle in"),
        _ => Ok(()),
    }
}

/// A castle that nobody has raised: no mark bears its lineage.
fn nobody(kept: &Kept) -> CastleId {
    CastleId { name: kept.key(), lineage: "unborn".to_owned(), generation: 1 }
}

/// What is found when there is nothing to ask Proxmox with.
fn unequipped(site: &Site, probe_addresses: bool, why: &str) -> Vec<Finding> {
    const BEFORE: [&str; 2] = ["reachable", "certificate"];
    let (check, next) = match why {
        _ if why.starts_with("platform.proxmox.token") => {
            ("token", "castle doctor --pveum makes one; its secret is kept where `token` in castle.yaml says")
        }
        _ if why.starts_with("platform.proxmox.ca") || why.starts_with("no certificate") => {
            ("certificate", "name the file of the authority in castle.yaml, or the fingerprint of the certificate")
        }
        _ => ("reachable", ""),
    };
    let before = BEFORE.into_iter().take_while(|name| *name != check);
    let mut findings: Vec<Finding> =
        before.map(|name| Finding::not_asked(name, "there is nothing to ask with")).collect();
    let (why, told) = why.split_once("\n  next: ").unwrap_or((why, next));
    findings.push(match why.starts_with(hypervisor::ABSENT) {
        // Nothing is wrong with what nobody has started yet.
        true => Finding { verdict: Verdict::Unknown, ..Finding::wrong(check, "", why).next(told) },
        false => Finding::wrong(check, "", why).next(told),
    });
    findings.extend(pointless_after(check, site, probe_addresses, "castle does not get that far"));
    findings
}

/// Whether something answers where the file says that Proxmox is: whoever it is, for nothing is sent.
async fn reachable(kept: &Kept, endpoint: &str) -> Finding {
    match fingerprint_seen(kept).await {
        Some(Ok(fingerprint)) => {
            let evidence = format!(
                "something answers, with the certificate {fingerprint}; whether it is Proxmox is not known without a token"
            );
            Finding::warning("reachable", endpoint, evidence)
        }
        Some(Err(refusal)) => Finding::wrong("reachable", endpoint, refusal.sentence)
            .next("mend platform.proxmox.endpoint in castle.yaml, or the way there"),
        None => Finding::not_asked("reachable", "there is no way to try it"),
    }
}

/// The fingerprint of the certificate that is shown, whoever shows it; or what was seen instead. No token is sent: the connection ends before.
async fn fingerprint_seen(kept: &Kept) -> Option<Result<String, Refusal>> {
    let Platform::Proxmox(proxmox) = &kept.castle.platform.value else { return None };
    let access = Access {
        endpoint: Endpoint::parse(proxmox.endpoint.as_str()).ok()?,
        // No certificate has this one, so whatever is there is named.
        trust: Trust::Fingerprint([0; 32]),
        token: Token::parse("nobody@pve!nobody=nothing").ok()?,
    };
    let refusal =
        Client::new(access, kept.doors.dial(CONNECT_TIMEOUT), kept.doors.clock.clone()).ok()?.release().await.err()?;
    let shown = refusal.sentence.split_once("the fingerprint ").and_then(|(_, rest)| rest.split(',').next());
    Some(shown.map(str::to_owned).ok_or(refusal))
}

fn tell(kept: &Kept, findings: &[Finding], path: &Path, printer: &mut Printer) -> Exit {
    let findings: Vec<Finding> = findings.iter().map(masking::finding).collect();
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    for finding in &findings {
        printer.say(&line(finding, width));
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (wrong, warnings, unknown) = (count(Verdict::Wrong), count(Verdict::Warning), count(Verdict::Unknown));
    let rest = format!("{warnings} to know of, {unknown} unknown");
    let mut unseen: Vec<&str> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.verdict == Verdict::Unknown) {
        if !unseen.contains(&finding.check) {
            unseen.push(finding.check);
        }
    }
    if wrong == 0 {
        let far = if unknown == 0 { "" } else { ", as far as castle looked" };
        printer.say(&format!(
            "\nNothing found in the way of {}{far} ({rest}): castle up {}",
            kept.name(),
            path.display()
        ));
        if unknown > 0 {
            printer.say(&format!("Not known: {}.", unseen.join(", ")));
        }
    } else {
        let things = if wrong == 1 { "1 thing is".to_owned() } else { format!("{wrong} things are") };
        printer.complain_to_people(&format!("\n{things} in the way of {} ({rest}).", kept.name()));
    }
    let objects: Vec<Value> = findings.iter().map(object).collect();
    let result = if wrong == 0 { "well" } else { "wrong" };
    printer.result(&json!({
        "verb": "doctor", "castle": kept.castle.castle.as_str(), "result": result, "findings": objects, "unknown": unseen,
    }));
    if wrong == 0 { Exit::Done } else { Exit::Failed }
}

/// A finding for people: a mark, what was seen, and what to do on a line of its own.
fn line(finding: &Finding, width: usize) -> String {
    let mark = match finding.verdict {
        Verdict::Well => "\u{1b}[32mok   \u{1b}[0m",
        Verdict::Warning => "\u{1b}[33mwarn \u{1b}[0m",
        Verdict::Wrong => "\u{1b}[1;31mWRONG\u{1b}[0m",
        Verdict::Unknown => "\u{1b}[36m?    \u{1b}[0m",
    };
    let subject = if finding.subject.is_empty() { String::new() } else { format!("{}: ", finding.subject) };
    let next = if finding.next.is_empty() { String::new() } else { format!("\n       next: {}", finding.next) };
    format!("{mark}  {:<width$}  {subject}{}{next}", finding.check, finding.evidence)
}

fn object(finding: &Finding) -> Value {
    let Finding { check, verdict, subject, evidence, next } = finding;
    json!({"check": check, "verdict": verdict.word(), "subject": subject, "evidence": evidence, "next": next})
}

/// Prints the commands. Proxmox is asked which release it is, but need not answer.
async fn commands(args: &DoctorArgs, kept: &Kept, site: &Site, printer: &mut Printer) -> Exit {
    let is_proxmox = matches!(kept.castle.platform.value, Platform::Proxmox(_));
    let asked = match (args.release, is_proxmox) {
        (Some(major), _) => Some(Release { major, minor: 0 }),
        (None, true) => match hypervisor::reach(kept).await {
            Ok(client) => client.release().await.ok(),
            Err(_) => None,
        },
        (None, false) => None,
    };
    let name = kept.castle.castle.as_str();
    let mut lines = pveum(&needs(site), asked.unwrap_or(Release { major: 9, minor: 0 }), USER, name);
    if asked.is_none() {
        lines.insert(
            0,
            "# Proxmox was not asked which release it is: for the older one, castle doctor --pveum --release 8"
                .to_owned(),
        );
    }
    if printer.is_json() {
        printer.result(&json!({"verb": "doctor", "castle": name, "result": "shown", "commands": lines}));
        return Exit::Done;
    }
    printer.data(&format!("{}\n", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::fixture::{SMALL, in_a_world, stand, written};

    #[test]
    fn a_finding_is_one_line_and_what_to_do_another() {
        let wrong = Finding::wrong("pool", "blue", "there is no such pool").next("as root: pveum pool add blue");
        let plain = |finding: &Finding| anstream::adapter::strip_str(&line(finding, 9)).to_string();
        let expected = "WRONG  pool       blue: there is no such pool\n       next: as root: pveum pool add blue";
        assert_eq!(plain(&wrong), expected);
        assert_eq!(plain(&Finding::not_asked("hosts", "so")), "?      hosts      not asked: so");
    }

    /// Goal: a reference to a mapping is looked at, too. Method: the identity of a vault, of which castle knows one member to be secret.
    #[test]
    fn the_secret_parts_of_a_mapping_are_looked_at() {
        let script = written(SMALL);
        let parts = in_a_world(&script, 1, async |life| {
            let kept = stand(life).await.kept;
            let mut all = Vec::new();
            for reference in kept.castle.references() {
                all.extend(secret_parts(&kept, &reference.value).await.into_iter().map(|(name, _)| name));
            }
            all
        });
        assert!(parts.contains(&"sops:secrets.enc.yaml#infisical (clientSecret)".to_owned()), "{parts:?}");
        assert!(parts.contains(&"sops:secrets.enc.yaml#proxmox.token".to_owned()), "{parts:?}");
        assert!(!parts.iter().any(|name| name.contains("clientId")), "{parts:?}");
    }

    /// Goal: a password is looked at by itself, however it is written down beside its user. Method: the credential of a mirror, in every form that castle takes.
    #[test]
    fn the_password_of_a_mirror_is_looked_at_by_itself() {
        let found = in_a_world(&written(SMALL), 1, async |life| {
            let (kept, mut all) = (stand(life).await.kept, Vec::new());
            for login in ["admin:pw12", "username: admin\npassword: pw12\n", "{username: admin, password: pw12}"] {
                life.disk().tamper(&life.script.file.with_file_name("registry.txt"), login.as_bytes().to_vec());
                all.push(plain_secrets(&kept).await);
            }
            all
        });
        for found in found {
            let names: Vec<&str> = found.iter().map(|found| found.subject.as_str()).collect();
            assert_eq!(names, ["file:registry.txt (password)"], "{found:?}");
        }
    }

    #[test]
    fn nothing_is_wrong_with_a_datacenter_that_nobody_has_started() {
        let text = include_str!("../../../../templates/proxmox.yaml").replace("PROJECT", "blue");
        let site = Site::of(&castle_spec::read(text.as_bytes()).castle.unwrap());
        let why = format!("{}: so\n  next: castle up starts one", hypervisor::ABSENT);
        let findings = unequipped(&site, true, &why);
        assert!(findings.iter().all(|found| found.verdict == Verdict::Unknown), "{findings:?}");
        assert_eq!((findings[0].check, findings[0].next.as_str()), ("reachable", "castle up starts one"));
    }

    #[test]
    fn what_is_missing_before_proxmox_can_be_asked_is_a_finding() {
        let text = include_str!("../../../../templates/proxmox.yaml").replace("PROJECT", "blue");
        let site = Site::of(&castle_spec::read(text.as_bytes()).castle.unwrap());
        for (why, wrong, unknown) in [
            ("platform.proxmox.token: the environment has no PROXMOX_TOKEN", "token", 12),
            ("platform.proxmox.ca: no such file", "certificate", 12),
            ("the embedded datacenter could not be started: so", "reachable", 12),
        ] {
            let findings = unequipped(&site, true, why);
            let of =
                |verdict| findings.iter().filter(|it| it.verdict == verdict).map(|it| it.check).collect::<Vec<_>>();
            assert_eq!((of(Verdict::Wrong), of(Verdict::Unknown).len()), (vec![wrong], unknown), "{why}");
            assert_eq!(findings[0].check, "reachable", "in the usual order");
        }
    }
}
