//! Who is known, and who may.

use std::time::Duration;

use castle_datacenter::blueprint::{AclEntry, Token, User};
use castle_datacenter::{Blueprint, EMBEDDED_PASSWORD, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, Keys, Version};
use castle_http::header::{AUTHORIZATION, HeaderValue};
use castle_seams::Clock;
use serde_json::{Value, json};

use crate::site::{Site, both, quick, within};

/// A datacenter in which `bob@pve!t` (with its own rights, or his) has these rights.
fn with_bob(privsep: bool, acl: &[(&str, &str, &str)]) -> Blueprint {
    let mut blueprint = quick();
    let token = Token { name: "t".into(), secret: "s".into(), privsep };
    blueprint.users.push(User { id: "bob@pve".into(), password: Some("p".into()), tokens: vec![token] });
    blueprint.acl.extend(acl.iter().map(|(path, who, role)| AclEntry::new(path, who, role)));
    blueprint.pools.push("blue".to_owned());
    blueprint
}

fn as_bob(blueprint: Blueprint, test: impl AsyncFnOnce(Site)) {
    within(blueprint, async |mut site| {
        site.log_in_as("bob@pve!t", "s");
        test(site).await;
    });
}

#[test]
fn nobody_unknown_is_heard_and_the_answer_takes_its_time() {
    both(async |site| {
        let mut stranger = Site::new(quick(), &site.clock);
        for (header, reason) in [
            (None, "No ticket"),
            (Some("PVEAPIToken=castle@pve!embedded=wrong"), "Authentication failed!"),
            (Some("Basic abc"), "No ticket"),
        ] {
            stranger.headers =
                header.map(|value| (AUTHORIZATION, HeaderValue::from_static(value))).into_iter().collect();
            let begun = site.clock.monotonic();
            // Even a path that does not exist.
            for path in ["/version", "/nonsense"] {
                let said = stranger.ask("GET", path, &[]).await;
                assert_eq!((said.line(), said.body), (format!("401 {reason}"), Value::Null));
            }
            assert_eq!(site.clock.monotonic() - begun, Duration::from_secs(6));
        }
    });
}

#[test]
fn a_token_is_read_in_both_ways_until_it_expires() {
    both(async |site| {
        let mut site = Site::new(quick(), &site.clock);
        for separator in [" ", "=", "%3D"] {
            let value = format!("PVEAPIToken={EMBEDDED_TOKEN_ID}{separator}{EMBEDDED_TOKEN}");
            site.headers = vec![(AUTHORIZATION, HeaderValue::from_str(&value).unwrap())];
            assert_eq!(site.ask("GET", "/version", &[]).await.status, 200, "{separator}");
        }
        site.datacenter.expire_token(EMBEDDED_TOKEN_ID);
        assert_eq!(site.ask("GET", "/version", &[]).await.line(), "401 Authentication failed!");
    });
}

#[test]
fn a_ticket_needs_its_header_for_changes_and_holds_two_hours() {
    within(quick(), async |mut site| {
        site.log_in_as_root().await;
        assert_eq!(site.ask("GET", "/version", &[]).await.status, 200);
        assert_eq!(site.run("POST", "/nodes/pve/qemu/100/status/stop", &[]).await, "OK");
        let token = site.headers.pop().unwrap();
        let refused = site.ask("POST", "/nodes/pve/qemu/100/status/start", &[]).await;
        assert_eq!(refused.line(), "401 Permission denied - invalid csrf token");
        site.headers.push(token);
        site.clock.sleep(Duration::from_secs(2 * 60 * 60 + 1)).await;
        assert_eq!(site.ask("GET", "/version", &[]).await.line(), "401 permission denied - invalid PVE ticket");
    });
}

/// Goal: a ticket that another datacenter gave, or that its source lets one compute, opens none. Method: what one of a known seed gives.
#[test]
fn a_ticket_of_another_datacenter_is_none() {
    within(quick(), async |mut site| {
        let keys = Keys { token: EMBEDDED_TOKEN, password: EMBEDDED_PASSWORD, client_secret: "secret", seed: &[9; 32] };
        let mut other = Site::new(quick().with_keys(&keys), &site.clock);
        site.log_in_as_root().await;
        other.headers.clone_from(&site.headers);
        assert_eq!(other.ask("GET", "/version", &[]).await.line(), "401 permission denied - invalid PVE ticket");
        other.log_in_as_root().await;
        assert_eq!(other.ask("GET", "/access/users", &[]).await.status, 200);
        // The header for changes is another one, too.
        other.headers[1] = site.headers[1].clone();
        let refused = other.ask("POST", "/nodes/pve/qemu/100/status/stop", &[]).await;
        assert_eq!(refused.line(), "401 Permission denied - invalid csrf token");
    });
}

