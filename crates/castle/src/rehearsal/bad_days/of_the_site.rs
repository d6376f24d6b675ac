//! What happens to the site: hosts, guests, storages, the vault, addresses, images.

use std::net::IpAddr;
use std::path::Path;

use castle_datacenter::{EMBEDDED_TOKEN_ID, EMBEDDED_VAULT};

use super::super::fixture::HOME;
use super::*;

const WORKER: u32 = 1010;
const VIP: &str = "127.42.0.10";

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
    written(
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
        let is_made = |life: &Life| {
            life.datacenter.look().volumes.keys().any(|(_, name)| name.starts_with("local:import/castle-blue-embedded"))
        };
        let told = meanwhile(life, &["up"], is_made, fill).await;
        hold(&told, Exit::Failed, &["local-lvm", "next: "]);
        life.datacenter.fill_storage("pve", "local-lvm", u64::MAX);
    });
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
            &["reboot", "platform/restart/blue-worker-1", "memory: 2048 -> 8192"],
        );
        // The list of all guests shows what runs: what waits for the next start is found by who looks at each guest in full.
        hold(&life.run(&["up", "--deep"]).await, Exit::Done, &["platform/restart/blue-worker-1"]);
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

/// Somebody's machine waits for a configuration at the address of a node: it is not the node, and gets no secret.
#[test]
fn another_machine_that_waits_at_the_address_of_a_node() {
    const OTHER: u32 = 500;
    day(async |life| {
        let is_made = |life: &Life| {
            let guests = life.datacenter.look().guests;
            guests.get(&WORKER).is_some_and(|guest| guest.lock.is_none() && guest.config.contains_key("ipconfig0"))
        };
        let copied = async |life: &Life| {
            assert!(life.datacenter.clone_guest(WORKER, OTHER));
            life.datacenter.switch(OTHER, true);
        };
        let told = meanwhile(life, &["up"], is_made, copied).await;
        let words = ["another machine answers at 127.42.0.21", "it has the hardware address", "nothing was sent to it"];
        hold(&told, Exit::Refused, &words);
        assert!([OTHER, WORKER].iter().all(|vmid| life.datacenter.machine_configuration(*vmid).is_none()));
        assert!(life.datacenter.remove_guest(OTHER));
    });
}

#[test]
fn an_image_that_is_not_there() {
    let wrong = SMALL
        .replace("serviceAccountKey: p256}", "serviceAccountKey: p256, image: {factory: 'https://images.example'}}");
    day_to(&written(&wrong), small_undisturbed(), async |life| {
        let told = life.run(&["up"]).await;
        hold(
            &told,
            Exit::Failed,
            &["platform/download/talos-v1.13.9", "https://images.example/image/", "failed: exit code 8", "next: "],
        );
        assert!(!has_guest(life, "blue-cp-1"));
        life.disk().tamper(&Path::new(HOME).join("castle.yaml"), SMALL.as_bytes().to_vec());
    });
}
