//! Looking: what castle did not look at is never told as fine, and whoever only looks leaves nothing behind.

use std::path::Path;

use castle_datacenter::blueprint::{Right, Stranger};
use castle_datacenter::{EMBEDDED_CLIENT_ID, EMBEDDED_PROJECT, EMBEDDED_VAULT};
use castle_kubernetes::client::Mode;
use castle_kubernetes::model::Object;
use castle_secrets::Secret;
use serde_json::{Value, json};

use super::super::fixture::{HOME, SMALL as TWO_HOSTS, blue, person};
use super::super::script::STATE;
use super::of_castle::{beside, full};
use super::of_etcd::{three, vmid};
use super::*;

/// What `status` answers to the question whether every control plane is a member of etcd.
fn votes(status: &Told) -> &str {
    let claim = "every control plane votes in etcd";
    let line = status.printed.text.lines().find_map(|line| line.strip_prefix(claim));
    line.unwrap_or_else(|| panic!("{}", status.printed.text)).trim()
}

/// Goal: `status` calls fine only what it saw. Method: the castle stands, and what its manifests are told by cannot be read.
#[test]
fn what_status_did_not_look_at_is_told_as_such() {
    let full = written(&full());
    in_worlds(&full, &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let lock = Path::new(HOME).join("castle.lock");
        life.disk().tamper(&lock, b"not a lock".to_vec());
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &["was not looked at: ", "castle.lock", "running"]);
        let (text, told) = (&status.printed.text, &status.printed.result);
        assert!(!text.contains("stands as its file says"), "{text}");
        assert_eq!(told["standing"], false);
        assert!(told["unseen"].as_str().is_some_and(|why| why.contains("castle.lock")), "{told:#}");
        for component in told["components"].as_array().unwrap() {
            assert_eq!(component["as_wanted"], Value::Null, "{component:#}");
            assert_eq!(component["evidence"], "not looked at", "{component:#}");
        }
        for layer in told["layers"].as_array().unwrap().iter().filter(|layer| layer["as_wanted"] == true) {
            assert!(layer["layer"] == "secrets" || layer["layer"] == "platform", "{layer:#}");
        }
        life.disk().lose(&lock);
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says"]);
    });
}

/// Goal: a file that is edited is planned by what is in the cluster, also where the way there is what changes. Method: another shared address,
/// at which nobody answers before it is given to the control planes.
#[test]
fn a_plan_for_another_shared_address_creates_nothing() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let edited = full().replace("vip: 127.42.0.10,", "vip: 127.42.0.19,");
        assert_ne!(edited, full());
        life.disk().tamper(&Path::new(HOME).join("castle.yaml"), edited.into_bytes());
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &[]);
        let actions = plan.printed.result["actions"].as_array().unwrap();
        let created: Vec<_> = actions.iter().filter(|action| action["impact"] == "create").collect();
        assert!(!actions.is_empty() && created.is_empty(), "{}", plan.printed.text);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// Goal: whatever lies behind something that could not be asked is told as not looked at, not as ill. Method: the only control plane is off.
#[test]
fn what_is_behind_a_silent_control_plane_was_not_looked_at() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let first = *life.datacenter.cluster("blue").unwrap().api_servers.keys().next().unwrap();
        life.datacenter.switch(first, false);
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &["is not as its file says", "not looked at: it cannot be asked before"]);
        assert_ne!(votes(&status), "yes", "{}", status.printed.text);
        let told = &status.printed.result;
        for gate in told["gates"].as_array().unwrap() {
            assert_ne!(gate["open"], true, "{gate:#}");
        }
        let flux =
            told["components"].as_array().unwrap().iter().find(|component| component["component"] == "flux").unwrap();
        assert_eq!(flux["as_wanted"], Value::Null, "{flux:#}");
        assert!(flux["evidence"].as_str().unwrap().starts_with("not looked at"), "{flux:#}");
    });
}

