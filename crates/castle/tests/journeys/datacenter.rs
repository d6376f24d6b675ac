//! The embedded datacenter as a process of its own, started by whoever needs it.

use crate::room::{BLUE, own_network};
use crate::world::World;

#[test]
fn the_datacenter_is_found_started_and_stopped() {
    let world = World::with_castle(BLUE);
    assert!(world.castle(&["datacenter", "status"]).stdout.contains("does not run"));
    let plan = world.castle(&["plan"]);
    assert!(plan.stdout.contains("Started the embedded datacenter"), "{}", plan.transcript());
    assert!(world.castle(&["datacenter", "status"]).stdout.contains("serves Proxmox VE 9.2"));
    let second = world.castle(&["datacenter"]);
    assert_eq!(second.code, Some(3), "{}", second.transcript());
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("has ended"));
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("does not run"));
    let outside = world.castle(&["datacenter", "--listen", "0.0.0.0:0"]);
    assert_eq!(outside.code, Some(4), "{}", outside.transcript());
}

/// Who removes all that castle keeps begins anew: nothing that is left of the old one is in the way.
#[test]
fn it_ends_when_what_it_keeps_is_removed() {
    let fast = BLUE.replace("platform: embedded", "platform: {embedded: {speed: 400}}");
    let world = World::with_castle(&fast.replace("127.42.0", &own_network()));
    for _ in 0..2 {
        let up = world.castle(&["up"]);
        assert!(up.code == Some(0) && up.stdout.contains("Started the embedded datacenter"), "{}", up.transcript());
        std::fs::remove_dir_all(world.path(".local/state/castle")).unwrap();
    }
    let left = world.castle(&["plan"]);
    assert!(left.stdout.contains("Started the embedded datacenter"), "{}", left.transcript());
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("has ended"));
}
