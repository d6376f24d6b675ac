//! Castles raised and taken down by real processes on the embedded datacenter: killed, interrupted, at odds with each other.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use castle_seams::{SystemClock, SystemEntropy, SystemKeyMint};
use castle_talos::model::bundle::{self, Bundle};
use castle_talos::model::config::Contract;
use castle_talos::model::pki::Doors;
use serde_json::Value;

use crate::room::{BLUE, Room};
use crate::world::{World, identity};

/// What varies from run to run, taken out: when which step did what, and numbers that are drawn.
fn steady(text: &str) -> String {
    let text = match text.split_once("(lineage ").map(|(_, rest)| &rest[..16]) {
        Some(lineage) => text.replace(lineage, "..."),
        None => text.to_owned(),
    };
    let word =
        |word: &str| if word.contains('.') && word.parse::<f64>().is_ok() { "...".to_owned() } else { word.to_owned() };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    let is_timing = |line: &str| ["By layer: ", "Critical path: "].iter().any(|begin| line.starts_with(begin));
    text.lines()
        .filter(|line| !line.contains(" s  platform/") && !is_timing(line))
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn from_nothing_to_machines_and_back() {
    let room = Room::new(400);
    let plan = room.castle(&["plan"]);
    insta::assert_snapshot!("plan_of_nothing", plan.transcript());
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(2));

    let up = room.castle(&["up", "--json"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    let result = up.result();
    assert_eq!((&result["result"], &result["steps"]["failed"]), (&"raised".into(), &0.into()));
    assert_eq!(result["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(room.states(), ["running"; 3]);
    insta::assert_snapshot!("status_of_a_castle", room.castle(&["status"]).transcript());

    let again = room.castle(&["up"]);
    assert!(again.stdout.contains("unchanged in ") && again.code == Some(0), "{}", again.transcript());
    insta::assert_snapshot!("plan_of_a_castle", room.castle(&["plan", "--deep"]).transcript());
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));
    let remembered = room.castle(&["state", "show", "--json"]).result();
    assert!(remembered.to_string().contains("blue-worker-2"), "{remembered}");

    let asked = room.castle(&["down"]);
    assert_eq!(asked.code, Some(3), "without a terminal it needs --yes: {}", asked.transcript());
    let down = room.castle(&["down", "--yes"]);
    insta::assert_snapshot!("down", steady(&down.transcript()));
    assert_eq!(room.states(), ["absent"; 3]);
    let twice = room.castle(&["down", "--yes", "--json"]).result();
    assert_eq!((&twice["result"], twice["gone"].as_array().unwrap().len()), (&"gone".into(), 0));

    // The next life: begun once, however often it was taken down.
    let again = room.castle(&["up"]);
    assert!(again.code == Some(0) && !again.stdout.contains("journal"), "{}", again.transcript());
    assert_eq!(room.castle(&["status", "--json"]).result()["generation"], 2);
    assert_eq!(room.castle(&["down", "--yes", "--keep-image"]).code, Some(0));
    let kept = room.castle(&["up", "--json"]);
    assert!(
        kept.code == Some(0) && !kept.stdout.contains("\"verb\":\"download\""),
        "the image was kept: {}",
        kept.transcript()
    );
    assert_eq!(room.castle(&["status", "--json"]).result()["generation"], 3);
}

#[test]
fn killed_again_and_again_it_comes_to_the_same() {
    let room = Room::new(40);
    let mut kills = 0;
    // Each time a little later: after so many of the events that it tells.
    for events in (1..).step_by(4).take(40) {
        let mut up = room.start(&["up", "--json"]);
        let lines = BufReader::new(up.stdout.take().unwrap()).lines();
        let told = lines.map(Result::unwrap).take_while(|line| !line.starts_with("{\"verb\"")).take(events).count();
        up.kill().unwrap();
        up.wait().unwrap();
        if told < events {
            break;
        }
        kills += 1;
    }
    assert!(kills > 3, "it was killed only {kills} times");
    let up = room.castle(&["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    assert_eq!(room.states(), ["running"; 3]);
    assert_eq!(room.castle(&["up", "--json"]).result()["result"], "unchanged");
    // No orphan, no duplicate: what goes is what the file names, and the image.
    let down = room.castle(&["down", "--yes", "--json"]).result();
    assert_eq!(down["gone"].as_array().unwrap().len(), 4, "{down}");
    assert_eq!(down["leftovers"].as_array().unwrap().len(), 0);
}

#[test]
fn interrupted_it_says_what_remains_and_goes_on() {
    let room = Room::new(20);
    let mut up = room.start(&["up"]);
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("download")));
    let kill = Command::new("kill").args(["-INT", &up.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(up.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("steps remain")), "{rest:?}");
    assert_eq!(room.castle(&["up"]).code, Some(0));
}

/// The secrets of a cluster, as talosctl writes them.
pub(crate) fn secrets_yaml() -> String {
    let options = bundle::Options { contract: Contract::V1_13, service_account: bundle::ServiceAccountKey::EcdsaP256 };
    let doors = Doors { mint: &SystemKeyMint, entropy: &SystemEntropy, clock: &SystemClock::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Bundle::generate(options, doors)).unwrap().save().expose().to_owned()
}

#[test]
fn a_lost_state_is_found_again_by_the_marks_and_the_secrets_are_never_minted_twice() {
    let room = Room::new(400);
    let with_secrets = BLUE.replace("{version: v1.13.9}", "{version: v1.13.9, bundle: 'sops:secrets.yaml#.'}");
    room.write("castle.yaml", &with_secrets);
    room.world.write(".config/sops/age/keys.txt", &identity().private);
    let seal_secrets = || {
        room.world.write("secrets.yaml", secrets_yaml());
        let ran = room.castle(&["secrets", "encrypt", "--age", &identity().public, "--in-place", "secrets.yaml"]);
        assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    };
    seal_secrets();
    let up = room.castle(&["up"]);
    assert!(up.code == Some(0) && up.stdout.contains("secrets/bundle/blue  import"), "{}", up.transcript());
    let state = room.world.path(".local/state/castle/blue");
    std::fs::remove_dir_all(&state).unwrap();

    // The nodes have secrets that nobody knows any more: new ones would lock castle out.
    room.write("castle.yaml", BLUE);
    insta::assert_snapshot!("lost_secrets", room.castle(&["up"]).transcript());
    assert_eq!(room.castle(&["plan"]).code, Some(3));
    assert!(room.castle(&["status"]).stdout.contains("not as its file says"));

    // Whoever has them goes on.
    room.write("castle.yaml", &with_secrets);
    let up = room.castle(&["up"]);
    // They are imported, and it is noted that etcd has begun.
    let only_secrets = up.stdout.contains(" 2 of them changed something");
    assert!(up.stdout.contains("its marks say") && only_secrets, "{}", up.transcript());
    // After that the state has them, and the file may go, once castle.yaml does not name it any more: what is named is held against what stands.
    std::fs::remove_file(room.world.path("secrets.yaml")).unwrap();
    let unread = room.castle(&["up"]);
    assert!(unread.code == Some(3) && unread.stderr.contains("secrets.yaml"), "{}", unread.transcript());
    room.write("castle.yaml", BLUE);
    assert_eq!(room.castle(&["up", "--json"]).result()["result"], "unchanged");
    // What is changed is changed under an epoch of its own.
    let more = "  overrides: {blue-worker-1: {cores: 6}}\nstorage: none";
    room.write("castle.yaml", &BLUE.replace("storage: none", more));
    let up = room.castle(&["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    // Secrets of another cluster are not taken for a castle that stands.
    seal_secrets();
    room.write("castle.yaml", &with_secrets.replace("storage: none", more));
    let other = room.castle(&["up"]);
    assert!(other.code == Some(3) && other.stderr.contains("holds other secrets"), "{}", other.transcript());

    // And it is taken down without any of it.
    std::fs::remove_dir_all(&state).unwrap();
    assert_eq!(room.castle(&["down", "--yes", "--json"]).result()["gone"].as_array().unwrap().len(), 4);
}

#[test]
fn another_castle_on_the_same_numbers_is_refused_before_anything_is_done() {
    let room = Room::new(400);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    room.write("green/castle.yaml", &BLUE.replace("castle: blue", "castle: green"));
    let refused = room.castle(&["up", "green"]);
    insta::assert_snapshot!("another_castle", steady(&refused.transcript()));
    assert_eq!(room.states(), ["running"; 3]);
    let plan = room.castle(&["plan", "green", "--json"]);
    assert_eq!((plan.code, &plan.result()["result"]), (Some(3), &"refused".into()));
    let wipe = room.castle(&["wipe", "green", "--force-range", "--confirm", "green"]);
    assert!(wipe.stdout.contains("left alone: VM 1000") && wipe.code == Some(0), "{}", wipe.transcript());
    assert_eq!(room.states(), ["running"; 3], "another castle's guests are never wiped");
}

/// What a file may be read by.
fn mode(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn client_files_are_issued_from_the_sealed_bundle() {
    let room = Room::new(400);
    let early = room.castle(&["kubeconfig"]);
    assert!(early.code == Some(1) && early.stderr.contains("was never raised"), "{}", early.transcript());
    assert_eq!(room.castle(&["up"]).code, Some(0));

    let printed = room.castle(&["kubeconfig", "--valid-for", "12h"]);
    assert!(printed.stdout.contains("current-context: admin@blue"), "{}", printed.stderr);
    assert!(printed.stdout.contains("server: https://127.42.0.10:6443"));
    assert_eq!(room.castle(&["kubeconfig", "--out", "k/config"]).code, Some(0));
    assert_eq!(mode(&room.world.path("k/config")), 0o600);
    let talos = room.castle(&["talosconfig"]);
    assert!(talos.stdout.contains("127.42.0.11") && !talos.stdout.contains("127.42.0.10"), "never the shared address");
    for wrong in ["soon", "5m", "99999d", "12", "h"] {
        assert_eq!(room.castle(&["kubeconfig", "--valid-for", wrong]).code, Some(4), "{wrong}");
    }

    // Into a file with other castles, which stay.
    let other = "apiVersion: v1\nkind: Config\ncurrent-context: mine\nclusters: [{name: mine, cluster: {server: 'https://x'}}]\n\
                 users: [{name: me, user: {}}]\ncontexts: [{name: mine, context: {cluster: mine, user: me}}]\n";
    room.world.write("merged", other);
    let merged = room.castle(&["kubeconfig", "--merge", "merged"]);
    assert!(merged.stdout.contains("merged into merged as admin@blue"), "{}", merged.transcript());
    let text = room.world.read("merged");
    assert!(text.contains("name: mine") && text.contains("current-context: admin@blue"), "{text}");
    // A file that lies elsewhere and that others read stays so.
    let (shared, fleet) = (room.world.path("merged"), room.world.path("fleet"));
    std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("merged", &fleet).unwrap();
    assert_eq!(room.castle(&["kubeconfig", "--merge", "fleet"]).code, Some(0));
    assert!(std::fs::symlink_metadata(&fleet).unwrap().is_symlink() && mode(&shared) == 0o640);
    for args in [
        ["kubeconfig", "--merge", "castle.yaml"],
        ["kubeconfig", "--out", "/dev/null"],
        ["plan", "--out", "castle.yaml"],
        ["timeline", "--html", "castle.yaml"],
    ] {
        let ran = room.castle(&args);
        assert!(ran.code == Some(3) && ran.stderr.contains("nothing was written"), "{args:?}: {}", ran.transcript());
    }
    room.world.write("broken", "clusters: 1");
    let broken = room.castle(&["kubeconfig", "--merge", "broken"]);
    assert_eq!((broken.code, room.world.read("broken").as_str()), (Some(1), "clusters: 1"), "{}", broken.transcript());

    // Where git would take it along, it is not written.
    room.world.write("repository/.git/HEAD", "ref: refs/heads/main\n");
    let tracked = room.castle(&["talosconfig", "--out", "repository/talosconfig"]);
    assert!(tracked.code == Some(3) && tracked.stderr.contains("git"), "{}", tracked.transcript());
    room.world.write("repository/.gitignore", "talosconfig\n");
    assert_eq!(room.castle(&["talosconfig", "--out", "repository/talosconfig"]).code, Some(0));
}

#[test]
fn the_last_run_is_shown_in_time() {
    let room = Room::new(400);
    let early = room.castle(&["timeline"]);
    assert!(early.code == Some(1) && early.stderr.contains("nothing is remembered of a run"), "{}", early.transcript());
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let shown = room.castle(&["timeline"]);
    let critical: Vec<&str> = shown.stdout.lines().filter(|line| line.starts_with('*')).collect();
    assert!(critical.len() > 3 && critical.iter().any(|line| line.contains('━')), "{}", shown.transcript());
    let told = room.castle(&["timeline", "--json"]).result();
    let (spans, path) = (told["spans"].as_array().unwrap(), told["critical_path"].as_array().unwrap());
    assert!(spans.len() > path.len() && path.iter().all(|span| spans.contains(span)), "{told}");
    assert_eq!(room.castle(&["timeline", "--html", "run.html"]).code, Some(0));
    let page = room.world.read("run.html");
    assert!(
        page.contains("class=\"critical\"") && page.contains("platform/power/blue-cp-1") && !page.contains("http"),
        "{page}"
    );
}

#[test]
fn what_was_changed_by_hand_is_told_and_put_right() {
    let room = Room::new(400);
    let before = room.castle(&["drift"]);
    assert_eq!(before.code, Some(2), "nothing stands yet: {}", before.transcript());
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let none = room.castle(&["drift"]);
    assert!(none.code == Some(0) && none.stdout.contains("Nothing has drifted"), "{}", none.transcript());
    // The machines are otherwise than the file says, as if somebody had changed them.
    let other = "  overrides: {blue-worker-1: {memory: 6GiB}}\nstorage: none";
    room.write("castle.yaml", &BLUE.replace("storage: none", other));
    assert_eq!(room.castle(&["up"]).code, Some(0));
    room.write("castle.yaml", BLUE);
    let drifted = room.castle(&["drift"]);
    assert_eq!(drifted.code, Some(2), "{}", drifted.transcript());
    insta::assert_snapshot!("drift", drifted.transcript());
    let json = room.castle(&["drift", "--json"]).result();
    assert_eq!(
        (json["result"].as_str(), json["differences"][0]["field"].as_str()),
        (Some("drifted"), Some("memory")),
        "{json}"
    );
    assert_eq!(room.castle(&["up"]).code, Some(0));
    assert_eq!(room.castle(&["drift"]).code, Some(0));
}

#[test]
fn owners_are_told_of_everything_and_of_one_object() {
    let mut room = Room::new(400);
    let early = room.castle(&["owners"]);
    assert!(early.code == Some(1) && early.stderr.contains("was never raised"), "{}", early.transcript());
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let all = room.castle(&["owners"]);
    assert!(all.stdout.contains("No object has two owners."), "{}", all.transcript());
    let one = room.castle(&["owners", "deployment/coredns"]);
    insta::assert_snapshot!("owners", one.transcript());
    let json = room.castle(&["owners", ".", "deploy/coredns", "--namespace", "kube-system", "--json"]);
    assert_eq!(json.result()["objects"][0]["object"], "Deployment kube-system/coredns", "{}", json.transcript());
    assert_eq!(room.castle(&["owners", "deploy/nowhere"]).code, Some(1));
    assert_eq!(room.castle(&["owners", "nonsense/coredns"]).code, Some(4));
    assert_eq!(room.castle(&["owners", ".", "coredns"]).code, Some(4));
    // A dead API is told as such.
    let datacenter = room.datacenter.as_mut().unwrap();
    datacenter.kill().unwrap();
    datacenter.wait().unwrap();
    let dead = room.castle(&["owners"]);
    assert!(dead.code == Some(1) && dead.stderr.contains("castle status"), "{}", dead.transcript());
}

#[test]
fn wiping_takes_what_is_marked_and_the_rest_only_by_name() {
    let room = Room::new(400);
    // Two guests of somebody else are within the range of this one.
    let wide = BLUE.replace("platform: embedded", "platform: {embedded: {vmids: 100-200}}");
    let wide = wide.replace("firstAddress: 127.42.0.11", "firstVmid: 110, firstAddress: 127.42.0.11");
    room.write("castle.yaml", &wide.replace("firstAddress: 127.42.0.21", "firstVmid: 120, firstAddress: 127.42.0.21"));
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let asked = room.castle(&["wipe"]);
    assert_eq!(asked.code, Some(3), "{}", asked.transcript());
    let unnamed = room.castle(&["wipe", "--force-range"]);
    assert!(
        unnamed.code == Some(3) && unnamed.stderr.contains("type the castle's name, blue"),
        "{}",
        unnamed.transcript()
    );
    assert_eq!(room.castle(&["wipe", "--force-range", "--confirm", "green"]).code, Some(3));
    assert_eq!(room.castle(&["wipe", "--force-range", "--yes"]).code, Some(4), "yes is no name");
    assert_eq!(room.states(), ["running"; 3], "nothing is gone so far");

    let wiped = room.castle(&["wipe", "--yes"]);
    insta::assert_snapshot!("wipe", steady(&wiped.transcript()));
    let range = room.castle(&["wipe", "--force-range", "--confirm", "blue", "--json"]).result();
    let names: Vec<&str> =
        range["gone"].as_array().unwrap().iter().map(|gone| gone["name"].as_str().unwrap()).collect();
    assert_eq!((names, &range["leftovers"]), (vec!["nas", "router"], &Value::Array(Vec::new())));
}

/// Whether this machine lets us mount things in a room of our own.
fn can_mount() -> bool {
    let tried = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

#[test]
fn on_a_file_system_that_cannot_be_written_nothing_is_begun() {
    if !can_mount() {
        castle_testbed::skipped("this machine lets nobody mount a read-only file system (unshare -rm)");
        return;
    }
    let room = Room::new(400);
    let state = room.world.path(".local/state/castle");
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$0\" up";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_castle")]).arg(&state);
    let refused = room.world.run(&mut command);
    assert_eq!(refused.code, Some(1), "{}", refused.transcript());
    assert!(refused.stderr.to_lowercase().contains("read-only file system"), "{}", refused.transcript());
    assert_eq!(room.states(), ["absent"; 3]);
    assert_eq!(room.castle(&["up"]).code, Some(0), "and it goes on where it can be written");
}

#[test]
fn only_one_works_at_a_time() {
    let room = Room::new(20);
    let mut first = room.start(&["up"]);
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("download")));
    let second = room.castle(&["up"]);
    assert_eq!(second.code, Some(3), "{}", second.transcript());
    assert!(second.stderr.contains("another castle on this machine works on blue"), "{}", second.stderr);
    let rest: Vec<String> = lines.collect();
    assert!(first.wait().unwrap().success(), "{rest:?}");
}

#[test]
fn a_real_proxmox_is_reached_the_same_way() {
    let room = Room::new(400);
    let real = |more: &str| {
        let platform = format!(
            "platform:\n  proxmox:\n    endpoint: {}\n    {more}\n    token: file:token\n    nodes: [pve]\n    vmids: 421-450\n",
            room.address
        );
        BLUE.replace("platform: embedded\n", &platform)
    };
    let pinned = format!("fingerprint: \"{}\"", room.fingerprint);
    let refused = |castle: String, token: &str| {
        room.write("real/castle.yaml", &castle);
        room.world.write("real/token", token);
        let ran = room.castle(&["plan", "real"]);
        assert_eq!(ran.code, Some(1), "{}", ran.transcript());
        ran.stderr.replace(&room.address[8..], "ADDRESS").replace(&room.fingerprint, "FINGERPRINT")
    };
    let token = &room.token();
    let wrong_fingerprint = format!("fingerprint: \"{}\"", ["AA"; 32].join(":"));
    let transcripts = [
        ("no trust", refused(real("# none"), token)),
        ("wrong fingerprint", refused(real(&wrong_fingerprint), token)),
        ("wrong token", refused(real(&pinned), "castle@pve!embedded=00000000-0000-4000-8000-00000000dead")),
        ("no token", refused(real(&pinned), "root")),
        ("nobody there", refused(real(&pinned).replace(&room.address, "https://127.0.0.1:1"), token)),
        ("no such host", refused(real(&pinned).replace("nodes: [pve]", "nodes: [pve9]"), token)),
    ];
    let all: Vec<String> = transcripts.iter().map(|(what, said)| format!("# {what}\n{said}")).collect();
    insta::assert_snapshot!("bad_access", all.join("\n"));
    assert!(!all.join("").contains("dead"), "the token is not repeated");

    // It needs an identity of one's own for the state, which the embedded platform makes by itself.
    room.write("real/castle.yaml", &real(&pinned));
    room.world.write("real/token", token);
    let without = room.castle(&["up", "real"]);
    assert!(without.code == Some(1) && without.stderr.contains("age-keygen"), "{}", without.transcript());
    room.world.write(".config/sops/age/keys.txt", &identity().private);
    let up = room.castle(&["up", "real"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    assert_eq!(room.castle(&["down", "real", "--yes"]).code, Some(0));
}

/// Goal: without a token the way to Proxmox is tried all the same, and no more is claimed. Method: a real TLS port, and a variable that is not set; then nobody
/// who listens.
#[test]
fn the_doctor_tries_the_way_without_a_token() {
    let room = Room::new(100);
    room.world.write(".config/sops/age/keys.txt", &identity().private);
    let proxmox = |endpoint: &str| {
        let platform = format!(
            "platform: {{proxmox: {{endpoint: '{endpoint}', token: 'env:NOBODY_SET_THIS', nodes: [pve], vmids: 1000-1020}}}}\n"
        );
        room.write("castle.yaml", &BLUE.replace("platform: embedded\n", &platform));
        room.castle(&["doctor"])
    };
    let doctor = proxmox(&room.address);
    assert_eq!(doctor.code, Some(1), "{}", doctor.transcript());
    let answers = format!(
        "something answers, with the certificate {}; whether it is Proxmox is not known without a token",
        room.fingerprint
    );
    let reached = doctor.stdout.lines().find(|line| line.contains("  reachable ")).unwrap_or_default();
    assert!(reached.starts_with("warn   reachable") && reached.contains(&answers), "{}", doctor.transcript());
    let wrong: Vec<&str> = doctor.stdout.lines().filter(|line| line.starts_with("WRONG")).collect();
    assert!(
        matches!(wrong.as_slice(), [only] if only.contains("token") && only.contains("NOBODY_SET_THIS")),
        "{wrong:?}"
    );
    assert!(doctor.stderr.contains("1 thing is in the way of blue"), "{}", doctor.transcript());
    let nobody = proxmox("https://127.0.0.1:9");
    assert!(nobody.stdout.contains("WRONG  reachable"), "{}", nobody.transcript());
    // What is not known is told also where nothing is in the way.
    let ssh = format!("{BLUE}gitops: {{repository: 'ssh://git@git.lan/team/blue.git'}}\n");
    room.write("castle.yaml", &ssh);
    let doctor = room.castle(&["doctor"]);
    assert_eq!(doctor.code, Some(0), "{}", doctor.transcript());
    assert!(doctor.stdout.ends_with("\nNot known: git-tree.\n"), "{}", doctor.transcript());
}

#[test]
fn the_doctor_finds_what_is_in_the_way() {
    let room = Room::new(400);
    insta::assert_snapshot!("doctor_of_a_good_site", room.castle(&["doctor"]).transcript());
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let wrong = |castle: String| -> Vec<String> {
        room.write("other/castle.yaml", &castle);
        let ill = room.castle(&["doctor", "other", "--json"]);
        assert_eq!((ill.code, &ill.result()["result"]), (Some(1), &"wrong".into()), "{}", ill.transcript());
        let findings = ill.result()["findings"].as_array().unwrap().clone();
        let wrong = findings.iter().filter(|finding| finding["verdict"] == "wrong");
        wrong.map(|finding| finding["check"].as_str().unwrap().to_owned()).collect()
    };
    let green = BLUE.replace("castle: blue", "castle: green");
    assert_eq!(wrong(green.clone()), ["vmids"; 4], "three nodes and the image are another castle's");
    let large = green.replace("memory: 8GiB", "memory: 800GiB").replace("127.42.0", "127.42.1");
    assert_eq!(
        wrong(large.replace("platform: embedded", "platform: {embedded: {vmids: 20000-20100}}")),
        ["placement"; 2]
    );
    // Without a hypervisor the commands are printed all the same.
    let world = World::with_castle(&BLUE.replace(
        "platform: embedded\n",
        "platform:\n  proxmox: {endpoint: 'https://127.0.0.1:1', token: env:NONE, nodes: [pve], vmids: 421-450, pool: blue}\n",
    ));
    let commands = world.castle(&["doctor", "--pveum", "--release", "8"]);
    assert!(
        commands.code == Some(0) && commands.stdout.contains("pveum acl modify /pool/blue"),
        "{}",
        commands.transcript()
    );
    assert_eq!(world.castle(&["doctor"]).code, Some(1));
}
