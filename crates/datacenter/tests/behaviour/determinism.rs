//! The same seed and the same requests at the same times give the same world.

use castle_datacenter::Blueprint;
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use futures_util::future::join_all;

use crate::site::Site;

/// Raises three clones at once, and tells everything that can be seen, with the time.
fn story(seed: u64) -> String {
    in_virtual_time(async |clock| {
        let site = Site::new(Blueprint::embedded(&[]).with_seed(seed), clock);
        site.make_template("9000").await;
        let raise = async |vmid: u32| {
            let clone = [("newid", &*vmid.to_string()), ("name", "x")];
            let mut told = site.run("POST", "/nodes/pve/qemu/9000/clone", &clone).await;
            let config = format!("/nodes/pve/qemu/{vmid}/config");
            site.put(&config, &[("ipconfig0", "ip=dhcp")]).await;
            told += &site.run("POST", &format!("/nodes/pve/qemu/{vmid}/status/start"), &[]).await;
            format!("{told} {:?}", site.clock.monotonic())
        };
        let told = join_all((421..424).map(raise)).await;
        let machines = site.datacenter.machines();
        format!("{told:?}\n{}\n{machines:?}\n{:?}", site.datacenter.look(), site.datacenter.effects())
    })
}

#[test]
fn the_same_seed_tells_the_same_story() {
    assert_eq!(story(1), story(1));
}

#[test]
fn another_seed_tells_another() {
    assert_ne!(story(1), story(2));
}
