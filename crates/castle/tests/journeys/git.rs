//! What castle takes git to ignore is what git ignores.

use std::process::Command;

use crate::problems::GOOD;
use crate::world::World;

/// Asks both about `configs/` under each set of rules. Without git there is nobody to ask.
#[test]
fn castle_and_git_agree() {
    let have_git = Command::new("git").arg("--version").output().is_ok();
    if !have_git {
        castle_testbed::skipped("there is no git to compare with");
        return;
    }
    let rules = [
        ("", ""),
        ("configs/", ""),
        ("**/configs/", ""),
        ("configs", ""),
        ("/configs/", ""),
        ("clusters/", ""),
        ("clusters/*/configs", ""),
        ("*", ""),
        ("**/configs/\n!clusters/blue/configs/", ""),
        ("clusters/blue/*\n!clusters/blue/configs", ""),
        ("# configs/", ""),
        ("\\#x\nconfigs/ ", ""),
        ("Configs/", ""),
        ("", "configs/"),
        ("configs/", "!configs/"),
        ("", "/configs"),
        ("conf*", ""),
        ("configs/**", ""),
        ("[c]onfigs/", ""),
        ("clusters/blue", "!configs/"),
    ];
    for (root, nested) in rules {
        let world = World::new();
        world.write("clusters/blue/proxmox/castle.yaml", GOOD);
        world.write("clusters/blue/configs/kubeconfig", "");
        std::fs::set_permissions(
            world.path("clusters/blue/configs/kubeconfig"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .unwrap();
        world.write(".gitignore", format!("{root}\n"));
        world.write("clusters/blue/.gitignore", format!("{nested}\n"));
        let git = |args: &[&str]| world.run(Command::new("git").args(args));
        assert_eq!(git(&["init", "-q"]).code, Some(0));
        // git speaks of files: a folder is safe when what is put into it is ignored.
        let ignored = git(&["check-ignore", "-q", "clusters/blue/configs/kubeconfig"]).code == Some(0);
        let castle = world.castle(&["check", "clusters/blue/proxmox"]);
        let complains = castle.stderr.contains("error[configs-tracked]");
        assert_eq!(complains, !ignored, "rules {root:?} and {nested:?}: {}", castle.transcript());
    }
}
