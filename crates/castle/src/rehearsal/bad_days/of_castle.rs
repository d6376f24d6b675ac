//! What happens to castle itself: it is stopped, its disk fills, its file changes, somebody else runs it.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::blueprint::Placed;
use castle_engine::Seal;
use castle_rehearsal::{Chance, Loss, Moment};
use clap::Parser;
use zeroize::Zeroizing;

use super::super::fixture::HOME;
use super::super::life::{At, Kill};
use super::super::script::STATE;
use super::of_identity::vaulted;
use super::*;
use crate::cli::Cli;
use crate::commands::perform;
use crate::output::{Printed, Printer};

/// With all layers.
pub(super) fn full() -> String {
    SMALL
        .replace("storage: none\n", "")
        .replace("vip: 127.42.0.10}", "vip: 127.42.0.10, loadBalancers: 127.42.0.200-127.42.0.210}")
        + "gitops: {repository: embedded, folder: gitops}\n"
}

fn has_any(life: &Life, collection: &str) -> bool {
    !life.datacenter.object_names("blue", collection).is_empty()
}

fn has_nodes(life: &Life) -> bool {
    life.datacenter.object_names("blue", "nodes").len() == 2
}

/// Everything of the disk that is called so.
fn kept(life: &Life, part: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let is_meant = |path: &Path| path.starts_with(STATE) && path.to_string_lossy().contains(part);
    life.disk().contents().into_iter().filter(|(path, _)| is_meant(path)).collect()
}

#[test]
fn ctrl_c_at_each_layer() {
    let full = written(&full());
    day_of(&full, async |life| {
        let layers: [fn(&Life) -> bool; 7] = [
            |life| !kept(life, "secrets").is_empty(),
            |life| has_guest(life, "blue-cp-1"),
            has_nodes,
            |life| has_any(life, "clustersecretstores.external-secrets.io"),
            |life| has_any(life, "ipaddresspools.metallb.io"),
            |life| has_any(life, "nodes.longhorn.io"),
            |life| has_any(life, "gitrepositories.source.toolkit.fluxcd.io"),
        ];
        let mut count = 0;
        for begun in layers {
            // Layers inside of the cluster overlap: one may have come along with another.
            if begun(life) {
                continue;
            }
            let told = meanwhile(life, &["up"], begun, async |life| life.interrupt()).await;
            hold(&told, Exit::Interrupted, &["Interrupted. ", "Run the same command again to go on."]);
            count += 1;
        }
        assert!(count >= 4, "{count}");
    });
}

#[test]
fn kill_9_at_each_layer() {
    let full = written(&full());
    day_of(&full, async |life| {
        for (number, part) in ["/clone", "/status/start", "ApplyConfiguration", "Bootstrap"].into_iter().enumerate() {
            killed(life, number, part).await;
        }
        let mut count = 0;
        for (number, space) in
            ["external-secrets", "metallb-system", "longhorn-system", "flux-system"].into_iter().enumerate()
        {
            // Layers inside of the cluster overlap: all of one may have been written before another was cut off.
            count += usize::from(dies(life, number, &format!("/namespaces/{space}")).await.is_ok());
        }
        assert!(count >= 2, "{count}");
    });
}

/// Kills `up` at the first change of this name. There is one.
async fn killed(life: &Life, number: usize, part: &str) {
    let lived = dies(life, number, part).await.err();
    assert_eq!(lived, None, "it was not killed");
}

/// Kills `up` at the first change of this name, before it or after it, with or without a power cut; what it said, if it lived.
async fn dies(life: &Life, number: usize, part: &str) -> Result<(), String> {
    let (moment, loss) = match number % 3 {
        0 => (Moment::Before, Loss::None),
        1 => (Moment::After, Loss::PowerCut(number as u64)),
        _ => (Moment::After, Loss::None),
    };
    let part = part.to_owned();
    let at = At::Change(Box::new(move |change| change.contains(&part)));
    let told = life.run_killed(&["up"], Kill { at, moment, loss }).await;
    if told.exit.is_none() { Ok(()) } else { Err(told.printed.text) }
}

#[test]
fn a_disk_of_castles_own_that_is_full() {
    day(async |life| {
        let full = async |life: &Life| life.disk().limit(Some(0));
        let told = meanwhile(life, &["up"], |life| has_guest(life, "blue-cp-1"), full).await;
        hold(&told, Exit::Failed, &["next: ", "nothing was done that is not noted"]);
        life.disk().limit(None);
    });
}

