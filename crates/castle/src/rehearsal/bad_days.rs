//! Bad days through the verbs, in virtual time and over several seeds: each is told with what it is about, what was seen and what to do; nothing of
//! others is touched; and `up` ends where an undisturbed one does.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use castle_datacenter::{EMBEDDED_TOKEN_ID, EMBEDDED_VAULT};
use castle_rehearsal::{Loss, ModelDisk, Moment, in_virtual_time};
use clap::Parser;
use futures_util::future::{Either, select};

use super::life::{At, Kill, Life, Told};
use super::promises::{Others, Picture};
use super::script::{Props, STATE, Script};
use crate::cli::Cli;
use crate::commands::perform;
use crate::doors::Doors;
use crate::output::{Exit, Printed, Printer};

/// Three worlds a day.
const SEEDS: [u64; 3] = [11, 22, 33];
/// A verb needs more than the thread of a test has.
const STACK: usize = 16 << 20;
const HOME: &str = "/castle";

const SMALL: &str = "castle: blue
platform: embedded
talos: {version: v1.13.9, serviceAccountKey: p256}
kubernetes: {version: v1.36.3}
network: {cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}
nodes:
  controlPlanes: {count: 1, firstAddress: 127.42.0.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 127.42.0.21, cores: 4, memory: 8GiB, disk: 32GiB, dataDisk: 100GiB}
storage: none
secrets: embedded
";
const WORKER: u32 = 1010;
const VIP: &str = "127.42.0.10";

/// With all layers.
fn full() -> String {
    SMALL
        .replace("storage: none\n", "")
        .replace("vip: 127.42.0.10}", "vip: 127.42.0.10, loadBalancers: 127.42.0.200-127.42.0.210}")
        + "gitops: {repository: embedded, folder: gitops}\n"
}

fn script(text: &str) -> Arc<Script> {
    let disk = ModelDisk::default();
    disk.tamper(&Path::new(HOME).join("castle.yaml"), text.as_bytes().to_vec());
    let word = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: word, namespace: default}\ndata: {a: b}\n";
    disk.tamper(&Path::new(HOME).join("gitops/clusters/blue/word.yaml"), word.as_bytes().to_vec());
    let doors = Doors { disk: Arc::new(disk), ..Doors::system() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Arc::new(runtime.block_on(Script::of(&doors, Path::new(HOME), Props::default())).unwrap())
}

fn small() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| script(SMALL));
    SCRIPT.clone()
}

/// The small castle as it is raised undisturbed: in every world the same, for nothing that is drawn is in a picture.
fn small_undisturbed() -> &'static Picture {
    static PICTURE: LazyLock<Picture> = LazyLock::new(|| undisturbed(&small()));
    &PICTURE
}

/// Each of these seeds, in a thread and a time of its own.
fn in_worlds(script: &Arc<Script>, seeds: &[u64], lived: impl AsyncFn(Life) + Sync) {
    std::thread::scope(|scope| {
        for &seed in seeds {
            let (script, lived) = (script.clone(), &lived);
            let world = move || in_virtual_time(async |clock| lived(Life::begin(&script, seed, clock)).await).unwrap();
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, world).unwrap();
        }
    });
}

/// The castle as it is raised undisturbed.
fn undisturbed(script: &Arc<Script>) -> Picture {
    let seen = std::sync::Mutex::new(Picture::default());
    in_worlds(script, &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        *seen.lock().unwrap() = Picture::of(&life.datacenter);
    });
    seen.into_inner().unwrap()
}

/// A day in three worlds. Whatever happens, nothing of others is touched, and `up` ends with the castle that is expected; after that it
/// has nothing to do.
fn day_to(script: &Arc<Script>, expected: &Picture, happens: impl AsyncFn(&Life) + Sync) {
    in_worlds(script, &SEEDS, async |life| {
        let others = Others::of(&life);
        happens(&life).await;
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(Picture::of(&life.datacenter).against(expected), Vec::<String>::new(), "{}", up.printed.text);
        life.tally.changes();
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
        assert_eq!((life.tally.changes(), others.touched(&life)), (Vec::new(), Vec::new()));
    });
}

/// A day of the small castle.
fn day(happens: impl AsyncFn(&Life) + Sync) {
    day_to(&small(), small_undisturbed(), happens);
}

/// A day of another castle.
fn day_of(script: &Arc<Script>, happens: impl AsyncFn(&Life) + Sync) {
    day_to(script, &undisturbed(script), happens);
}

/// Holds that a verb ended so, and said all this.
#[track_caller]
fn hold(told: &Told, exit: Exit, words: &[&str]) {
    let text = &told.printed.text;
    let is_telling = |line: &&str| !line.contains(" s  ");
    let end: Vec<&str> = text.lines().filter(is_telling).collect();
    assert_eq!(told.exit, Some(exit), "{end:#?}");
    for word in words {
        assert!(text.contains(word), "{word:?}: {end:#?}");
    }
}

