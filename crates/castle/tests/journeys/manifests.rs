//! `castle lock` and `castle mirror`: which manifests a castle's components have, and how they are carried.

use std::process::Command;

use castle_components::lock::Lock;
use castle_components::mirror::{Listed, write_index};
use castle_components::{digest, standin};
use castle_spec::ComponentName;
use serde_json::json;

use crate::problems::GOOD;
use crate::world::World;

/// A castle with all components, somewhere else than in the web's reach.
fn all() -> String {
    let more = "castle: blue\ngitops: {repository: 'https://h.example/blue.git'}\nsecrets: {infisical: {region: eu, project: p, environment: prod, identity: env:IDENTITY}}\n";
    GOOD.replace("castle: blue\n", more)
}

/// Puts a mirror into the world, with manifests that are small.
fn mirror(world: &World, folder: &str) {
    let listed = ComponentName::ALL.map(|component| {
        let (file, text) = (format!("{component}.yaml"), standin::text(component));
        world.write(&format!("{folder}/{file}"), &text);
        let (version, sha256) = (component.newest(), digest(text.as_bytes()));
        Listed { component, version, file, sha256, upstream: String::new(), images: Vec::new() }
    });
    world.write(&format!("{folder}/index.yaml"), write_index(&listed));
}

#[test]
fn what_castle_was_tested_with_is_pinned_without_asking_anybody() {
    let world = World::with_castle(GOOD);
    assert_eq!(world.castle(&["lock", "--check"]).code, Some(2));
    insta::assert_snapshot!("lock", world.castle(&["lock"]).transcript());
    let written = world.read("castle.lock");
    insta::assert_snapshot!("castle.lock", written);
    let again = world.castle(&["lock"]);
    assert!(again.code == Some(0) && again.stdout.ends_with("castle.lock is up to date\n"), "{}", again.transcript());
    assert_eq!(world.read("castle.lock"), written);
    assert_eq!(world.castle(&["lock", "--check"]).stdout, "castle.lock is up to date\n");
    assert_eq!(world.castle(&["lock", "--json"]).result()["result"], "unchanged");
    assert_eq!(world.files(), ["castle.lock", "castle.yaml"], "and nothing else is written");
}

#[test]
fn a_lock_that_is_not_up_to_date_is_told_and_mended() {
    let world = World::with_castle(GOOD);
    world.castle(&["lock"]);
    world.write("own.yaml", "one");
    let other = "castle: blue\nstorage: none\ncomponents: {metallb: {source: own.yaml}}\n";
    world.write("castle.yaml", GOOD.replace("castle: blue\n", other));
    insta::assert_snapshot!("lock_check", world.castle(&["lock", "--check"]).transcript());
    let pull = world.castle(&["mirror", "pull", "mirror"]);
    assert!(pull.code == Some(4) && pull.stderr.contains("castle.lock is not up to date: "), "{}", pull.transcript());
    assert_eq!(world.castle(&["lock"]).code, Some(0));
    assert_eq!(world.castle(&["lock", "--check"]).code, Some(0));
    world.write("own.yaml", "two");
    let checked = world.castle(&["lock", "--check", "--json"]);
    assert_eq!((checked.code, &checked.result()["result"]), (Some(2), &json!("stale")), "{}", checked.transcript());
    assert_eq!(checked.result()["problems"][0]["summary"], "metallb: own.yaml has changed since it was pinned");
    assert_eq!(world.castle(&["lock"]).code, Some(0));
    assert_eq!(world.castle(&["lock", "--check"]).code, Some(0));
    std::fs::remove_file(world.path("own.yaml")).unwrap();
    let gone = world.castle(&["lock"]);
    assert!(gone.code == Some(1) && gone.stderr.contains("own.yaml: no such file"), "{}", gone.transcript());

    world.write("castle.lock", "schema: 1\ncomponents:\n  traefik: {}\n");
    let broken = world.castle(&["lock"]);
    assert!(
        broken.code == Some(4) && broken.stderr.contains("castle.lock, line 3: no such component"),
        "{}",
        broken.transcript()
    );
}