#[test]
fn two_operators_at_once() {
    day(async |life| {
        let second = async |life: &Life| {
            for words in [["castle", "up", HOME], ["castle", "rebirth", HOME]] {
                let told = beside(life, &words).await;
                let text = told.1.text;
                assert!(
                    told.0 == Exit::Refused && text.contains("another castle on this machine works on blue"),
                    "{text}"
                );
            }
        };
        let told = meanwhile(life, &["up"], |life| has_guest(life, "blue-cp-1"), second).await;
        hold(&told, Exit::Done, &["stands."]);
    });
}

/// Somebody else on the same machine.
pub(super) async fn beside(life: &Life, words: &[&str]) -> (Exit, Printed) {
    let (cli, mut printer) = (
        Cli::try_parse_from(words.iter().copied().chain(["--yes"].into_iter().filter(|_| words[1] == "rebirth"))),
        Printer::into_memory(),
    );
    let exit = Box::pin(perform(&cli.unwrap().command, &life.doors(), &mut printer)).await;
    (exit, printer.printed())
}

/// As `castle lease take` on another machine leaves it.
fn take_lease_away(life: &Life) {
    let leases = kept(life, "lease");
    let [(path, bytes)] = leases.as_slice() else { panic!("{leases:?}") };
    let taken = reworded(bytes, 1, |lease| {
        let epoch = lease["epoch"].as_u64().unwrap();
        lease["epoch"] = (epoch + 1).into();
        lease["owner"] = "someone@elsewhere".into();
        lease["released"] = true.into();
    });
    life.disk().tamper(path, taken);
}

#[test]
fn a_lease_that_is_taken_away_in_the_middle() {
    day(async |life| {
        let told = meanwhile(
            life,
            &["up"],
            |life| has_guest(life, "blue-cp-1"),
            async |life| {
                take_lease_away(life);
                life.tally.changes();
            },
        )
        .await;
        hold(&told, Exit::Failed, &["the lease was taken by someone@elsewhere"]);
        // What was sent before is not called back; nothing is begun.
        let begun = life.tally.changes();
        assert!(!begun.iter().any(|change| change.contains("/status/start")), "{begun:#?}");
        assert!(life.datacenter.cluster("blue").is_none());
    });
}

/// Goal: a life is ended by the one who has taken it down, or by nobody. Method: the lease is taken away when all is gone, and what is left to do is to write
/// that down.
#[test]
fn a_lease_that_is_taken_away_right_before_a_life_ends() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        // Others have guests and images of their own.
        let there = |life: &Life| {
            let look = life.datacenter.look();
            (look.guests.len(), look.volumes.keys().filter(|(_, name)| name.contains("import/")).count())
        };
        let of_others = there(&life);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let records = |life: &Life| {
            let all = life.disk().contents().into_iter().filter(|(path, _)| path.starts_with(STATE));
            all.filter(|(path, _)| path.ends_with("castle") || path.to_string_lossy().contains("platform"))
                .collect::<Vec<_>>()
        };
        let before = std::sync::Mutex::new(Vec::new());
        let is_gone = |life: &Life| {
            let is_at_work = life.datacenter.look().tasks.iter().any(|task| task.ended.is_none());
            there(life) == of_others && !is_at_work && vaulted(life).is_empty()
        };
        let taken = async |life: &Life| {
            take_lease_away(life);
            *before.lock().unwrap() = records(life);
        };
        let told = meanwhile(&life, &["down", "--yes"], is_gone, taken).await;
        hold(&told, Exit::Failed, &["the lease was taken by someone@elsewhere"]);
        let before = before.into_inner().unwrap();
        assert!(!before.is_empty() && records(&life) == before, "{}", told.printed.text);
    });
}

#[test]
fn a_file_that_changes_between_crash_and_resume() {
    let larger =
        SMALL.replace("count: 1, firstAddress: 127.42.0.21, cores: 4", "count: 2, firstAddress: 127.42.0.21, cores: 6");
    let expected = undisturbed(&written(&larger));
    for part in ["/clone", "ApplyConfiguration"] {
        day_to(&small(), &expected, async |life| {
            killed(life, 0, part).await;
            life.disk().tamper(&Path::new(HOME).join("castle.yaml"), larger.as_bytes().to_vec());
            hold(&life.run(&["plan"]).await, Exit::Done, &["platform/vm/blue-worker-2"]);
        });
    }
}

