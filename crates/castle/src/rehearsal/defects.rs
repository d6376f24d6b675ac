//! Goal: each promise is shown to be one that can be seen broken. Method: worlds into which a defect is planted, which breaks this
//! promise alone; it is told by its number, in which life, and with the thing that is wrong.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::blueprint::Stranger;
use castle_datacenter::{Asked, Reply, VaultAsked, VaultReply, Witness};
use castle_engine::{Event, StepId, What};
use castle_seams::Disk;
use serde_json::json;

use super::fixture::{HOME, SMALL, in_a_world, written};
use super::picture::Picture;
use super::promises::{Others, heard, rewritten, shown};
use super::script::STATE;
use super::standins::TOKEN_SECRET;
use super::world::meddled;
use super::*;
use crate::output::Printed;

/// The castle's worker.
const WORKER: &str = "/qemu/424";

/// Has every request handled, and does something behind those that are meant.
struct Behind<M, T>(M, T);

impl<M, T> Witness for Behind<M, T>
where
    M: Fn(&Asked) -> bool + Send + Sync,
    T: Fn() + Send + Sync,
{
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let reply = handle();
        if self.0(asked) {
            self.1();
        }
        Some(reply)
    }
}

/// A hypervisor that does not remove the worker: whoever asks for that has the line cut, and nothing happens.
struct Deaf;

impl Witness for Deaf {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let is_meant = asked.method == "DELETE" && asked.path.ends_with(WORKER);
        if is_meant { None } else { Some(handle()) }
    }
}

/// What became of the world of this seed, with a defect in its first life, its second, in both, or in its third.
fn planted(script: &Arc<Script>, seed: u64, lives: &[usize], plant: impl Fn(&Life) + Sync) -> Rehearsed {
    let count = AtomicUsize::new(0);
    let meddle = |life: &Life| {
        if lives.contains(&(count.fetch_add(1, Ordering::Relaxed) + 1)) {
            plant(life);
        }
    };
    let rehearsed = meddled(script, &[seed], &meddle).unwrap().remove(0);
    // The third life is that of a castle which has kept its promises so far.
    let lived = if lives == [3] { 3 } else { 2 };
    assert_eq!((rehearsed.seed, count.into_inner()), (seed, lived), "{}", rehearsed.story);
    rehearsed
}

/// Holds that nothing else is told than these: promise, when, and part of what was seen.
#[track_caller]
fn hold(rehearsed: &Rehearsed, expected: &[(u8, &str, &str)]) {
    let told: Vec<(u8, &str)> = rehearsed.broken.iter().map(|one| (one.promise, one.when.as_str())).collect();
    let numbers: Vec<(u8, &str)> = expected.iter().map(|(promise, when, _)| (*promise, *when)).collect();
    assert_eq!(told, numbers, "{:#?}", rehearsed.broken);
    for (one, (.., seen)) in rehearsed.broken.iter().zip(expected) {
        assert!(one.seen.contains(seen), "{seen:?}: {one:?}");
    }
}

fn is_started(asked: &Asked) -> bool {
    asked.path.ends_with(&format!("{WORKER}/status/start"))
}

#[test]
fn promise_1_a_guest_that_is_there_twice_after_a_kill() {
    let twice = |life: &Life| {
        let datacenter = life.datacenter.clone();
        let twin = move || datacenter.add_guest(Stranger::new(500, "pve1", "green-worker-1", "tank", 32));
        life.datacenter.watch(Arc::new(Behind(is_started, twin)));
    };
    let rehearsed = planted(&written(SMALL), 7, &[2], twice);
    hold(
        &rehearsed,
        &[(1, "up after kill -9", "VM 500 is there as well; the volume tank:vm-500-disk-0 on pve1 is there")],
    );
}

#[test]
fn promise_2_what_others_have_and_its_seed_replays() {
    let script = written(SMALL);
    let clumsy = |life: &Life| {
        let (datacenter, vault) = (life.datacenter.clone(), life.script.vault.clone().unwrap());
        let touch = move || {
            datacenter.change_guest(420, &[("memory", Some("1024"))]);
            datacenter.delete_volume("pve1", "local:iso/somebody-elses.iso");
            datacenter.delete_volume("pve2", "tank:vm-99-disk-0");
            datacenter.remove_secret(&vault.host, &vault.project, &vault.environment, &vault.folder, "OF_A_COLLEAGUE");
        };
        life.datacenter.watch(Arc::new(Behind(|asked: &Asked| asked.method == "DELETE", touch)));
    };
    let once = || planted(&script, 7, &[1, 2], clumsy);
    let (first, again) = (once(), once());
    let seen = "VM 420, which is not castle's, was changed; \
                the volume local:iso/somebody-elses.iso on pve1, which is not castle's, was changed; \
                the volume tank:vm-99-disk-0 on pve2, which is not castle's, was changed; \
                lab prod:/castles/green/OF_A_COLLEAGUE in the vault, which is not castle's, was changed";
    hold(&first, &[(2, "while it stood", seen), (2, "after kill -9 and up", seen)]);
    assert_eq!((first.broken, first.kills, first.times), (again.broken, again.kills, again.times));
    assert_eq!(first.story, again.story, "the same seed is the same story");
}