/// Runs a verb, and lets something happen as soon as it is so.
async fn meanwhile(life: &Life, words: &[&str], when: impl Fn(&Life) -> bool, then: impl AsyncFnOnce(&Life)) -> Told {
    let watching = pin!(async {
        while !when(life) {
            life.clock().sleep(Duration::from_millis(50)).await;
        }
        then(life).await;
    });
    match select(pin!(life.run(words)), watching).await {
        Either::Left((told, _)) => panic!("it ended before that: {}", told.printed.text),
        Either::Right(((), running)) => running.await,
    }
}

fn has_guest(life: &Life, name: &str) -> bool {
    let guests = life.datacenter.look().guests;
    guests.values().any(|guest| guest.config.get("name").is_some_and(|is| is == name) && guest.lock.is_none())
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
    let full = script(&full());
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
    let full = script(&full());
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
fn a_vault_that_is_down_at_the_start() {
    day(async |life| {
        life.datacenter.vault_down(EMBEDDED_VAULT, true);
        let told = life.run(&["up"]).await;
        hold(
            &told,
            Exit::Failed,
            &["Infisical (127.0.0.2): cannot connect", "next: is it up, and is the region right? castle doctor"],
        );
        assert!(!has_guest(life, "blue-cp-1") && life.tally.changes().is_empty(), "nothing is begun");
        life.datacenter.vault_down(EMBEDDED_VAULT, false);
    });
}

#[test]
fn a_vault_that_goes_down_in_the_middle() {
    day(async |life| {
        let down = async |life: &Life| life.datacenter.vault_down(EMBEDDED_VAULT, true);
        let told = meanwhile(life, &["up"], |life| has_guest(life, "blue-cp-1"), down).await;
        hold(&told, Exit::Failed, &["ClusterSecretStore infisical", "next: kubectl describe clustersecretstore"]);
        life.datacenter.vault_down(EMBEDDED_VAULT, false);
    });
}

/// A castle on two hosts.
fn spread() -> Arc<Script> {
    script(
        &SMALL
            .replace("platform: embedded", "platform: {embedded: {nodes: [pve, pve2]}}")
            .replace("count: 1, firstAddress: 127.42.0.21", "count: 2, firstAddress: 127.42.0.21"),
    )
}

fn is_on_second(life: &Life) -> bool {
    life.datacenter
        .look()
        .guests
        .values()
        .any(|guest| guest.host == "pve2" && guest.config.get("name").is_some_and(|name| name.starts_with("blue-")))
}

#[test]
fn a_host_that_is_lost_while_it_clones() {
    day_of(&spread(), async |life| {
        let lost = async |life: &Life| life.datacenter.host_down("pve2");
        let told = meanwhile(life, &["up"], is_on_second, lost).await;
        hold(&told, Exit::Failed, &["pve2", "next: "]);
        life.datacenter.host_up("pve2");
        // A guest that was cut off while it was made can only be removed by root, and castle says how.
        let stuck: Vec<u32> = life
            .datacenter
            .look()
            .guests
            .values()
            .filter(|guest| guest.lock.is_some())
            .map(|guest| guest.vmid)
            .collect();
        if let Some(vmid) = stuck.first() {
            hold(&life.run(&["up"]).await, Exit::Failed, &[&format!("qm unlock {vmid} && qm destroy {vmid}")]);
        }
        for vmid in stuck {
            assert!(life.datacenter.remove_guest(vmid));
        }
    });
}

#[test]
fn a_host_that_is_lost_after_the_bootstrap() {
    day_of(&spread(), async |life| {
        let begun = |life: &Life| !life.datacenter.object_names("blue", "nodes").is_empty();
        let told = meanwhile(life, &["up"], begun, async |life| life.datacenter.host_down("pve2")).await;
        hold(&told, Exit::Failed, &["next: "]);
        let status = life.run(&["status"]).await;
        assert!(status.printed.text.contains("blue-worker-"), "{}", status.printed.text);
        life.datacenter.host_up("pve2");
        life.clock().sleep(Duration::from_secs(120)).await;
    });
}

#[test]
fn a_token_that_is_revoked() {
    day(async |life| {
        let revoked = async |life: &Life| life.datacenter.expire_token(EMBEDDED_TOKEN_ID);
        let told = meanwhile(life, &["up"], |life| has_guest(life, "blue-cp-1"), revoked).await;
        hold(&told, Exit::Failed, &["token", "next: "]);
        life.tally.changes();
        let again = life.run(&["up"]).await;
        hold(&again, Exit::Failed, &["token", "next: "]);
        assert_eq!(life.tally.changes(), Vec::<String>::new(), "whoever is not let in begins nothing");
        life.datacenter.renew_token(EMBEDDED_TOKEN_ID);
    });
}

#[test]
fn a_storage_that_is_full() {
    day(async |life| {
        let fill = async |life: &Life| life.datacenter.fill_storage("pve", "local-lvm", 1 << 20);
        let is_made =
            |life: &Life| life.datacenter.look().volumes.keys().any(|(_, name)| name.starts_with("local:import"));
        let told = meanwhile(life, &["up"], is_made, fill).await;
        hold(&told, Exit::Failed, &["local-lvm", "next: "]);
        life.datacenter.fill_storage("pve", "local-lvm", u64::MAX);
    });
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
async fn beside(life: &Life, words: &[&str]) -> (Exit, Printed) {
    let (cli, mut printer) = (
        Cli::try_parse_from(words.iter().copied().chain(["--yes"].into_iter().filter(|_| words[1] == "rebirth"))),
        Printer::into_memory(),
    );
    let exit = Box::pin(perform(&cli.unwrap().command, &life.doors(), &mut printer)).await;
    (exit, printer.printed())
}

#[test]
fn a_file_that_changes_between_crash_and_resume() {
    let larger =
        SMALL.replace("count: 1, firstAddress: 127.42.0.21, cores: 4", "count: 2, firstAddress: 127.42.0.21, cores: 6");
    let expected = undisturbed(&script(&larger));
    for part in ["/clone", "ApplyConfiguration"] {
        day_to(&small(), &expected, async |life| {
            killed(life, 0, part).await;
            life.disk().tamper(&Path::new(HOME).join("castle.yaml"), larger.as_bytes().to_vec());
            hold(&life.run(&["plan"]).await, Exit::Done, &["platform/vm/blue-worker-2"]);
        });
    }
}

#[test]
fn a_guest_that_is_deleted_by_hand() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert!(life.datacenter.remove_guest(WORKER));
        hold(&life.run(&["drift"]).await, Exit::Differs, &["blue-worker-1"]);
        hold(&life.run(&["plan"]).await, Exit::Done, &["create", "platform/vm/blue-worker-1"]);
    });
}