#[test]
fn a_ticket_renews_itself_and_no_token_gets_one() {
    within(quick(), async |mut site| {
        let refused = site.ask("POST", "/access/ticket", &[("username", "root@pam"), ("password", "castle")]).await;
        assert_eq!(refused.status, 403);
        site.headers.clear();
        let wrong = site.ask("POST", "/access/ticket", &[("username", "root@pam"), ("password", "x")]).await;
        assert_eq!(wrong.line(), "401 authentication failure");
        let first = site.post("/access/ticket", &[("username", "root"), ("password", "castle")]).await;
        let ticket = first["ticket"].as_str().unwrap();
        let second = site.post("/access/ticket", &[("username", "root@pam"), ("password", ticket)]).await;
        assert_eq!(second["username"], "root@pam");
        assert_eq!(second["cap"]["vms"]["VM.Allocate"], 1);
    });
}

#[test]
fn what_is_missing_is_named_before_parameters_are_looked_at() {
    both(async |site| {
        site.datacenter.revoke("castle@pve", "VM.Audit");
        let said = site.ask("GET", "/nodes/pve/qemu/100/config", &[("nonsense", "1")]).await;
        assert_eq!(said.line(), "403 Permission check failed (/vms/100, VM.Audit)");
        assert_eq!(said.body["message"], "Permission check failed (/vms/100, VM.Audit)\n");
        assert_eq!(site.get("/cluster/resources?type=vm").await, json!([]));
        site.datacenter.grant("castle@pve", "VM.Audit");
        assert_eq!(site.ask("GET", "/nodes/pve/qemu/100/config", &[("nonsense", "1")]).await.status, 400);
    });
}

#[test]
fn the_embedded_token_lacks_only_what_castle_does_not_need() {
    both(async |site| {
        let all = site.get("/access/permissions").await;
        assert_eq!(all["/"]["VM.Allocate"], 1);
        assert_eq!(all["/"].get("Sys.Modify"), None);
        assert_eq!(all["/vms"]["VM.Clone"], 1);
        let one = site.get("/access/permissions?path=/vms/421").await;
        assert_eq!(one.as_object().unwrap().keys().collect::<Vec<_>>(), ["/vms/421"]);
    });
}

#[test]
fn a_separated_token_has_only_what_both_have() {
    let acl = [("/vms", "bob@pve", "PVEVMAdmin"), ("/vms/100", "bob@pve!t", "PVEVMUser")];
    as_bob(with_bob(true, &acl), async |site| {
        assert_eq!(site.ask("GET", "/nodes/pve/qemu/100/config", &[]).await.status, 200);
        assert_eq!(site.ask("GET", "/nodes/pve/qemu/101/config", &[]).await.status, 403);
        let refused = site.ask("PUT", "/nodes/pve/qemu/100/config", &[("cores", "4")]).await;
        assert_eq!(refused.line(), "403 Permission check failed (/vms/100, VM.Config.CPU)");
    });
    as_bob(with_bob(false, &acl), async |site| {
        assert_eq!(site.ask("GET", "/nodes/pve/qemu/101/config", &[]).await.status, 200);
        assert_eq!(site.ask("PUT", "/nodes/pve/qemu/100/config", &[("cores", "4")]).await.status, 200);
    });
}

/// Goal: rights on a pool are rights on its members, and a guest becomes one only at the end. Method: a token that has its
/// rights on a pool alone.
#[test]
fn a_pool_gives_rights_to_its_members() {
    let acl = [
        ("/pool/blue", "bob@pve", "PVEAdmin"),
        ("/storage/local-lvm", "bob@pve", "PVEDatastoreUser"),
        ("/sdn", "bob@pve", "PVESDNUser"),
    ];
    as_bob(with_bob(false, &acl), async |site| {
        let create = "/nodes/pve/qemu";
        let guest = [("vmid", "421"), ("name", "x"), ("scsi0", "local-lvm:1"), ("net0", "virtio,bridge=vmbr0")];
        assert_eq!(site.ask("POST", create, &guest).await.line(), "403 Permission check failed");
        let mut pooled = guest.to_vec();
        pooled.push(("pool", "blue"));
        assert_eq!(site.run("POST", create, &pooled).await, "OK");
        let seen = site.get("/cluster/resources?type=vm").await;
        assert_eq!(seen.as_array().unwrap().iter().map(|row| row["vmid"].clone()).collect::<Vec<_>>(), [json!(421)]);
        assert_eq!(site.get("/access/permissions").await["/vms/421"]["VM.Audit"], 1);
        // Tags are a matter of the guest alone, and of the task.
        let tagged = [("vmid", "422"), ("pool", "blue"), ("tags", "a")];
        let end = site.run("POST", create, &tagged).await;
        assert_eq!(end, "unable to create VM 422 - 403 Permission check failed (/vms/422, VM.Config.Options)");
        let nowhere = [("vmid", "423"), ("pool", "green")];
        let absent = "403 Permission check failed (pool 'green' does not exist)";
        assert_eq!(site.ask("POST", create, &nowhere).await.line(), absent);
    });
}