#[test]
fn promise_3_a_castle_that_is_never_as_it_is_wanted() {
    // The tag that says how the worker is says something else, each time that it was started.
    let restless = |life: &Life| {
        let datacenter = life.datacenter.clone();
        let change = move || {
            let tags = datacenter.look().guests[&424].config["tags"].replace("castle-is-", "castle-is-0");
            datacenter.change_guest(424, &[("tags", Some(&tags))]);
        };
        life.datacenter.watch(Arc::new(Behind(is_started, change)));
    };
    let rehearsed = planted(&written(SMALL), 7, &[1, 2], restless);
    hold(&rehearsed, &[(3, "up after up", "/qemu/424/config")]);
}

#[test]
fn promise_4_a_guest_that_cannot_be_removed() {
    let rehearsed = planted(&written(SMALL), 3, &[1, 2], |life| life.datacenter.watch(Arc::new(Deaf)));
    hold(&rehearsed, &[(4, "down", "guest: 424"), (4, "down after kill -9", "guest: 424")]);
}

/// Writes a file beside castle's own.
fn write(life: &Life, name: &str, text: &str, mode: u32) {
    life.disk().create_new(&Path::new(STATE).join(name), text.as_bytes(), mode).unwrap();
}

#[test]
fn promise_5_secrets_that_show_and_files_that_others_can_read() {
    let script = written(SMALL);
    let (_, key) = script.stock.keys().next().unwrap();
    let key = STANDARD.encode(key);
    let careless = |life: &Life| {
        write(life, "debug.log", &format!("GET /version with {TOKEN_SECRET}"), 0o600);
        write(life, "old.kubeconfig", &format!("client-key-data: {key}\n"), 0o600);
        write(life, "notes", "nothing secret", 0o644);
        life.datacenter.change_guest(420, &[("description", Some(TOKEN_SECRET))]);
    };
    let rehearsed = planted(&script, 5, &[1, 2], careless);
    let seen = "platform.proxmox.token is in clear in /rehearsal/state/debug.log; \
                a private key is in clear in /rehearsal/state/old.kubeconfig; \
                platform.proxmox.token is in description of VM 420; \
                /rehearsal/state/notes can be read by others: mode 644";
    hold(&rehearsed, &[(5, "while it stood", seen), (5, "after kill -9 and up", seen)]);
}

#[test]
fn promise_5_what_is_said_to_whomever_and_what_is_sent() {
    let script = written(SMALL);
    in_a_world(&script, 1, async |life| {
        let step = StepId::new(&castle_layers::platform::layer(), "vm", TOKEN_SECRET);
        let event = Event { version: 1, at: Duration::ZERO, what: What::StepStarted { step } };
        let to_people = Printed { text: format!("the token {TOKEN_SECRET}\n"), ..Printed::default() };
        let to_programs = Printed { events: vec![event], ..Printed::default() };
        let at_last = Printed { result: json!({"seen": TOKEN_SECRET}), ..Printed::default() };
        for printed in [to_people, to_programs, at_last] {
            assert_eq!(shown(life, &script.needles, &heard(&printed)), ["platform.proxmox.token was printed"]);
        }
        let target = format!("/api/v3/secrets/raw?token={TOKEN_SECRET}");
        let asked = VaultAsked { number: 1, host: "vault".into(), method: "GET".into(), target, is_change: false };
        life.tally.vault(&asked, &mut || VaultReply::failure(404, "NotFound", "no"));
        let expected = format!("platform.proxmox.token is in GET {}", asked.target);
        assert_eq!(shown(life, &script.needles, &heard(&Printed::default())), [expected]);
        assert_eq!(shown(life, &script.needles, ""), Vec::<String>::new(), "told once");
    });
}

