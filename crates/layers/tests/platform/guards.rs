//! What is not castle's any more in the very moment that castle changes it: each time somebody is faster, and castle finds out.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_datacenter::blueprint::Stranger;
use castle_datacenter::{Asked, Datacenter, Latencies, Reply, Version, Witness};
use castle_engine::{Fault, GraphBuilder, Outcome, Report};
use castle_http::Method;
use castle_layers::platform::{self, Doomed};
use castle_proxmox::model::Form;
use castle_proxmox::steps::Reach;
use castle_seams::Clock;
use castle_testbed::{VirtualClock, in_virtual_time};
use futures_util::future::select;
use serde_json::json;

use crate::foreign::{mark, scripted};
use crate::room::{Room, blueprint, done, door, file};

const NODE: u32 = 421;
const IMAGE: u32 = 998;

fn small() -> String {
    file(1, 1, "nodes: [pve]")
}

/// The one thing that went wrong.
#[track_caller]
fn fault(report: &Report) -> &Fault {
    let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
    let [(_, Outcome::Failed { fault })] = failed.as_slice() else { panic!("{failed:#?}") };
    fault
}

/// Somebody who takes a guest for his own, right before or right behind a request of castle's.
struct Person {
    datacenter: Datacenter,
    vmid: u32,
    /// Method and end of the path.
    at: (&'static str, String),
    /// How many of them he lets pass.
    lets_pass: AtomicU32,
    is_before: bool,
    /// What the guest was like when it was his.
    left: Mutex<Option<castle_datacenter::GuestView>>,
}

impl Person {
    fn before(room: &Room, vmid: u32, method: &'static str, path: &str) -> Arc<Self> {
        Self::watching(room, vmid, (method, path.to_owned()), true, 0)
    }

    fn behind(room: &Room, vmid: u32, method: &'static str, path: &str, lets_pass: u32) -> Arc<Self> {
        Self::watching(room, vmid, (method, path.to_owned()), false, lets_pass)
    }

    fn watching(room: &Room, vmid: u32, at: (&'static str, String), is_before: bool, lets_pass: u32) -> Arc<Self> {
        let (datacenter, lets_pass) = (room.datacenter.clone(), AtomicU32::new(lets_pass));
        let person = Arc::new(Self { datacenter, vmid, at, lets_pass, is_before, left: Mutex::default() });
        room.datacenter.watch(person.clone());
        person
    }

    fn take(&self) {
        let mine = [("description", Some("mine, ask Ann")), ("name", Some("anns"))];
        assert!(self.datacenter.change_guest(self.vmid, &mine));
        *self.left.lock().unwrap() = self.datacenter.look().guests.remove(&self.vmid);
    }

    /// Holds that he was there, and that his guest is as he left it.
    #[track_caller]
    fn has_his_own(&self) {
        let left = self.left.lock().unwrap();
        assert!(left.is_some(), "he never came");
        assert_eq!(self.datacenter.look().guests.get(&self.vmid), left.as_ref());
    }
}

impl Witness for Person {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let is_meant =
            asked.method == self.at.0 && asked.path.ends_with(&self.at.1) && self.left.lock().unwrap().is_none();
        let is_now = is_meant && self.lets_pass.fetch_sub(1, Ordering::Relaxed) == 0;
        if is_now && self.is_before {
            self.take();
        }
        let reply = handle();
        if is_now && !self.is_before {
            self.take();
        }
        Some(reply)
    }
}

/// Everything of this castle goes, as it was chosen a moment ago.
async fn raze(room: &Room, rename: impl Fn(&mut Doomed)) -> Report {
    let ground = room.ground(false);
    let mut doomed: Vec<Doomed> = platform::found(&ground).await.unwrap();
    doomed.retain(|guest| guest.vmid == NODE);
    doomed.iter_mut().for_each(rename);
    let mut graph = GraphBuilder::new();
    platform::raze(&mut graph, &ground, &room.site, &doomed, Reach::Marked, &[]);
    let report = room.run(&graph.build().unwrap(), true).await;
    room.check_strangers();
    report
}

/// The last thing that castle asks before it stops or destroys a guest is whether it runs.
#[test]
fn a_guest_that_becomes_anothers_before_it_is_stopped_or_destroyed_stays() {
    for (is_running, name) in [(true, "stop"), (false, "destroy")] {
        in_virtual_time(async |clock| {
            let room = Room::plain(&small(), clock);
            done(&room.up().await);
            room.datacenter.switch(NODE, is_running);
            let person = Person::behind(&room, NODE, "GET", "/qemu/421/status/current", 0);
            let report = raze(&room, |_| {}).await;
            assert!(fault(&report).guarded && fault(&report).evidence.contains("not castle's"), "{name}: {report:?}");
            person.has_his_own();
        });
    }
}

#[test]
fn a_guest_outside_of_the_castles_numbers_stays_although_it_bears_the_mark() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        let before = room.datacenter.look().guests;
        room.rewrite(&small().replace("vmids: 421-999", "vmids: 600-999"));
        let report = raze(&room, |_| {}).await;
        assert!(fault(&report).guarded, "{report:?}");
        assert!(fault(&report).evidence.contains("outside of the castle's VMIDs"), "{report:?}");
        assert_eq!(room.datacenter.look().guests, before);
    });
}