#[test]
fn a_mirror_is_pinned_pulled_and_verified() {
    let world = World::with_castle(&all());
    mirror(&world, "theirs");
    let locked = world.castle(&["lock", "--mirror", "theirs"]);
    assert_eq!(locked.code, Some(0), "{}", locked.transcript());
    let lock = Lock::read(&world.read("castle.lock")).unwrap();
    assert_eq!(lock.entries.len(), 4);
    assert!(lock.entries.iter().all(|(name, entry)| entry.source.to_string() == format!("mirror:{name}.yaml")));
    assert!(world.castle(&["lock"]).stdout.ends_with("is up to date\n"), "what is pinned stays");

    let alone = world.castle(&["mirror", "pull", "ours"]);
    assert!(alone.code == Some(1) && alone.stderr.contains("which only a mirror has"), "{}", alone.transcript());
    let pulled = world.castle_with(&["mirror", "pull", "ours"], &[("CASTLE_MIRROR", "theirs")]);
    insta::assert_snapshot!("mirror_pull", pulled.transcript());
    insta::assert_snapshot!("mirror_verify", world.castle(&["mirror", "verify", "ours"]).transcript());
    assert_eq!(world.read("ours/flux.yaml"), standin::text(ComponentName::Flux));
    // What the folder held before stays, and what is pulled again is the same.
    let index = world.read("ours/index.yaml");
    assert_eq!(world.castle(&["mirror", "pull", "ours", "--mirror", "theirs"]).code, Some(0));
    assert_eq!(world.read("ours/index.yaml"), index);

    // A real tar packs it.
    assert!(world.run(Command::new("tar").args(["-cf", "ours.tar", "ours"])).code == Some(0));
    assert_eq!(world.castle(&["mirror", "verify", "ours.tar", "--json"]).result()["result"], "whole");
    assert_eq!(world.castle(&["mirror", "pull", "third", "--mirror", "ours.tar"]).code, Some(0));
    assert_eq!(world.read("third/index.yaml"), index);

    world.write("ours/metallb.yaml", "cut off");
    std::fs::remove_file(world.path("ours/longhorn.yaml")).unwrap();
    let damaged = world.castle(&["mirror", "verify", "ours"]);
    let [found, expected] = ["cut off", &standin::text(ComponentName::Metallb)].map(|text| digest(text.as_bytes()));
    let told = damaged.transcript().replace(&found, "FOUND").replace(&expected, "EXPECTED");
    insta::assert_snapshot!("mirror_damaged", told);
    let states = world.castle(&["mirror", "verify", "ours", "--json"]).result();
    assert_eq!((&states["files"][1]["state"], &states["files"][2]["state"]), (&json!("differs"), &json!("missing")));
    std::fs::remove_file(world.path("castle.lock")).unwrap();
    let refused = world.castle(&["lock", "--mirror", "ours"]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("castle mirror verify ours"),
        "{}",
        refused.transcript()
    );
    assert!(!world.files().contains(&"castle.lock".to_owned()));
}

#[test]
fn what_was_pulled_is_kept_by_its_digest() {
    let world = World::with_castle(GOOD);
    mirror(&world, "theirs");
    assert_eq!(world.castle(&["lock", "--mirror", "theirs"]).code, Some(0));
    assert_eq!(world.castle(&["mirror", "pull", "ours", "--mirror", "theirs"]).code, Some(0));
    let kept: Vec<String> = world.files().into_iter().filter(|file| file.contains(".manifests/")).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    for file in &kept {
        assert!(file.ends_with(&digest(world.read(file).as_bytes())), "{file}");
    }
    // From there it is had without the mirror.
    assert_eq!(world.castle(&["mirror", "pull", "again"]).code, Some(0));
    assert_eq!(world.read("again/index.yaml"), world.read("ours/index.yaml"));
}

#[test]
fn castles_in_the_embedded_datacenter_have_nothing_to_pin() {
    let from = GOOD.find("  proxmox:").unwrap();
    let to = GOOD.find("talos:").unwrap();
    let world =
        World::with_castle(&format!("{}{}", &GOOD[..from].replace("platform:\n", "platform: embedded\n"), &GOOD[to..]));
    for args in [&["lock"][..], &["lock", "--check"]] {
        let ran = world.castle(args);
        assert!(ran.code == Some(0) && ran.stdout.contains("nothing to pin"), "{}", ran.transcript());
    }
    assert_eq!(world.files(), ["castle.yaml"]);
    mirror(&world, "theirs");
    assert_eq!(world.castle(&["lock", "--mirror", "theirs"]).code, Some(0));
    assert_eq!(Lock::read(&world.read("castle.lock")).unwrap().entries.len(), 2);
}

#[test]
fn what_is_no_mirror_is_invalid() {
    let world = World::with_castle(GOOD);
    world.write("words.tar", "no archive at all");
    for (place, why) in [
        ("nowhere", "nowhere: no such file"),
        (".", "has an index.yaml that cannot be used"),
        ("words.tar", "no whole tar archive"),
    ] {
        for args in [
            &["mirror", "verify", place][..],
            &["lock", "--mirror", place],
            &["mirror", "pull", "x", "--mirror", place],
        ] {
            let ran = world.castle(args);
            assert!(ran.code == Some(4) && ran.stderr.contains(why), "{args:?}: {}", ran.transcript());
        }
    }
}
