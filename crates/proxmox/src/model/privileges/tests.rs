#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "the vendor's list of privileges is on disk")]

use super::*;

const EIGHT: Release = Release { major: 8, minor: 4 };
const NINE: Release = Release { major: 9, minor: 2 };

fn needs(pool: Option<&str>) -> Needs {
    Needs {
        pool: pool.map(str::to_owned),
        vmids: 421..=424,
        hosts: vec!["pve1".into(), "pve2".into()],
        disks: "local-lvm".into(),
        images: "local".into(),
        iso: Some("cds".into()),
        bridge: "vmbr0".into(),
        vlan: None,
        zone: None,
    }
}

/// Paths with their privileges; a `*` after a privilege says that it holds below too.
fn granted(paths: &[(&str, &str)]) -> Privileges {
    let read = |word: &str| (word.trim_end_matches('*').to_owned(), word.ends_with('*'));
    paths.iter().map(|(path, words)| ((*path).to_owned(), words.split_whitespace().map(read).collect())).collect()
}

fn lacking(requirement: Requirement, paths: &[(&str, &str)]) -> Option<String> {
    missing(&[requirement], &granted(paths)).into_iter().next().map(|it| it.path)
}

#[test]
fn a_privilege_counts_where_it_is_listed_or_passed_on_from_the_nearest_place() {
    let of = || Requirement::new("/storage/a", "Datastore.AllocateSpace", "");
    let lacks = Some("/storage/a".to_owned());
    for (paths, expected) in [
        (&[][..], &lacks),
        (&[("/storage/a", "Datastore.AllocateSpace")], &None),
        (&[("/storage", "Datastore.AllocateSpace*")], &None),
        (&[("/storage", "Datastore.AllocateSpace")], &lacks),
        (&[("/", "Datastore.AllocateSpace*")], &None),
        (&[("/", "Datastore.AllocateSpace")], &lacks),
        (&[("/", "Datastore.AllocateSpace*"), ("/storage", "Datastore.Audit*")], &lacks),
        (&[("/storage", "Datastore.AllocateSpace*"), ("/storage/a", "Datastore.Audit")], &lacks),
        (&[("/storage/ab", "Datastore.AllocateSpace*"), ("/vms", "Datastore.AllocateSpace*")], &lacks),
    ] {
        assert_eq!(&lacking(of(), paths), expected, "{paths:?}");
    }
    let seen = storage_requirements(&needs(None)).into_iter().find(|it| it.privilege == "Datastore.Audit").unwrap();
    assert_eq!(lacking(seen, &[("/storage/local", "Datastore.AllocateSpace")]), None, "does as well");
}

#[test]
fn rights_to_guests_hold_by_their_pool_or_for_every_number() {
    let audit = |pool| requirements(&needs(pool)).into_iter().find(|it| it.privilege == "VM.Audit").unwrap();
    let (all, pool) = (Some("/vms".to_owned()), Some("/pool/blue".to_owned()));
    let each = [("/vms/421", "VM.Audit"), ("/vms/422", "VM.Audit"), ("/vms/423", "VM.Audit"), ("/vms/424", "VM.Audit")];
    for (name, paths, expected) in [
        (None, &[("/vms", "VM.Audit*")][..], None),
        (None, &[("/vms", "VM.Audit")], all.clone()),
        (None, &[("/pool/blue", "VM.Audit*")], all.clone()),
        (None, &[("/vms", "VM.Audit*"), ("/vms/422", "VM.Clone")], Some("/vms/422".to_owned())),
        (None, &[("/vms", "VM.Audit*"), ("/vms/500", "VM.Clone")], None),
        (None, &each, None),
        (None, &each[1..], all),
        (Some("blue"), &[("/pool/blue", "VM.Audit")], None),
        (Some("blue"), &[("/pool", "VM.Audit*")], None),
        (Some("blue"), &[("/vms", "VM.Audit*")], None),
        (Some("blue"), &[("/pool/green", "VM.Audit*")], pool),
    ] {
        assert_eq!(lacking(audit(name), paths), expected, "{name:?} {paths:?}");
    }
}

#[test]
fn places_follow_the_castle() {
    let paths = |needs: &Needs| -> BTreeSet<String> { requirements(needs).into_iter().map(|it| it.path).collect() };
    let tagged = Needs { vlan: Some(30), iso: Some("local".into()), images: "local-lvm".into(), ..needs(None) };
    let expected = [
        "/",
        "/nodes/pve1",
        "/nodes/pve2",
        "/sdn/zones/localnetwork/vmbr0/30",
        "/storage/local",
        "/storage/local-lvm",
        "/vms",
    ];
    assert_eq!(paths(&tagged).into_iter().collect::<Vec<_>>(), expected);
    let zone = Needs { zone: Some("fabric".into()), ..needs(None) };
    assert!(paths(&zone).contains("/sdn/zones/fabric/vmbr0"));
    let one_storage = Needs { images: "local-lvm".into(), iso: None, ..needs(None) };
    let words: Vec<&str> = storage_requirements(&one_storage).iter().map(|it| it.privilege).collect();
    assert_eq!(
        words,
        ["Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Allocate"],
        "what sees is there already"
    );
}