/// Goal: the doctor calls nothing fine that it could not open, and says what it does not know. Method: a damaged record, a key that is not there, and
/// no token to ask Proxmox with.
#[test]
fn the_doctor_names_what_it_cannot_open_and_what_it_does_not_know() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(
            &life.run(&["doctor"]).await,
            Exit::Done,
            &["Nothing found in the way of blue on embedded (", "can be opened, and read"],
        );
        let keyless = life.run_with("SOPS_AGE_KEY", None, &["doctor"]).await;
        hold(&keyless, Exit::Failed, &["WRONG", "state", "next: "]);
        assert!(!keyless.printed.text.contains("can be opened, and read"), "{}", keyless.printed.text);
        let records =
            life.disk().contents().into_keys().filter(|path| path.to_string_lossy().contains("/state/platform/"));
        let newest = records.max().unwrap();
        let whole = life.disk().contents()[&newest].clone();
        life.disk().tamper(&newest, whole[..whole.len() / 2].to_vec());
        let damaged = life.run(&["doctor"]).await;
        hold(&damaged, Exit::Failed, &["WRONG", "/state/platform/", "castle adopt"]);
        assert!(!damaged.printed.text.contains("can be opened, and read"), "{}", damaged.printed.text);
    });
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        // What it would be raised from cannot be read.
        let lock = Path::new(HOME).join("castle.lock");
        life.disk().tamper(&lock, b"not a lock".to_vec());
        let doctor = life.run(&["doctor"]).await;
        hold(&doctor, Exit::Failed, &["WRONG", "manifests", "castle.lock"]);
        assert_eq!(verdict(&doctor, "manifests"), "wrong");
        // Nor where castle does not get as far as to stand anywhere.
        life.disk().lose(&lock);
        assert!(!life.run(&["doctor"]).await.printed.text.contains("manifests"));
    });
    in_worlds(&written(TWO_HOSTS), &SEEDS[..1], async |life| {
        life.disk().tamper(&Path::new(HOME).join("castle.lock"), b"not a lock".to_vec());
        life.disk().lose(&Path::new(HOME).join("secrets.enc.yaml"));
        let told = life.run(&["doctor"]).await;
        hold(&told, Exit::Failed, &["WRONG", "token", "secrets.enc.yaml"]);
        let findings = told.printed.result["findings"].as_array().unwrap();
        let reachable = findings.iter().find(|finding| finding["check"] == "reachable").unwrap();
        assert_ne!(reachable["verdict"], "unknown", "the way there is tried without a token: {reachable:#}");
        let unknown = told.printed.result["unknown"].as_array().unwrap();
        assert!(unknown.iter().any(|check| check == "machines"), "{unknown:?}");
        assert_eq!(verdict(&told, "manifests"), "wrong", "{}", told.printed.text);
    });
}

/// What the doctor finds of a check, at its worst.
fn verdict(doctor: &Told, check: &str) -> String {
    let findings = doctor.printed.result["findings"].as_array().unwrap();
    let of_it = findings.iter().filter(|finding| finding["check"] == check);
    let verdicts: Vec<&str> = of_it.filter_map(|finding| finding["verdict"].as_str()).collect();
    ["wrong", "unknown", "warning", "well"]
        .into_iter()
        .find(|word| verdicts.contains(word))
        .unwrap_or("none")
        .to_owned()
}

/// Goal: nothing is called fine whose secrets were not opened. Method: the credential of a mirror that is not there, or is none; a secret of another kind; a
/// bundle that cannot be read; and a vault that lets nobody in.
#[test]
fn the_doctor_opens_what_the_file_refers_to() {
    in_worlds(&written(TWO_HOSTS), &SEEDS[..1], async |life| {
        let beside = |name: &str| Path::new(HOME).join(name);
        let text = String::from_utf8(life.disk().contents()[&life.script.file].clone()).unwrap();
        let write = |text: String| life.disk().tamper(&life.script.file, text.into_bytes());
        let fine = life.run(&["doctor"]).await;
        assert_eq!(
            (verdict(&fine, "secrets").as_str(), fine.exit),
            ("none", Some(Exit::Done)),
            "{}",
            fine.printed.text
        );
        let unset = text.replace("'file:registry.txt'", "'env:NOBODY_SET_THIS'");
        assert_ne!(unset, text);
        write(unset);
        hold(
            &life.run(&["doctor"]).await,
            Exit::Failed,
            &["WRONG", "talos.mirrors.docker.io.credential", "NOBODY_SET_THIS"],
        );
        write(text.clone());
        let registry = life.disk().contents()[&beside("registry.txt")].clone();
        life.disk().tamper(&beside("registry.txt"), b"neither-of-both".to_vec());
        hold(&life.run(&["doctor"]).await, Exit::Failed, &["WRONG", "neither USERNAME:PASSWORD nor a mapping"]);
        life.disk().tamper(&beside("registry.txt"), registry);
        let odd = life.run_with("AGE_KEY", Some("of-another-kind"), &["doctor"]).await;
        hold(&odd, Exit::Failed, &["WRONG", "gitops.ageKey"]);
        assert!(!odd.printed.text.contains("of-another-kind"), "{}", odd.printed.text);
        write(text.replace("talos:\n", "talos:\n  bundle: 'file:bundle.yaml'\n"));
        hold(&life.run(&["doctor"]).await, Exit::Failed, &["WRONG", "talos.bundle", "bundle.yaml"]);
        life.disk().tamper(&beside("bundle.yaml"), b"cluster: {}\n".to_vec());
        hold(&life.run(&["doctor"]).await, Exit::Failed, &["WRONG", "talos.bundle", "secrets.yaml of talosctl"]);
        life.disk().lose(&beside("bundle.yaml"));
        write(text);
        hold(&life.run(&["doctor"]).await, Exit::Done, &["Nothing found in the way"]);
    });
}