#[test]
fn promise_6_a_lost_machine_that_is_there_twice() {
    let twice = |life: &Life| {
        let (datacenter, started) = (life.datacenter.clone(), AtomicUsize::new(0));
        // When it is started again, after it was lost.
        let twin = move || {
            if started.fetch_add(1, Ordering::Relaxed) == 1 {
                datacenter.add_guest(Stranger::new(500, "pve1", "green-worker-1", "tank", 32));
            }
        };
        life.datacenter.watch(Arc::new(Behind(is_started, twin)));
    };
    let rehearsed = planted(&written(SMALL), 7, &[3], twice);
    let when = "up after the machine of green-worker-1 was lost";
    hold(&rehearsed, &[(6, when, "VM 500 is there as well")]);
    assert_eq!((rehearsed.losses, rehearsed.edit), (vec!["green-worker-1".to_owned()], None));
}

/// While its file is edited, the mark of the control plane is gone: castle refuses to go on, and that breaks no promise.
#[test]
fn promise_6_an_edited_file_that_is_refused_breaks_none() {
    let unmarked = |life: &Life| {
        let (datacenter, files, file) = (life.datacenter.clone(), life.files(), life.script.file.clone());
        let (written, kept) = (life.script.files[&file].clone(), Mutex::new(None));
        let meddle = move || {
            let (is_edited, mut kept) = (files().get(&file) != Some(&written), kept.lock().unwrap());
            if is_edited && kept.is_none() {
                *kept = datacenter.look().guests[&421].config.get("description").cloned();
                datacenter.change_guest(421, &[("description", None)]);
            } else if !is_edited && let Some(mark) = kept.take() {
                datacenter.change_guest(421, &[("description", Some(&mark))]);
            }
        };
        life.datacenter.watch(Arc::new(Behind(|asked: &Asked| asked.path.ends_with("/cluster/resources"), meddle)));
    };
    let rehearsed = planted(&written(SMALL), 7, &[3], unmarked);
    hold(&rehearsed, &[]);
    assert_eq!((rehearsed.losses.len(), rehearsed.edit), (1, Some(Edit::Refused)), "{}", rehearsed.story);
}

/// A castle that stands, and what differs once this was done to it.
fn differs(script: &Arc<Script>, done: impl AsyncFnOnce(&Life) + Send) -> (Vec<String>, Vec<String>) {
    in_a_world(script, 1, async |life| {
        let others = Others::of(life);
        let told = life.run(&["up"]).await;
        assert_eq!(told.printed.result["result"], "raised", "{}", told.printed.text);
        let before = Picture::of(life);
        done(life).await;
        let touched = [others.touched(life), rewritten(life)].concat();
        (Picture::of(life).against(&before), touched)
    })
}

#[test]
fn a_difference_names_the_thing_and_the_field() {
    let (differing, touched) = differs(&written(SMALL), async |life| {
        let configuration = life.datacenter.machine_configuration(424).unwrap();
        let other = configuration.replace("https://mirror.lan", "https://other.lan");
        life.datacenter.configure_node(424, &other).unwrap();
        life.datacenter.change_guest(421, &[("cores", Some("2")), ("tags", None)]);
        life.datacenter.delete_volume("pve1", "local:import/castle-green-elsewhere-0e4ea25a0e4ea25a-talos.qcow2");
        let vault = life.script.vault.clone().unwrap();
        life.datacenter.remove_secret(&vault.host, &vault.project, &vault.environment, &vault.folder, "KUBECONFIG");
        life.disk().tamper(&Path::new(HOME).join("castle.yaml"), Vec::new());
        let repository = life.script.repository.as_ref().unwrap();
        let other = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).replace("{a: b}", "{a: c}").into_bytes();
        let files = repository.files.iter().map(|(name, bytes)| (name.clone(), other(bytes))).collect();
        life.datacenter.push(&repository.url, &repository.branch, &files, "another commit");
        life.clock().sleep(Duration::from_secs(1800)).await;
    });
    let expected = [
        "VM 421: options.cores is `\"2\"`, not `\"4\"`",
        "configmaps default/rehearsal-apps: data.a is `\"c\"`, not `\"b\"`",
        "configmaps default/rehearsal-least: data.a is `\"c\"`, not `\"b\"`",
        "lab prod:/castles/green/KUBECONFIG in the vault is missing",
        "the machine configuration of VM 424: RegistryMirrorConfig/docker.io.endpoints.0.url is `\"https://other.lan\"`, \
         not `\"https://mirror.lan\"`",
        "the volume local:import/castle-green-elsewhere-0e4ea25a0e4ea25a-talos.qcow2 on pve1 is missing",
    ];
    assert_eq!(differing, expected);
    let expected = [
        "the volume local:import/castle-green-elsewhere-0e4ea25a0e4ea25a-talos.qcow2 on pve1, which is not castle's, was changed",
        "/castle/castle.yaml, which is the operator's, was changed",
    ];
    assert_eq!(touched, expected);
}
