//! The verbs that print, and what all verbs share.

use crate::world::World;

#[test]
fn help_says_what_there_is() {
    let world = World::new();
    let mut all = String::new();
    for args in [
        &["--help"][..],
        &["new", "--help"],
        &["check", "--help"],
        &["schema", "--help"],
        &["completions", "--help"],
        &["man", "--help"],
        &["state", "--help"],
        &["lease", "--help"],
        &["lock", "--help"],
        &["gitops", "--help"],
        &["gitops", "check", "--help"],
        &["mirror", "--help"],
        &["handover", "--help"],
        &["down", "--help"],
        &["adopt", "--help"],
        &["rehearse", "--help"],
    ] {
        let ran = world.castle(args);
        assert_eq!(ran.code, Some(0));
        all += &format!("$ castle {}\n{}\n", args.join(" "), ran.stdout);
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_mistake_on_the_command_line_is_invalid_input() {
    let world = World::new();
    for args in [&["chek"][..], &[], &["check", "--nope"], &["check", "-q", "-v"], &["new"]] {
        assert_eq!(world.castle(args).code, Some(4), "{args:?}");
    }
}

#[test]
fn the_committed_schema_is_fresh() {
    let committed =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/castle.schema.json")).unwrap();
    assert!(committed == World::new().castle(&["schema"]).stdout, "run `cargo xtask generate`");
    let reference = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/castle-yaml.md")).unwrap();
    assert!(reference == World::new().castle(&["schema", "--reference"]).stdout, "run `cargo xtask generate`");
}

#[test]
fn completions_and_manual_pages_know_the_verbs() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(world.castle(&["completions", shell]).stdout.contains("check"), "{shell}");
    }
    assert_eq!(world.castle(&["man", "man1"]).code, Some(0));
    let verbs = [
        "-adopt",
        "-check",
        "-completions",
        "-datacenter",
        "-doctor",
        "-down",
        "-drift",
        "-gitops",
        "-handover",
        "-kubeconfig",
        "-lease",
        "-lock",
        "-man",
        "-mirror",
        "-new",
        "-owners",
        "-plan",
        "-rebirth",
        "-rehearse",
        "-schema",
        "-secrets",
        "-state",
        "-status",
        "-talosconfig",
        "-timeline",
        "-up",
        "-wipe",
        "",
    ];
    assert_eq!(world.files(), verbs.map(|verb| format!("man1/castle{verb}.1")));
    assert!(world.read("man1/castle-check.1").contains("every problem with its line"));
    assert_eq!(world.castle(&["man", "man1"]).code, Some(0), "again, over the older pages");
}

#[test]
fn colour_is_for_terminals_unless_asked_for() {
    let world = World::new();
    assert!(!world.castle(&["check"]).stderr.contains('\u{1b}'));
    assert!(world.castle(&["check", "--color", "always"]).stderr.contains('\u{1b}'));
}

#[test]
fn quiet_says_nothing_about_what_is_right() {
    let world = World::with_castle(&crate::problems::GOOD.replace("count: 3", "count: 1"));
    let ran = world.castle(&["check", "--quiet"]);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), ("", "", Some(0)));
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let script = format!("{} schema | head -c 1 >/dev/null; echo \"${{PIPESTATUS[0]}}\"", env!("CARGO_BIN_EXE_castle"));
    let ran = World::new().run(std::process::Command::new("bash").args(["-c", &script]));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("0\n", ""));
}