/// Goal: nodes that nobody waits for are not called fine. Method: no network, and nothing installed that would need one.
#[test]
fn nodes_without_a_network_are_not_called_ready() {
    let text = blue(1, "none").replace("kubernetes: {", "kubernetes: {cni: none, ");
    in_worlds(&written(&text), &SEEDS[..1], async |life| {
        for verb in [&["up"][..], &["status"]] {
            let told = life.run(verb).await;
            hold(&told, Exit::Done, &["Whether its nodes are ready was not looked at: kubernetes.cni is none"]);
            assert_eq!(told.printed.result["notes"].as_array().map(Vec::len), Some(1), "{}", told.printed.result);
        }
    });
    in_worlds(&written(&blue(1, "none")), &SEEDS[..1], async |life| {
        for verb in [&["up"][..], &["status"]] {
            let told = life.run(verb).await;
            assert!(!told.printed.text.contains("was not looked at"), "{}", told.printed.text);
        }
    });
}

/// Goal: a plan that is kept off by the Git tree says so, also where nothing else is to do. Method: the castle stands, and its tree breaks.
#[test]
fn a_plan_that_the_git_tree_keeps_off_never_says_that_nothing_is_to_do() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["plan"]).await, Exit::Done, &["Nothing to do"]);
        let file = life.script.file.with_file_name("gitops").join("clusters/blue/bad.yaml");
        let bad = "apiVersion: nobody.example.com/v1\nkind: Unheard\nmetadata: {name: of}\n";
        life.disk().tamper(&file, bad.as_bytes().to_vec());
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Refused, &["nobody.example.com"]);
        let (text, result) = (&plan.printed.text, &plan.printed.result);
        assert_eq!((&result["result"], &result["actions"]), (&json!("refused"), &json!([])), "{text}");
        assert!(!text.contains("Nothing to do"), "{text}");
    });
}

/// Goal: a member of etcd that is away is told as that. Method: one control plane of three is off; etcd goes on without it.
#[test]
fn a_control_plane_that_is_off_is_told_as_a_member_that_is_away() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(votes(&life.run(&["status"]).await), "yes");
        life.datacenter.switch(vmid(&life, "blue-cp-2"), false);
        life.clock().sleep(Duration::from_secs(60)).await;
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &["is not as its file says"]);
        let (answer, text) = (votes(&status), &status.printed.text);
        assert!(answer.starts_with("no: ") && answer.contains("blue-cp-2"), "{answer}\n{text}");
        assert!(answer.contains("is a member of etcd") && answer.contains("away"), "{answer}\n{text}");
        let gates = status.printed.result["gates"].as_array().unwrap();
        assert!(
            gates.iter().any(|gate| gate["gate"] == "platform/etcd/members" && gate["open"] == false),
            "{gates:#?}"
        );
    });
}

/// Goal: a plan that failed promises nothing. Method: nothing is to do, and the vault does not say whether that is so.
#[test]
fn a_plan_that_fails_never_says_that_nothing_is_to_do() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["plan"]).await, Exit::Done, &["Nothing to do"]);
        let (host, client, project) = (EMBEDDED_VAULT, EMBEDDED_CLIENT_ID, EMBEDDED_PROJECT);
        life.datacenter.revoke_vault_right(host, client, project, Right::ReadValue);
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Failed, &["next: "]);
        let (text, result) = (&plan.printed.text, &plan.printed.result);
        assert_eq!((&result["result"], &result["actions"]), (&json!("failed"), &json!([])), "{text}");
        assert!(!text.contains("Nothing to do"), "{text}");
    });
}