#[test]
fn what_is_asked_for_exists_in_its_release() {
    for file in ["pve-api-schema.json", "pve-api-schema-8.json"] {
        let Some(text) = castle_testbed::oracle_text(&format!("data/{file}")) else { return };
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        let known: BTreeSet<&str> =
            schema["_privileges"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        for pool in [None, Some("blue")] {
            for requirement in requirements(&needs(pool)) {
                assert!(known.contains(requirement.privilege), "{file}: {}", requirement.privilege);
            }
        }
        let pattern = &schema["paths"]["/access/acl"]["PUT"]["parameters"]["properties"];
        for option in ["users", "tokens", "roles", "propagate", "path"] {
            assert!(pattern[option].is_object(), "{file}: acl modify has no {option}");
        }
    }
}

#[test]
fn tokens_have_names_that_proxmox_takes() {
    for (castle, token) in [("blue", "blue"), ("b", "castle-b"), ("7seas", "castle-7seas"), ("b-1", "b-1")] {
        assert_eq!(token_name(castle), token);
    }
}

#[test]
fn the_commands_give_just_what_is_needed() {
    insta::assert_snapshot!(pveum(&needs(Some("blue")), NINE, "castle@pve", "blue").join("\n"), @r"
    # What the castle `blue` needs of Proxmox VE 9, and nothing else. As root, on any one host.
    # Run it again whenever you like: of what exists already pveum says so, and goes on.
    pveum pool add blue
    # If vmbr0 is a virtual network, write its zone in place of localnetwork.
    # Can be left out: Datastore.Allocate (to remove the download once it has become an image).
    # Can be left out: Sys.Audit (free memory, so that nodes go where they fit).
    # Can be left out: Sys.Audit (to see whether the cluster has a quorum).
    pveum role add castle-blue-cluster
    pveum role modify castle-blue-cluster --privs 'Sys.Audit'
    pveum role add castle-blue-disks
    pveum role modify castle-blue-disks --privs 'Datastore.AllocateSpace'
    pveum role add castle-blue-guests
    pveum role modify castle-blue-guests --privs 'Pool.Audit VM.Allocate VM.Audit VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options VM.PowerMgmt'
    pveum role add castle-blue-hosts
    pveum role modify castle-blue-hosts --privs 'Sys.AccessNetwork Sys.Audit'
    pveum role add castle-blue-images
    pveum role modify castle-blue-images --privs 'Datastore.Allocate Datastore.AllocateTemplate Datastore.Audit'
    pveum role add castle-blue-iso
    pveum role modify castle-blue-iso --privs 'Datastore.Audit'
    pveum role add castle-blue-network
    pveum role modify castle-blue-network --privs 'SDN.Use'
    pveum user add castle@pve
    # Shows the secret once: keep it where `token` in castle.yaml says, as USER@REALM!NAME=SECRET.
    pveum user token add castle@pve blue --privsep 1
    # A token may what both it and its user may, so both are named.
    pveum acl modify /pool/blue --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-guests --propagate 0
    pveum acl modify /storage/local-lvm --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-disks --propagate 0
    pveum acl modify /storage/local --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-images --propagate 0
    pveum acl modify /storage/cds --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-iso --propagate 0
    pveum acl modify /nodes/pve1 --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-hosts --propagate 0
    pveum acl modify /nodes/pve2 --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-hosts --propagate 0
    pveum acl modify /sdn/zones/localnetwork/vmbr0 --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-network --propagate 0
    pveum acl modify / --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-cluster --propagate 0
    ");
}

#[test]
fn without_a_pool_and_on_the_older_release_the_commands_differ() {
    let needs = Needs { iso: None, hosts: vec!["pve1".into()], vlan: Some(30), ..needs(None) };
    insta::assert_snapshot!(pveum(&needs, EIGHT, "castle@pve", "blue").join("\n"), @r"
    # What the castle `blue` needs of Proxmox VE 8, and nothing else. As root, on any one host.
    # Run it again whenever you like: of what exists already pveum says so, and goes on.
    # On /vms, which is every guest: rights to a single VMID go when its guest is removed, and castle could
    # never raise again what it took down. Name a `pool` in castle.yaml, and they are for the pool alone.
    # If vmbr0 is a virtual network, write its zone in place of localnetwork.
    # Can be left out: Datastore.Allocate (to remove the download once it has become an image).
    # Can be left out: Sys.Audit (free memory, so that nodes go where they fit).
    # Can be left out: Sys.Audit (to see whether the cluster has a quorum).
    pveum role add castle-blue-cluster
    pveum role modify castle-blue-cluster --privs 'Sys.Audit'
    pveum role add castle-blue-disks
    pveum role modify castle-blue-disks --privs 'Datastore.AllocateSpace'
    pveum role add castle-blue-guests
    pveum role modify castle-blue-guests --privs 'VM.Allocate VM.Audit VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options VM.PowerMgmt'
    pveum role add castle-blue-hosts
    pveum role modify castle-blue-hosts --privs 'Sys.AccessNetwork Sys.Audit'
    pveum role add castle-blue-images
    pveum role modify castle-blue-images --privs 'Datastore.Allocate Datastore.AllocateTemplate Datastore.Audit'
    pveum role add castle-blue-network
    pveum role modify castle-blue-network --privs 'SDN.Use'
    pveum user add castle@pve
    # Shows the secret once: keep it where `token` in castle.yaml says, as USER@REALM!NAME=SECRET.
    pveum user token add castle@pve blue --privsep 1
    # A token may what both it and its user may, so both are named.
    pveum acl modify /vms --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-guests --propagate 1
    pveum acl modify /storage/local-lvm --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-disks --propagate 0
    pveum acl modify /storage/local --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-images --propagate 0
    pveum acl modify /nodes/pve1 --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-hosts --propagate 0
    pveum acl modify /sdn/zones/localnetwork/vmbr0/30 --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-network --propagate 0
    pveum acl modify / --users castle@pve --tokens 'castle@pve!blue' --roles castle-blue-cluster --propagate 0
    ");
}
