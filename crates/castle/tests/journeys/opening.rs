//! `gitops.credential` of several parts, kept by SOPS: what Flux is given, and what is told of one that cannot be.

use crate::room::{BLUE, Room};
use crate::world::identity;

/// A room whose castle follows a folder with a credential of these parts.
fn room(parts: &str, repository: &str) -> Room {
    let room = Room::new(400);
    let world = &room.world;
    world.write(".config/sops/age/keys.txt", &identity().private);
    world.write(".sops.yaml", format!("creation_rules:\n- age: {}\n", identity().public));
    world.write("s.enc.yaml", format!("git:\n{parts}"));
    assert_eq!(world.castle(&["secrets", "encrypt", "--in-place", "s.enc.yaml"]).code, Some(0));
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: word, namespace: default}\ndata: {word: '${castle_name}'}\n";
    world.write("gitops/clusters/blue/word.yaml", map);
    let gitops = format!("gitops: {{repository: '{repository}', credential: 'sops:s.enc.yaml#git', within: 40s}}\n");
    room.write("castle.yaml", &(BLUE.to_owned() + &gitops));
    room
}

#[test]
fn a_login_of_two_parts_opens_the_repository() {
    let room = room("  username: somebody\n  password: hunter2-of-somebody\n", "embedded");
    let up = room.castle(&["up", "--json"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    assert!(up.result()["handover"]["revision"].as_str().unwrap().starts_with("main@sha1:"), "{}", up.result());
    assert!(!up.transcript().contains("hunter2"));
    let owner = room.castle(&["owners", ".", "secret/flux-system", "--namespace", "flux-system"]);
    assert!(
        owner.stdout.contains(".data.username") && owner.stdout.contains(".data.password"),
        "{}",
        owner.transcript()
    );
    assert_eq!(room.castle(&["up", "--json"]).result()["result"], "unchanged");
}

#[test]
fn an_app_that_nobody_has_installed_is_told_as_flux_tells_it() {
    // In parts, so that no file of the project has a key in it.
    let key = format!("-----BEGIN RSA {0}-----\n      MIIB\n      -----END RSA {0}-----", "PRIVATE KEY");
    let parts =
        format!("  githubAppID: '12'\n  githubAppInstallationID: '34'\n  githubAppPrivateKey: |\n      {key}\n");
    let room = room(&parts, "embedded");
    let up = room.castle(&["up"]);
    assert_eq!(up.code, Some(1), "{}", up.transcript());
    let why = "GitRepository flux-system/flux-system: is not ready (AuthenticationFailed): failed to configure authentication options";
    assert!(up.stderr.contains(why) && up.stderr.contains("401"), "{}", up.transcript());
}

#[test]
fn what_cannot_open_the_repository_is_told_before_anything_is_changed() {
    let key = "  identity: none\n  known_hosts: other.example ssh-ed25519 AAAA\n";
    for (parts, repository, why) in [
        (key, "embedded", "gitops.credential: a repository at https:// is read with a token, or a GitHub App"),
        (key, "ssh://git@git.example/r.git", "gitops.credential: `known_hosts` has no line for git.example"),
        (
            "  githubAppID: hunter2\n  githubAppInstallationID: '3'\n  githubAppPrivateKey: x\n",
            "embedded",
            "`githubAppID` is no number",
        ),
        ("  username: hunter2\n", "embedded", "it has username, which is no credential"),
    ] {
        let room = room(parts, repository);
        let up = room.castle(&["up"]);
        assert_eq!(up.code, Some(1), "{}", up.transcript());
        assert!(up.stderr.contains(why) && !up.transcript().contains("hunter2"), "{}", up.transcript());
        room.write("castle.yaml", BLUE);
        assert_eq!(room.states(), ["absent"; 3]);
    }
}

#[test]
fn an_authority_must_be_one() {
    let room = room("  username: somebody\n  password: x\n", "https://git.example/r.git");
    let with = room.world.read("castle.yaml").replace("within: 40s", "within: 40s, ca: ca.pem");
    room.write("castle.yaml", &with);
    let plan = room.castle(&["plan"]);
    assert!(plan.code == Some(4) && plan.stderr.contains("gitops.ca"), "{}", plan.transcript());
    room.world.write("ca.pem", "nothing of that kind\n");
    let plan = room.castle(&["plan"]);
    assert!(plan.code == Some(4) && plan.stderr.contains("gitops.ca"), "{}", plan.transcript());
}
