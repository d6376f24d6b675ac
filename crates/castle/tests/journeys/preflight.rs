//! The Git repository on its bad days, as `gitops check`, `doctor` and `plan` tell of it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use castle_datacenter::{Blueprint, Datacenter, Latencies};
use castle_seams::SystemClock;
use tokio::sync::oneshot;

use crate::room::{BLUE, Room};
use crate::world::Ran;

const HOST: &str = "git.lan";
const TOKEN: &str = "of-no-use-anywhere-else";

/// A host of repositories in this process, and a room with a castle that follows one of them.
struct Site {
    room: Room,
    hosts: Datacenter,
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    fn new() -> Self {
        let room = Room::new(100);
        let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none());
        let hosts = Datacenter::new(blueprint, Arc::new(SystemClock::new()));
        hosts.git_down(HOST, false);
        let (told, tell) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let served = hosts.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let serving = served.serve_git(HOST, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).await.unwrap();
                told.send((serving.address, serving.authority.clone())).unwrap();
                let _ = ended.await;
            });
        });
        let (address, authority) = tell.recv().unwrap();
        room.world.write("git-ca.pem", authority);
        room.world.write("token", TOKEN);
        room.world.write("wrong-token", "never-shown-token");
        for secret in ["token", "wrong-token"] {
            std::fs::set_permissions(room.world.path(secret), PermissionsExt::from_mode(0o600)).unwrap();
        }
        Self { room, hosts, address, end: Some(end), thread: Some(thread) }
    }

    /// Lets the castle follow the repository, with more to say of it.
    fn follow(&self, more: &str) {
        self.follow_at(&format!("https://{}/team/blue.git", self.address), more);
    }

    fn follow_at(&self, repository: &str, more: &str) {
        self.room.write("castle.yaml", &format!("{BLUE}gitops: {{repository: '{repository}'{more}}}\n"));
    }

    fn push(&self, files: &[(&str, &str)]) {
        let files: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
        self.hosts.push(&format!("https://{HOST}/team/blue.git"), "main", &files, "a commit");
    }

    fn token(&self, token: Option<&str>) {
        self.hosts.add_repository(&format!("https://{HOST}/team/blue.git"), token);
    }

    /// castle, which believes the host's authority, and where the host is.
    fn castle(&self, args: &[&str]) -> Ran {
        self.castle_with(args, &[("GIT_SSL_CAINFO", self.room.world.path("git-ca.pem").to_str().unwrap())])
    }

    fn castle_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let ran = self.room.castle_with(args, variables);
        let usual = |text: String| without_commit(&text.replace(&self.address.to_string(), HOST));
        let ran = Ran { stdout: usual(ran.stdout), stderr: usual(ran.stderr), ..ran };
        assert!(!ran.transcript().contains("never-shown-token"), "{}", ran.transcript());
        ran
    }

    /// What the three verbs tell people: all that `gitops check` says, what `doctor` says of the tree, what `plan` complains of.
    fn told(&self) -> String {
        let (check, doctor, plan) =
            (self.castle(&["gitops", "check"]), self.castle(&["doctor"]), self.castle(&["plan"]));
        let exit = |ran: &Ran| format!("exit {}", ran.code.unwrap());
        let of_the_tree: Vec<&str> = doctor.stdout.split_inclusive('\n').collect();
        let begin = of_the_tree.iter().position(|line| line.contains("git-tree")).unwrap_or(of_the_tree.len());
        let of_the_tree: String =
            of_the_tree[begin..].iter().take_while(|line| !line.trim().is_empty()).copied().collect();
        format!(
            "$ castle gitops check\n{}$ castle doctor\n{of_the_tree}{}\n$ castle plan\n{}\n{}\n",
            check.transcript(),
            exit(&doctor),
            plan.stderr.trim(),
            exit(&plan)
        )
    }
}

/// The same text, whichever commit it names.
fn without_commit(text: &str) -> String {
    let is_id = |rest: &str| rest.len() > 12 && rest.bytes().take(12).all(|byte| byte.is_ascii_hexdigit());
    let mut parts = text.split(" at ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, rest| {
        whole + " at " + &if is_id(rest) { format!("COMMIT{}", &rest[12..]) } else { rest.to_owned() }
    })
}

/// What is told programs of the tree: codes and weights.
fn of_the_tree(result: &serde_json::Value) -> Vec<(&str, &str)> {
    let problems = result["problems"].as_array().unwrap().iter();
    problems.filter_map(|it| Some((it["code"].as_str()?, it["severity"].as_str()?))).collect()
}

