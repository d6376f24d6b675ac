//! Files that are no castle, down to hostile ones: exit 4 and a clear message, within a second and 100 MB.

use crate::problems::GOOD;
use crate::world::World;

/// Holds that a file is refused with a problem of this code and a hint, within the bounds.
fn check(text: impl AsRef<[u8]>, code: &str, what: &str) {
    let world = World::new();
    world.write("castle.yaml", text);
    let terminal = world.castle_within_bounds(&["check"]);
    assert_eq!(terminal.code, Some(4), "{what}: {}", terminal.transcript());
    assert!(terminal.stderr.starts_with("error["), "{what}: {}", terminal.transcript());
    assert!(terminal.stderr.contains("= help: "), "{what} has no hint: {}", terminal.transcript());
    let objects = world.castle_within_bounds(&["check", "--json"]);
    assert_eq!((objects.code, &objects.result()["result"]), (Some(4), &"invalid".into()), "{what}");
    let problems = objects.result()["problems"].as_array().unwrap().clone();
    assert!(problems.iter().any(|problem| problem["code"] == code), "{what}: {}", terminal.transcript());
}

#[test]
fn files_that_are_no_castle() {
    check("", "file-empty", "an empty file");
    check("\u{feff}", "file-empty", "a byte order mark alone");
    check("- a\n", "wrong-type", "a list");
    check("x", "wrong-type", "a word");
    check(b"\xff\xfec\0a\0", "not-utf8", "UTF-16");
    check(b"\0\0\0\0", "yaml-syntax", "zeros");
    check("a: 1\n...\nb: 2\n", "yaml-documents", "several documents");
    check("<<: 1\n", "unknown-key", "a merge key");
    check("? [a]\n: b\n", "yaml-syntax", "a list as a key");
    check("%YAML 1.2\n---\na: 1\n", "yaml-syntax", "a directive");
    check("a: *b\n", "yaml-syntax", "an unknown alias");
}

#[test]
fn files_too_large_or_too_deep() {
    check(vec![b'#'; 100 << 20], "file-too-large", "100 MB of text");
    check("[".repeat(10_000), "yaml-depth", "10,000 brackets");
    check("{a: ".repeat(10_000), "yaml-depth", "10,000 braces");
    let indented: String = (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    check(indented, "yaml-depth", "1,000 levels of indentation");
    check("- ".repeat(10_000), "yaml-depth", "10,000 dashes on a line");
    let lines =
        (1..60).map(|level| format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 50].join(", ")));
    let bomb: String = std::iter::once("l0: &l0 x\n".to_owned()).chain(lines).collect();
    check(bomb, "yaml-aliases", "a bomb of aliases");
}

/// A file at the limit in which every line is a mistake, of each costly kind.
#[test]
fn files_full_of_mistakes() {
    let full = |line: &dyn Fn(usize) -> String| {
        let mut text = GOOD.to_owned();
        for number in 0.. {
            let line = line(number);
            if text.len() + line.len() > 1 << 20 {
                return text;
            }
            text += &line;
        }
        unreachable!()
    };
    check(full(&|number| format!("firstadress{number}: 1\n")), "unknown-key", "unknown keys");
    let token = ["gh", "p_0123456789abcdefghijABCDEFGHIJ"].concat();
    check(full(&|number| format!("k{number}: {token}{number:06}\n")), "secret-value", "tokens");
    check(full(&|number| format!("{token}{number:06}: x\n")), "secret-value", "tokens as keys");
    check(GOOD.replace("count: 2,", "count: 5000,"), "vmids-too-few", "5,000 workers");
    let overrides: String =
        (1..20_000).map(|number| format!("    blue-w-{number}: {{address: 192.168.1.7}}\n")).collect();
    check(GOOD.to_owned() + "  overrides:\n" + &overrides, "override-unknown-node", "20,000 overrides of nothing");
}

#[test]
fn paths_that_lead_nowhere() {
    let world = World::new();
    std::fs::create_dir_all(world.path("folder/castle.yaml")).unwrap();
    std::os::unix::fs::symlink("b", world.path("a")).unwrap();
    std::os::unix::fs::symlink("a", world.path("b")).unwrap();
    for (path, what) in [
        ("missing", "a missing file"),
        ("folder", "a folder in the place of the file"),
        ("a", "a loop of links"),
        (".", "no castle here"),
        ("folder/castle.yaml/x", "a path below nothing"),
        ("/dev/zero", "endless zeros"),
        ("", "no name"),
    ] {
        let ran = world.castle_within_bounds(&["check", path]);
        assert_eq!(ran.code, Some(4), "{what}: {}", ran.transcript());
        assert!(!ran.stderr.is_empty(), "{what}");
    }
}

#[test]
fn a_secret_in_the_file_is_never_printed() {
    let secrets = [
        ["AGE-SECRET", "-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"].concat(),
        ["gh", "p_0123456789abcdefghijABCDEFGHIJ012345"].concat(),
        ["root@pam!castle=", "01234567-89ab-cdef-0123-456789abcdef"].concat(),
        "c3VwZXItc2VjcmV0LXZhbHVlLXRoYXQtaXMtbG9uZw==".to_owned(),
    ];
    for secret in &secrets {
        let places = [
            GOOD.replace("env:PROXMOX_TOKEN", secret),
            GOOD.replace("env:PROXMOX_TOKEN", &format!("\"{secret}\"")),
            GOOD.replace("env:PROXMOX_TOKEN", &format!("[{secret}]")),
            GOOD.replace("env:PROXMOX_TOKEN", &format!("{{a: {secret}}}")),
            GOOD.replace("env:PROXMOX_TOKEN", &format!("|\n      {secret}\n      {secret}")),
            GOOD.replace("env:PROXMOX_TOKEN", &format!("{secret} \"unbalanced")) + "  [",
            GOOD.replace("env:PROXMOX_TOKEN", &format!("|\n      {secret}")) + "  [",
            GOOD.replace("    nodes:", &format!("    {secret}: [1]\n    nodes:")),
            GOOD.replace("    token:", &format!("    token: {secret}\n    token:")),
        ];
        for (place, text) in places.iter().enumerate() {
            // A key of no known shape is a key like any other.
            if place == 7 && secret.ends_with("==") {
                continue;
            }
            for args in [&["check"][..], &["check", "--json"], &["check", "--resolved"], &["check", "-v"]] {
                let ran = World::with_castle(text).castle(args);
                let heart = &secret[secret.len() - 16..];
                assert!(!ran.transcript().contains(heart), "place {place}, {args:?}: {}", ran.transcript());
                assert_eq!(ran.code, Some(4), "place {place}: {}", ran.transcript());
            }
        }
    }
}