#[test]
fn a_guest_that_is_another_node_by_now_stays() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        let before = room.datacenter.look().guests;
        let report = raze(&room, |guest| guest.name = "blue-cp-9".to_owned()).await;
        assert!(fault(&report).guarded && fault(&report).evidence.contains("is `blue-cp-1` by now"), "{report:?}");
        assert_eq!(room.datacenter.look().guests, before);
    });
}

#[test]
fn a_guest_of_a_later_life_stays() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        room.id.generation = 2;
        done(&room.up().await);
        let before = room.datacenter.look().guests;
        room.id.generation = 1;
        let report = raze(&room, |_| {}).await;
        assert!(fault(&report).guarded && fault(&report).evidence.contains("in life 2"), "{report:?}");
        assert_eq!(room.datacenter.look().guests, before);
        // One of an earlier life may go.
        room.id.generation = 3;
        done(&raze(&room, |_| {}).await);
        assert!(!room.datacenter.look().guests.contains_key(&NODE));
    });
}

#[test]
fn a_copy_of_a_guest_stays_although_it_bears_the_mark() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        let mut copy = Stranger::new(500, "pve", "blue-cp-1", "local-lvm", 8);
        copy.config.extend(room.datacenter.look().guests[&NODE].config.get_key_value("description").map(both));
        room.datacenter.add_guest(copy);
        let before = room.datacenter.look().guests;
        let report = raze(&room, |guest| guest.vmid = 500).await;
        assert!(fault(&report).guarded && fault(&report).evidence.contains("copy"), "{report:?}");
        assert_eq!(room.datacenter.look().guests, before);
    });
}

fn both((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

#[test]
fn a_guest_that_becomes_anothers_before_it_is_configured_is_not_written_to() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.rewrite(&small().replace("cores: 2", "cores: 3"));
        let person = Person::before(&room, NODE, "POST", "/qemu/421/config");
        assert!(fault(&room.up().await).guarded);
        person.has_his_own();
    });
}

#[test]
fn a_guest_that_becomes_anothers_before_its_disk_grows_keeps_its_size() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.rewrite(&small().replace("disk: 16GiB}", "disk: 24GiB}"));
        let person = Person::before(&room, NODE, "PUT", "/qemu/421/resize");
        assert!(fault(&room.up().await).guarded);
        person.has_his_own();
    });
}

#[test]
fn a_guest_that_is_changed_before_it_is_adopted_is_looked_at_again() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        scripted(&room).await;
        let person = Person::before(&room, NODE, "POST", "/qemu/421/config");
        assert!(fault(&mark(&room).await).guarded);
        person.has_his_own();
    });
}

#[test]
fn an_image_that_becomes_anothers_while_it_is_made_is_left_to_him() {
    for (method, path) in [("POST", "/qemu/998/config"), ("GET", "/qemu/998/config")] {
        in_virtual_time(async |clock| {
            let room = Room::plain(&small(), clock);
            // Made, and labelled: what is left is to make it a template. Its configuration is asked for before each.
            let person = match method {
                "POST" => Person::before(&room, IMAGE, method, path),
                _ => Person::behind(&room, IMAGE, method, path, 2),
            };
            room.up().await;
            person.has_his_own();
            // There is a second number for images: castle makes do with that.
            done(&room.up().await);
            person.has_his_own();
        });
    }
}

/// A room in which somebody has Proxmox' high availability look after guests.
fn with_availability(clock: &VirtualClock) -> Room {
    let mut blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none());
    for privileges in blueprint.roles.values_mut() {
        privileges.push("Sys.Console".to_owned());
    }
    Room::new(blueprint, &small(), door(clock))
}