/// Goal: whichever verb tells what comes from outside, a secret that is one of castle's own words does not show in it. Method: it is the name of an object, of who has
/// that, of a Kustomization, of a copy of a machine, of whoever works on the castle and of whoever wrote its records.
#[test]
fn no_verb_shows_a_secret_that_is_one_of_castles_words() {
    const SECRET: &str = "rehearsed";
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        hold(&life.run_with("USER", Some(SECRET), &["up"]).await, Exit::Done, &[]);
        let release = json!({"meta.helm.sh/release-name": SECRET, "meta.helm.sh/release-namespace": "default"});
        let named = |space: &str| json!({"name": SECRET, "namespace": space, "annotations": release});
        let source = json!({"kind": "GitRepository", "name": "flux-system"});
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named("default"), "data": {"a": "b"}}),
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": named("flux-system"),
                "spec": {"interval": "1m", "prune": true, "path": "./none", "sourceRef": source}}),
        ] {
            person(&life).await.apply(&Object::new(object).unwrap(), Mode::Real).await.unwrap();
        }
        let config = life.datacenter.look().guests[&vmid(&life, "blue-worker-1")].config.clone();
        life.datacenter.add_guest(Stranger::new(1050, "pve", "copy", "local-lvm", 1));
        let copied = ["description", "tags"].map(|option| (option, config.get(option).map(String::as_str)));
        assert!(life.datacenter.change_guest(1050, &[copied[0], copied[1], ("name", Some(SECRET))]));
        life.clock().sleep(Duration::from_secs(120)).await;
        let file = Path::new(STATE).join("blue/embedded/lease");
        let held = reworded(&life.disk().contents()[&file], 1, |lease| {
            (lease["released"], lease["machine"]) = (json!(false), json!(SECRET));
            lease["heartbeat_unix"] = json!(1_u64 << 40);
            assert!(lease["owner"].as_str().is_some_and(|owner| owner.starts_with(SECRET)), "{lease}");
        });
        life.disk().tamper(&file, held);
        drop(Secret::registered(SECRET.to_owned()));
        let (mut shown, mut masked) = (Vec::new(), 0);
        let verbs: [&[&str]; 18] = [
            &["status"],
            &["plan"],
            &["drift"],
            &["doctor"],
            &["timeline"],
            &["owners"],
            &["owners", HOME, "configmap/rehearsed"],
            &["lease", "show"],
            &["lease", "take"],
            &["state", "show"],
            &["state", "history", "platform"],
            &["state", "history", "secrets"],
            &["state", "restore", "platform", "1", "--yes"],
            &["up"],
            &["up", "--yes"],
            &["handover", "metallb", HOME, "--to", "castle", "--yes"],
            &["down"],
            &["wipe"],
        ];
        for verb in verbs {
            let printed = match verb {
                ["owners", _, _] | ["handover", ..] => beside(&life, &[&["castle"], verb].concat()).await.1,
                _ => life.run(verb).await.printed,
            };
            let told = [&printed.text, &printed.result.to_string()];
            let lines = told.iter().flat_map(|text| text.lines()).filter(|line| line.contains(SECRET));
            shown.extend(lines.map(|line| format!("{}: {line}", verb.join(" "))));
            let is_masked = printed.text.contains("[secret]");
            assert!(is_masked || verb[0] != "handover", "it names who may take it back: {}", printed.text);
            masked += usize::from(is_masked);
        }
        assert_eq!(shown, Vec::<String>::new());
        assert!(masked > 8, "{masked}");
    });
}

/// Goal: what somebody only tries on a node is taken back when its time is over, whoever looks meanwhile. Method: a change of one node is tried, and all
/// verbs that only look are run.
#[test]
fn who_looks_does_not_confirm_what_somebody_tries() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let tried = life.datacenter.try_on_node(
            vmid(&life, "blue-worker-1"),
            "machine:\n",
            "machine:\n    sysctls:\n        vm.swappiness: \"1\"\n",
            Duration::from_secs(60),
        );
        assert_eq!(tried, Ok(()));
        hold(&life.run(&["drift"]).await, Exit::Differs, &["machine.sysctls"]);
        for verb in ["plan", "status", "doctor"] {
            life.run(&[verb]).await;
        }
        life.clock().sleep(Duration::from_secs(90)).await;
        hold(&life.run(&["drift"]).await, Exit::Done, &[]);
    });
}
