//! `castle new`: the first two minutes.

use crate::world::World;

#[test]
fn a_new_project_is_valid_at_once() {
    for platform in ["proxmox", "embedded"] {
        let world = World::new();
        let ran = world.castle(&["new", "green", "--platform", platform]);
        insta::assert_snapshot!(format!("new_{platform}"), ran.transcript());
        std::fs::create_dir(world.path(".git")).unwrap();
        world.write(".gitignore", world.read(".gitignore") + ".local/\n");
        let ran = world.castle(&["check", &format!("clusters/green/{platform}")]);
        assert_eq!((ran.stderr.as_str(), ran.code), ("", Some(0)), "{platform}");
        let stamped = world.read(&format!("clusters/green/{platform}/castle.yaml"));
        let modeline = stamped.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=").unwrap();
        let schema = world.path(&format!("clusters/green/{platform}/{modeline}"));
        assert_eq!(std::fs::read_to_string(schema).unwrap(), world.castle(&["schema"]).stdout);
        assert!(!stamped.contains("PROJECT"), "{stamped}");
    }
}

#[test]
fn nothing_is_ever_overwritten() {
    let world = World::new();
    world.write("clusters/blue/proxmox/castle.yaml", "mine\n");
    world.write(".gitignore", "target\n**/configs/\n");
    let before = world.files();
    let ran = world.castle(&["new", "blue"]);
    insta::assert_snapshot!(ran.transcript(), @r"
    error: clusters/blue/proxmox/castle.yaml exists already; nothing was written
    exit 3
    ");
    assert_eq!(world.files(), before);
    assert_eq!(world.castle(&["new", "blue", "--json"]).result()["result"], "refused");

    let ran = world.castle(&["new", "green"]);
    assert_eq!(ran.code, Some(0));
    assert_eq!(world.read(".gitignore"), "target\n**/configs/\n");
    assert!(
        ran.stdout.contains("kept   .gitignore as it is; add these lines to it:\n  **/.castle/\n"),
        "{}",
        ran.stdout
    );
    assert_eq!(world.read("clusters/blue/proxmox/castle.yaml"), "mine\n");
}

#[test]
fn a_run_that_was_cut_off_is_finished_by_the_next() {
    let world = World::new();
    world.castle(&["new", "blue"]);
    let (files, whole) = (world.files(), world.read("clusters/blue/proxmox/castle.yaml"));
    world.write("clusters/blue/proxmox/castle.yaml", &whole[..100]);
    std::fs::remove_file(world.path("clusters/blue/proxmox/secrets.example.yaml")).unwrap();
    let ran = world.castle(&["new", "blue"]);
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    assert_eq!((world.files(), world.read("clusters/blue/proxmox/castle.yaml")), (files, whole));
    assert!(world.castle(&["new", "blue"]).stdout.contains("nothing was written"));
}

#[test]
fn a_name_that_cannot_be_is_invalid_input() {
    let world = World::new();
    for name in ["Blue", "a/b", "../x", "", "a b", &"a".repeat(64)] {
        let ran = world.castle(&["new", name]);
        assert_eq!(ran.code, Some(4), "{name}: {}", ran.transcript());
    }
    assert_eq!(world.files(), [] as [String; 0]);
}