async fn look_after(room: &Room, vmid: u32, state: &str) {
    let form = Form::new().with("sid", format!("vm:{vmid}")).with("state", state);
    room.client().change("by hand", Method::POST, "/cluster/ha/resources", &form).await.unwrap();
}

async fn looked_after(room: &Room) -> serde_json::Value {
    room.client().get("by hand", "/cluster/ha/resources", &Form::new()).await.unwrap()
}

#[test]
fn guests_that_are_looked_after_by_high_availability_go_with_what_looks_after_them() {
    in_virtual_time(async |clock| {
        let room = with_availability(clock);
        done(&room.up().await);
        look_after(&room, NODE, "started").await;
        look_after(&room, IMAGE, "ignored").await;
        done(&room.down().await);
        assert!(room.datacenter.look().guests.keys().all(|vmid| *vmid < NODE), "{}", room.snapshot());
        assert_eq!(looked_after(&room).await, json!([]));
    });
}

#[test]
fn an_old_image_that_is_looked_after_by_high_availability_goes() {
    in_virtual_time(async |clock| {
        let mut room = with_availability(clock);
        done(&room.up().await);
        look_after(&room, IMAGE, "ignored").await;
        // Nothing is linked to it any more, and it is not the image that the file wants.
        assert!(room.nodes.iter().all(|node| room.datacenter.remove_guest(node.vmid.0)));
        clock.sleep(Duration::from_secs(60)).await;
        room.rewrite(&small().replace("version: v1.13.9", "version: v1.13.8"));
        done(&room.up().await);
        assert!(!room.datacenter.look().guests.contains_key(&IMAGE), "{}", room.snapshot());
        assert_eq!(looked_after(&room).await, json!([]));
    });
}

/// Counts how often the configuration of the image is asked for.
#[derive(Default)]
struct Looks(AtomicU32);

impl Witness for Looks {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        if asked.method == "GET" && asked.path.ends_with("/qemu/998/config") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Some(handle())
    }
}

/// A room with an image that the file wants no more, and that nothing is linked to.
async fn outdated(clock: &VirtualClock) -> Room {
    let mut room = Room::plain(&small(), clock);
    done(&room.up().await);
    assert!(room.nodes.iter().all(|node| room.datacenter.remove_guest(node.vmid.0)));
    clock.sleep(Duration::from_secs(60)).await;
    room.rewrite(&small().replace("version: v1.13.9", "version: v1.13.8"));
    room
}

/// Goal: whoever takes an image between castle's looks keeps it. Method: an undisturbed run tells how often castle looks; somebody comes right behind the last
/// look but one, and right behind all those before.
#[test]
fn an_old_image_that_becomes_anothers_before_it_is_discarded_stays() {
    in_virtual_time(async |clock| {
        let room = outdated(clock).await;
        let looks = Arc::new(Looks::default());
        room.datacenter.watch(looks.clone());
        done(&room.up().await);
        assert!(!room.datacenter.look().guests.contains_key(&IMAGE), "{}", room.snapshot());
        let looks = looks.0.load(Ordering::Relaxed);
        assert!(looks >= 2, "it was discarded after a single look");
        for lets_pass in 0..looks - 1 {
            let room = outdated(clock).await;
            let person = Person::behind(&room, IMAGE, "GET", "/qemu/998/config", lets_pass);
            room.up().await;
            person.has_his_own();
        }
    });
}

/// The host goes on with a download whose castle was killed, and would put the file back once it is removed.
#[test]
fn a_download_that_goes_on_without_castle_is_waited_for_before_its_file_is_removed() {
    in_virtual_time(async |clock| {
        let room = Room::new(blueprint(&["pve"], Version::Nine), &small(), door(clock));
        let begins = async {
            while !room.datacenter.look().tasks.iter().any(|task| task.kind == "download") {
                clock.sleep(Duration::from_millis(50)).await;
            }
        };
        // Whoever is dropped is never asked again: as good as killed.
        drop(select(pin!(room.up()), pin!(begins)).await);
        done(&room.down().await);
        clock.sleep(Duration::from_secs(15 * 60)).await;
        let left = room.datacenter.look().volumes;
        assert!(!left.keys().any(|(_, name)| name.contains("import/")), "{left:?}");
    });
}