#[test]
fn memory_that_is_changed_by_hand() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert!(life.datacenter.change_guest(WORKER, &[("memory", Some("2048"))]));
        hold(&life.run(&["drift"]).await, Exit::Differs, &["blue-worker-1", "memory", "2048", "8192"]);
        hold(
            &life.run(&["plan", "--deep"]).await,
            Exit::Done,
            &["reboot", "platform/vm/blue-worker-1", "memory: 2048 -> 8192"],
        );
        // The list of all guests shows what runs: what waits for the next start is found by who looks at each guest in full.
        hold(&life.run(&["up", "--deep"]).await, Exit::Done, &["platform/vm/blue-worker-1"]);
    });
}

#[test]
fn a_state_of_a_newer_castle() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let is_birth = |(_, bytes): &(PathBuf, Vec<u8>)| String::from_utf8_lossy(bytes).contains("\"format\":1");
        let births: Vec<_> = kept(life, "blue")
            .into_iter()
            .filter(is_birth)
            .filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("lineage"))
            .collect();
        assert!(!births.is_empty());
        for (path, bytes) in &births {
            let newer = String::from_utf8_lossy(bytes).replace("\"format\":1", "\"format\":99");
            life.disk().tamper(path, newer.into_bytes());
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

#[test]
fn an_address_that_another_device_has() {
    day(async |life| {
        let vip: IpAddr = VIP.parse().unwrap();
        life.datacenter.occupy_address(vip, true);
        let told = life.run(&["up"]).await;
        hold(
            &told,
            Exit::Failed,
            &[VIP, "Another device may have this address", "next: find out whose it is: arping 127.42.0.10"],
        );
        life.datacenter.occupy_address(vip, false);
    });
}

#[test]
fn an_image_that_is_not_there() {
    let wrong = SMALL
        .replace("serviceAccountKey: p256}", "serviceAccountKey: p256, image: {factory: 'https://images.example'}}");
    day_to(&script(&wrong), small_undisturbed(), async |life| {
        let told = life.run(&["up"]).await;
        hold(
            &told,
            Exit::Failed,
            &["platform/image/talos-v1.13.9", "https://images.example/image/", "failed: exit code 8", "next: "],
        );
        assert!(!has_guest(life, "blue-cp-1"));
        life.disk().tamper(&Path::new(HOME).join("castle.yaml"), SMALL.as_bytes().to_vec());
    });
}
