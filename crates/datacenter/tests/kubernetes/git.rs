//! Repositories as the real Git reads them, over loopback with TLS.
#![allow(clippy::disallowed_methods, reason = "a real program reads and writes real files")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use castle_datacenter::{Blueprint, Datacenter, EMBEDDED_GIT, Latencies};
use castle_seams::SystemClock;

const URL: &str = "https://git.example.com/team/castle.git";

fn git(folder: &Path, authority: &Path, arguments: &[&str]) -> Option<(bool, String)> {
    let mut command = Command::new("git");
    command.current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", folder).env("GIT_TERMINAL_PROMPT", "0").env("GIT_SSL_CAINFO", authority).args(arguments);
    let Ok(output) = command.output() else {
        castle_testbed::skipped("there is no git");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).trim().to_owned()))
}

#[test]
fn git_clones_what_was_pushed_and_is_refused_without_the_token() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let datacenter =
        Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), Arc::new(SystemClock::new()));
    datacenter.add_repository(URL, Some("t0ken"));
    let files = |text: &str| -> BTreeMap<String, Vec<u8>> {
        let large: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        [("a/b/c.yaml", text.as_bytes().to_vec()), ("a.b", b"x\n".to_vec()), ("large", large)]
            .map(|(path, bytes)| (path.to_owned(), bytes))
            .into()
    };
    datacenter.push(URL, "main", &files("one: 1\n"), "first");
    let head = datacenter.push(URL, "main", &files("two: 2\n"), "second");
    let serving = runtime.block_on(datacenter.serve_git("git.example.com", "127.0.0.1:0".parse().unwrap())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, &serving.authority).unwrap();
    let run = |arguments: &[&str]| git(folder.path(), &authority, arguments);
    let with = |user: &str| format!("https://{user}{}/team/castle.git", serving.address);
    let Some((is_in, why)) = run(&["clone", "-q", &with(""), "none"]) else { return };
    assert!(!is_in, "{why}");
    for (name, depth) in [("whole", "100"), ("shallow", "1")] {
        let (is_in, why) = run(&["clone", "-q", "--depth", depth, &with("x:t0ken@"), name]).unwrap();
        assert!(is_in, "{why}");
        assert_eq!(run(&["-C", name, "rev-parse", "HEAD"]).unwrap().1, head);
        assert_eq!(run(&["-C", name, "fsck", "--strict", "--no-progress"]).unwrap(), (true, String::new()));
        assert_eq!(std::fs::read_to_string(folder.path().join(name).join("a/b/c.yaml")).unwrap(), "two: 2\n");
    }
    let (is_in, why) = run(&["clone", "-q", &with("x:t0ken@"), "all"]).unwrap();
    assert!(is_in, "{why}");
    assert_eq!(run(&["-C", "all", "rev-list", "--count", "HEAD"]).unwrap().1, "2");
    datacenter.push(URL, "main", &files("three: 3\n"), "third");
    let (is_in, why) = run(&["-C", "all", "pull", "-q"]).unwrap();
    assert!(is_in, "{why}");
    assert_eq!(run(&["-C", "all", "rev-list", "--count", "HEAD"]).unwrap().1, "3");
}

#[test]
fn git_clones_what_a_folder_holds_now_on_any_branch() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let datacenter =
        Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), Arc::new(SystemClock::new()));
    let told = Arc::new(Mutex::new(Ok(BTreeMap::from([("a/b.yaml".to_owned(), b"one: 1\n".to_vec())]))));
    let source = told.clone();
    let source = move |path: &str| match path {
        "blue" => source.lock().unwrap().clone().map(Some),
        _ => Ok(None),
    };
    datacenter.follow_repositories(EMBEDDED_GIT, Arc::new(source));
    let serving = runtime.block_on(datacenter.serve_git(EMBEDDED_GIT, "127.0.0.1:0".parse().unwrap())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, &serving.authority).unwrap();
    let run = |arguments: &[&str]| git(folder.path(), &authority, arguments);
    let url = format!("https://{}/blue.git", serving.address);
    let Some((is_in, refs)) = run(&["ls-remote", &url]) else { return };
    assert!(is_in, "{refs}");
    let id = refs.split_whitespace().next().unwrap().to_owned();
    assert_eq!(refs, format!("{id}\tHEAD\n{id}\trefs/heads/main"));
    for (branch, name) in [("main", "one"), ("next", "two")] {
        let (is_in, why) = run(&["clone", "-q", "-b", branch, &url, name]).unwrap();
        assert!(is_in, "{why}");
        assert_eq!(run(&["-C", name, "rev-parse", "HEAD"]).unwrap().1, id);
        assert_eq!(run(&["-C", name, "fsck", "--strict", "--no-progress"]).unwrap(), (true, String::new()));
    }
    *told.lock().unwrap() = Ok(BTreeMap::from([("c.yaml".to_owned(), b"two: 2\n".to_vec())]));
    let (is_in, why) = run(&["-C", "one", "pull", "-q"]).unwrap();
    assert!(is_in, "{why}");
    assert_eq!(run(&["-C", "one", "rev-list", "--count", "HEAD"]).unwrap().1, "2");
    assert_eq!(run(&["-C", "one", "ls-files"]).unwrap().1, "c.yaml");
    *told.lock().unwrap() = Err("the folder gitops is gone".to_owned());
    let (is_in, why) = run(&["-C", "one", "pull", "-q"]).unwrap();
    assert!(!is_in && why.contains("the folder gitops is gone"), "{why}");
    let (is_in, why) = run(&["ls-remote", &url.replace("blue", "green")]).unwrap();
    assert!(!is_in && why.contains("not found"), "{why}");
    // A host that is closed tells strangers nothing, not even what there is.
    *told.lock().unwrap() = Ok(BTreeMap::from([("c.yaml".to_owned(), b"two: 2\n".to_vec())]));
    datacenter.close_git_host(EMBEDDED_GIT, "planted");
    for (url, expected) in [
        (url.clone(), false),
        (url.replace("blue", "green"), false),
        (url.replace("https://", "https://castle:wrong@"), false),
        (url.replace("https://", "https://castle:planted@"), true),
    ] {
        let (is_in, why) = run(&["ls-remote", &url]).unwrap();
        assert!(is_in == expected && !why.contains("not found"), "{url}: {why}");
    }
}