impl Drop for Site {
    fn drop(&mut self) {
        // Whoever has gone already needs no telling.
        let _ = self.end.take().map(|end| end.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {a: b}\n";
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system}\n";

#[test]
fn it_cannot_be_had() {
    let site = Site::new();
    let mut told = String::new();
    let mut note = |what: &str| told += &format!("# {what}\n\n{}\n", site.told());
    site.follow("");
    note("there is no repository");
    site.token(None);
    note("nothing was ever pushed");
    site.push(&[("clusters/blue/a.yaml", MAP)]);
    site.follow(", branch: live");
    note("the branch is missing");
    site.follow(", path: clusters/nowhere");
    note("the folder is missing");
    site.token(Some(TOKEN));
    site.follow("");
    note("a credential is wanted");
    site.follow(", credential: 'file:wrong-token'");
    note("the credential is refused");
    site.follow(", credential: 'file:nowhere'");
    note("the credential is not there");
    site.follow_at("https://127.0.0.1:9/team/blue.git", "");
    note("nobody answers");
    site.follow_at("ssh://git@git.lan/team/blue.git", "");
    note("it is reached by SSH");
    insta::assert_snapshot!(told);
}

#[test]
fn it_is_judged_wherever_it_is_looked_at() {
    let site = Site::new();
    site.token(Some(TOKEN));
    site.follow(", credential: 'file:token'");
    site.push(&[("clusters/blue/a.yaml", MAP)]);
    for verb in [&["gitops", "check"][..], &["doctor"], &["plan"]] {
        let ran = site.castle(verb);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.transcript());
    }
    assert!(
        site.castle(&["doctor"])
            .stdout
            .contains("ok     git-tree       https://git.lan/team/blue.git: 1 Kustomization with 1 object at COMMIT: 0 errors, 0 warnings, 0 notes\n")
    );
    assert_eq!(of_the_tree(&site.castle(&["plan", "--json"]).result()), []);

    // What is not judged may hide anything: it is not called fine.
    let remote = "resources: [a.yaml, 'https://github.com/example/base//deploy?ref=v1']\n";
    site.push(&[("clusters/blue/a.yaml", MAP), ("clusters/blue/kustomization.yaml", remote)]);
    let doctor = site.castle(&["doctor"]);
    assert_eq!(doctor.code, Some(0), "{}", doctor.transcript());
    assert!(doctor.stdout.contains("?      git-tree       "), "{}", doctor.stdout);
    assert!(doctor.stdout.contains(", as far as castle looked ("), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("Not known: ") && doctor.stdout.contains("git-tree"), "{}", doctor.stdout);

    site.push(&[("clusters/blue/a.yaml", &MAP.replace("a: b", "a: \"${b}\"")), ("clusters/blue/b.yaml", NAMESPACE)]);
    insta::assert_snapshot!(site.told());
    let plan = site.castle(&["plan", "--json"]).result();
    assert_eq!(plan["result"], "refused");
    assert_eq!(of_the_tree(&plan), [("variable-missing", "error"), ("owned-object", "error")]);
    assert!(!plan["actions"].as_array().unwrap().is_empty(), "what would be done is told all the same");
}

/// Goal: what time may mend stops nobody, and what it will not does. Method: the host is down, and then it is a stranger.
#[test]
fn what_may_pass_is_told_and_no_more() {
    let site = Site::new();
    site.follow("");
    site.hosts.git_down(HOST, true);
    let plan = site.castle(&["plan", "--json"]);
    let result = plan.result();
    assert_eq!((plan.code, &result["result"]), (Some(0), &"planned".into()), "{result:#}");
    assert_eq!(of_the_tree(&result), [("repository-unread", "warning")]);
    assert_eq!(site.castle(&["doctor"]).code, Some(1), "a castle cannot be raised now");
    site.hosts.git_down(HOST, false);
    site.token(None);
    site.push(&[("clusters/blue/a.yaml", MAP)]);
    let stranger = site.castle_with(&["plan"], &[]);
    assert_eq!(stranger.code, Some(3), "{}", stranger.transcript());
    assert!(stranger.stderr.contains("the repository's server is not believed"), "{}", stranger.stderr);
    assert_eq!(site.castle(&["plan"]).code, Some(0));
    let lost = site.castle_with(&["gitops", "check"], &[("GIT_SSL_CAINFO", "/nowhere/ca.pem")]);
    assert!(lost.code == Some(1) && lost.stderr.contains("GIT_SSL_CAINFO"), "{}", lost.transcript());
}

#[test]
fn a_folder_of_the_embedded_datacenter_is_judged_as_it_is() {
    let site = Site::new();
    site.follow_at("embedded", "");
    assert!(site.castle(&["gitops", "check"]).code == Some(4), "there is no folder");
    site.room.world.write("gitops/clusters/blue/a.yaml", MAP);
    let ran = site.castle(&["gitops", "check"]);
    assert_eq!(ran.transcript(), "1 Kustomization with 1 object: 0 errors, 0 warnings, 0 notes\nexit 0\n");
    site.follow_at("embedded", ", folder: other");
    site.room.world.write("other/clusters/blue/a.yaml", NAMESPACE);
    assert_eq!(site.castle(&["gitops", "check"]).code, Some(4));
    // With the stand-ins at hand every object that castle owns is known.
    let account =
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: kustomize-controller, namespace: flux-system}\n";
    site.room.world.write("other/clusters/blue/a.yaml", account);
    let ran = site.castle(&["gitops", "check"]);
    assert!(ran.code == Some(4) && ran.stderr.contains("owned-object"), "{}", ran.transcript());
}