#[test]
fn a_state_of_a_newer_castle() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let births: Vec<_> = kept(life, "blue").into_iter().filter(|(path, _)| path.ends_with("castle")).collect();
        assert!(!births.is_empty());
        for (path, bytes) in &births {
            life.disk().tamper(path, reworded(bytes, 99, |_| {}));
        }
        life.tally.changes();
        for verb in ["up", "plan", "adopt"] {
            hold(&life.run(&[verb]).await, Exit::Failed, &["a newer castle wrote it (format 99)"]);
        }
        hold(&life.run(&["down", "--yes"]).await, Exit::Failed, &["a newer castle wrote it (format 99)"]);
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        for (path, bytes) in births {
            life.disk().tamper(&path, bytes);
        }
    });
}

/// It is named, and stays as it is.
#[test]
fn what_a_newer_castle_has_seen_and_begun() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let seen = kept(life, ".seen.json");
        let [(path, bytes)] = seen.as_slice() else { panic!("{seen:?}") };
        let newer = reworded(bytes, 99, |_| {});
        life.disk().tamper(path, newer.clone());
        life.tally.changes();
        for verb in ["up", "adopt"] {
            let told = ".seen.json was written by a newer castle (format 99): use that one";
            hold(&life.run(&[verb]).await, Exit::Failed, &[told]);
        }
        assert_eq!((life.tally.changes(), &life.disk().contents()[path]), (Vec::new(), &newer));
        life.disk().tamper(path, bytes.clone());

        let (note, newer) = (path.with_file_name("rebirth"), reworded(b"{}", 99, |_| {}));
        life.disk().tamper(&note, newer.clone());
        hold(&life.run(&["rebirth", "--yes"]).await, Exit::Refused, &["a newer castle has begun a rebirth of blue"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!((life.tally.changes(), &life.disk().contents()[&note]), (Vec::new(), &newer));
    });
}

/// Goal: the bundle in the vault may be the last copy of what somebody stands on, so what castle cannot open there is named and never written over. Method: a
/// newer castle wrote it, one without formats did, it is sealed for others, and it is damaged; each by somebody's hand beside a state that has one, too.
#[test]
fn a_bundle_in_the_vault_that_castle_cannot_open() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let place = life.script.vault.clone().unwrap();
        let put = |value: &str| {
            let placed = Placed::new(&place.environment, &place.folder, "TALOS_BUNDLE", value);
            life.datacenter.place_secret(&place.host, &place.project, placed);
        };
        let bundle = vaulted(life).into_iter().find(|(name, _)| name.contains("TALOS_BUNDLE")).unwrap().1;
        let identity = life.script.variables["SOPS_AGE_KEY"].to_str().unwrap().to_owned();
        let seal = Seal::own(&[Zeroizing::new(identity)]).unwrap();
        let plain = String::from_utf8(seal.open(&STANDARD.decode(&bundle).unwrap()).unwrap().plain.to_vec()).unwrap();
        let sealed = |seal: &Seal, plain: &str| STANDARD.encode(seal.seal(plain.as_bytes(), &[]).unwrap());
        let others = Seal::own(&[Seal::mint_identity(&Chance::new(99)).unwrap()]).unwrap();
        let newer = plain.replace("\"format\":1", "\"format\":99");
        let unversioned = plain.replace("\"format\":1,", "").replace(",\"format\":1", "");
        assert!(newer != plain && unversioned != plain && !unversioned.contains("format"));
        let cases = [
            (sealed(&seal, &newer), "a newer castle wrote it (format 99; this one knows 1)", "next: use that castle"),
            (
                sealed(&seal, &unversioned),
                "an early castle wrote it",
                "next: take the castle down with the one that raised it",
            ),
            (sealed(&others, &plain), "is sealed for others: none of the", "next: give castle a key that opens it"),
            ("!".to_owned(), "it is no base64", "next: bring it back from a backup of the vault"),
        ];
        for (value, why, next) in cases {
            put(&value);
            let before = vaulted(life);
            life.tally.changes();
            let subject = format!("TALOS_BUNDLE in {} of the vault", place.folder);
            for verb in ["plan", "up"] {
                hold(&life.run(&[verb]).await, Exit::Refused, &[&subject, why, next]);
            }
            assert_eq!((life.tally.changes(), vaulted(life)), (Vec::new(), before), "{why}");
        }
        // Somebody's word that it is of no use is to remove it: the state has the secrets of what stands.
        life.datacenter.remove_secret(&place.host, &place.project, &place.environment, &place.folder, "TALOS_BUNDLE");
        hold(&life.run(&["up"]).await, Exit::Done, &["secrets/vault/blue"]);
        let again = vaulted(life).into_iter().find(|(name, _)| name.contains("TALOS_BUNDLE")).unwrap().1;
        assert_eq!(seal.open(&STANDARD.decode(&again).unwrap()).unwrap().plain.to_vec(), plain.into_bytes());
    });
}
