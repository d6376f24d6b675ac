//! Numbers that others had before: for five minutes the list may show a guest as the one that had its number, and castle goes by what
//! the guest's host says.

use std::time::Duration;

use castle_datacenter::Version;
use castle_layers::survey;
use castle_seams::Clock;
use castle_testbed::in_virtual_time;

use crate::room::{Room, blueprint, done, door, file};

const NODES: [u32; 2] = [421, 428];
const IMAGE: u32 = 998;

fn room(clock: &castle_testbed::VirtualClock) -> Room {
    Room::new(blueprint(&["pve"], Version::Nine), &file(1, 1, "nodes: [pve]"), door(clock))
}

/// All are there, and run.
fn stands(room: &Room) -> bool {
    let guests = room.datacenter.look().guests;
    NODES.iter().all(|vmid| guests.get(vmid).is_some_and(|guest| guest.running))
}

#[test]
fn what_was_taken_down_is_raised_again_at_once() {
    in_virtual_time(async |clock| {
        let room = room(clock);
        done(&room.up().await);
        clock.sleep(Duration::from_secs(60)).await;
        for _ in 0..3 {
            done(&room.down().await);
            done(&room.up().await);
            let guests = room.datacenter.look().guests;
            assert_eq!(guests[&IMAGE].config.get("template").map(String::as_str), Some("1"), "it was made into one");
            assert!(stands(&room), "{}", room.snapshot());
            done(&room.plan(true).await);
        }
    });
}

#[test]
fn machines_that_were_made_anew_from_the_image_that_stayed_are_started() {
    in_virtual_time(async |clock| {
        let room = room(clock);
        done(&room.up().await);
        clock.sleep(Duration::from_secs(60)).await;
        for vmid in NODES {
            room.datacenter.remove_guest(vmid);
        }
        let shown = room.client().guests().await.unwrap();
        assert!(shown.iter().all(|row| !NODES.contains(&row.vmid)), "{shown:?}");
        done(&room.up().await);
        assert!(stands(&room), "{}", room.snapshot());
    });
}

/// Whoever made them was cut off before they were started; whoever comes next sees them as the dead ones were.
#[test]
fn machines_that_another_run_made_and_did_not_start_are_started() {
    in_virtual_time(async |clock| {
        let room = room(clock);
        done(&room.up().await);
        clock.sleep(Duration::from_secs(60)).await;
        for vmid in NODES {
            room.datacenter.remove_guest(vmid);
        }
        room.datacenter.revoke("castle@pve!embedded", "VM.PowerMgmt");
        room.up().await;
        room.datacenter.grant("castle@pve!embedded", "VM.PowerMgmt");
        assert!(!stands(&room));
        let ground = room.ground(false);
        let seen = survey(&ground, &room.site).await.unwrap();
        assert!(seen.running.is_empty(), "none of them runs: {:?}", seen.running);
        done(&room.up().await);
        assert!(stands(&room), "{}", room.snapshot());
    });
}

/// Goal: a machine that was restored from a backup under its own number is started, though its tags are old and the list shows it as the dead one was. Method: one is
/// copied, deleted, and copied back while its statistics live on.
#[test]
fn a_machine_that_was_restored_under_its_own_number_is_started() {
    in_virtual_time(async |clock| {
        let room = room(clock);
        done(&room.up().await);
        clock.sleep(Duration::from_secs(700)).await;
        let [node, _] = NODES;
        assert!(room.datacenter.restore_guest(node, 500) && room.datacenter.remove_guest(node));
        assert!(room.datacenter.restore_guest(500, node) && room.datacenter.remove_guest(500));
        let shown = room.client().guests().await.unwrap();
        let row = shown.iter().find(|row| row.vmid == node).unwrap();
        assert_eq!(row.is_running(), Some(true), "the list shows the dead one: {row:?}");
        assert!(!stands(&room));
        let seen = survey(&room.ground(false), &room.site).await.unwrap();
        assert!(!seen.running.contains(&node) && seen.running.contains(&NODES[1]), "{:?}", seen.running);
        done(&room.up().await);
        assert!(stands(&room), "{}", room.snapshot());
    });
}

/// Once they are older than any statistics, their host is asked about all of them at once.
#[test]
fn guests_that_have_had_their_numbers_for_long_are_not_asked_about() {
    in_virtual_time(async |clock| {
        let room = room(clock);
        done(&room.up().await);
        room.requests();
        assert_eq!(room.up().await.effects(), 0);
        let asked = |room: &Room| room.requests().keys().filter(|request| request.contains("/status/current")).count();
        assert_eq!(asked(&room), NODES.len(), "new ones are asked about");
        clock.sleep(Duration::from_secs(601)).await;
        assert_eq!(room.up().await.effects(), 0);
        assert_eq!(asked(&room), 0);
    });
}

#[test]
fn a_machine_that_restarts_runs_before_the_next_one_is_restarted() {
    in_virtual_time(async |clock| {
        let text = file(3, 0, "nodes: [pve]");
        let mut room = Room::new(blueprint(&["pve"], Version::Nine), &text, door(clock));
        done(&room.up().await);
        clock.sleep(Duration::from_secs(120)).await;
        room.rewrite(&text.replace("cores: 2", "cores: 3"));
        let down = std::sync::Arc::new(Restarts::default());
        room.datacenter.watch(std::sync::Arc::new(Watch(room.datacenter.clone(), down.clone())));
        done(&room.up().await);
        assert_eq!(*down.0.lock().unwrap(), [0, 0, 0], "nobody was off when the next one was told to restart");
    });
}

/// How many machines were off at each restart.
#[derive(Default)]
struct Restarts(std::sync::Mutex<Vec<usize>>);

struct Watch(castle_datacenter::Datacenter, std::sync::Arc<Restarts>);

impl castle_datacenter::Witness for Watch {
    fn request(
        &self,
        asked: &castle_datacenter::Asked,
        handle: &mut dyn FnMut() -> castle_datacenter::Reply,
    ) -> Option<castle_datacenter::Reply> {
        if asked.path.ends_with("/status/reboot") {
            let guests = self.0.look().guests;
            let off = guests.values().filter(|guest| (421..430).contains(&guest.vmid) && !guest.running).count();
            self.1.0.lock().unwrap().push(off);
        }
        Some(handle())
    }
}

/// Goal: what is new is not taken for old by a machine with another clock. Method: the machine that raises the castle is twenty minutes behind the hypervisor, and is put
/// right afterwards: by its own clock the guests are as old as that.
#[test]
fn since_when_a_guest_is_there_is_told_by_the_clock_of_the_hypervisor() {
    const BEHIND: u32 = 20 * 60;
    in_virtual_time(async |clock| {
        let room = room(clock);
        room.datacenter.shift_hypervisor_clock(BEHIND.into());
        done(&room.up().await);
        clock.sleep(Duration::from_secs(BEHIND.into())).await;
        room.datacenter.shift_hypervisor_clock(0);
        let settled = async || {
            let guests = room.client().guests().await.unwrap();
            guests.iter().filter(|row| row.vmid >= NODES[0]).map(|row| row.is_settled).collect::<Vec<_>>()
        };
        assert_eq!(settled().await, [false; 3]);
        clock.sleep(Duration::from_secs(11 * 60)).await;
        assert_eq!(settled().await, [true; 3]);
    });
}