#[test]
fn every_part_of_a_guest_needs_its_right() {
    both(async |site| {
        for (privilege, key, value, message) in [
            ("Datastore.AllocateSpace", "scsi1", "local-lvm:1", "(/storage/local-lvm, Datastore.AllocateSpace)"),
            ("SDN.Use", "net1", "virtio,bridge=vmbr0", "(/sdn/zones/localnetwork/vmbr0, SDN.Use)"),
            ("VM.Config.Disk", "boot", "order=scsi0", "(/vms/101, VM.Config.Disk)"),
            ("VM.Config.HWType", "serial0", "socket", "(/vms/101, VM.Config.HWType)"),
            ("VM.Config.Memory", "memory", "1024", "(/vms/101, VM.Config.Memory)"),
            ("VM.Config.Options", "tags", "a", "(/vms/101, VM.Config.Options)"),
            ("VM.Config.Network", "net0", "virtio,bridge=vmbr0", "(/vms/101, VM.Config.Network)"),
        ] {
            site.datacenter.revoke("castle@pve", privilege);
            let refused = site.ask("PUT", "/nodes/pve/qemu/101/config", &[(key, value)]).await;
            assert_eq!(refused.line(), format!("403 Permission check failed {message}"));
            site.datacenter.grant("castle@pve", privilege);
        }
        // Either of two is enough.
        site.datacenter.revoke("castle@pve", "VM.Config.Network");
        site.put("/nodes/pve/qemu/101/config", &[("ipconfig0", "ip=dhcp")]).await;
    });
}

#[test]
fn some_things_only_the_administrator_may() {
    within(quick(), async |mut site| {
        let path = "/nodes/pve/qemu/101/config";
        for (key, value) in [("args", "-x"), ("hookscript", "local:snippets/x.sh"), ("vmgenid", "1")] {
            let refused = site.ask("PUT", path, &[(key, value)]).await;
            assert_eq!(refused.line(), format!("500 only root can set '{key}' config"));
        }
        let refused = site.ask("PUT", path, &[("serial0", "/dev/ttyS0")]).await;
        assert_eq!(refused.line(), "500 only root can modify 'serial0' config for real devices");
        site.log_in_as_root().await;
        site.put(path, &[("args", "-x")]).await;
        assert_eq!(site.config(101).await["args"], "-x");
    });
}

#[test]
fn a_clone_needs_rights_on_both_ends() {
    let acl = [("/vms/101", "bob@pve", "PVETemplateUser")];
    as_bob(with_bob(false, &acl), async |site| {
        let refused = site.ask("POST", "/nodes/pve/qemu/101/clone", &[("newid", "421")]).await;
        assert_eq!(refused.line(), "403 Permission check failed");
        let refused = site.ask("POST", "/nodes/pve/qemu/100/clone", &[("newid", "421")]).await;
        assert_eq!(refused.line(), "403 Permission check failed (/vms/100, VM.Clone)");
    });
}

#[test]
fn the_generations_name_the_agents_right_differently() {
    for (version, privilege) in [(Version::Eight, "VM.Monitor"), (Version::Nine, "VM.GuestAgent.Audit")] {
        within(quick().on(version), async |site| {
            site.datacenter.revoke("castle@pve", privilege);
            let refused = site.ask("GET", "/nodes/pve/qemu/100/agent/network-get-interfaces", &[]).await;
            assert_eq!(refused.status, 403);
            assert!(refused.reason.contains(privilege), "{refused:?}");
        });
    }
}

/// Goal: a bridge is seen by whoever may use a VLAN of it, and by nobody for another reason. Method: a token with one right at a
/// time, on a host that it may otherwise look at.
#[test]
fn a_bridge_is_seen_from_each_of_its_vlans() {
    let bridge = "/sdn/zones/localnetwork/vmbr0";
    let vlan = &format!("{bridge}/30");
    for (acl, is_seen) in [
        (vec![(vlan.as_str(), "bob@pve", "PVESDNUser")], true),
        (vec![(bridge, "bob@pve", "PVESDNUser")], true),
        (vec![("/sdn", "bob@pve", "PVESDNUser")], true),
        (vec![("/nodes", "bob@pve", "Administrator")], false),
        (vec![(vlan.as_str(), "castle@pve", "PVESDNUser")], false),
        (vec![("/sdn/zones/localnetwork/vmbr01/30", "bob@pve", "PVESDNUser")], false),
    ] {
        as_bob(with_bob(false, &acl), async |site| {
            let bridges = site.get("/nodes/pve/network?type=any_bridge").await;
            let names: Vec<&Value> = bridges.as_array().unwrap().iter().map(|row| &row["iface"]).collect();
            assert_eq!(names == ["vmbr0"], is_seen, "{acl:?}: {bridges}");
        });
    }
}
