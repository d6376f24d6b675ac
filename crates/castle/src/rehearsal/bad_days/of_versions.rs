//! Files that ask for other versions than a castle runs: castle upgrades nothing yet, says so, and never claims that it has.

use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::config::Contract;
use castle_talos::model::pki;

use super::super::fixture::blue;
use super::*;

/// The castle stands; the file is edited; what is said of that.
fn edited(from: &str, to: &str, words: &[&str]) {
    edited_in((&small(), SMALL), from, to, words);
}

fn edited_in(castle: (&Arc<Script>, &str), from: &str, to: &str, words: &[&str]) {
    edited_beside(castle, None, from, to, words);
}

/// The same where somebody puts a file beside it first.
fn edited_beside(
    (script, text): (&Arc<Script>, &str),
    beside: Option<(&str, &str)>,
    from: &str,
    to: &str,
    words: &[&str],
) {
    in_worlds(script, &SEEDS[..1], async |life| {
        if let Some((name, content)) = beside {
            life.disk().tamper(&life.script.file.with_file_name(name), content.as_bytes().to_vec());
        }
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert!(text.contains(from));
        life.disk().tamper(&life.script.file, text.replace(from, to).into_bytes());
        life.tally.changes();
        let (before, others) = (life.datacenter.look().guests, Others::of(&life));
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Refused, words);
        assert!(!plan.printed.text.contains("is as its file says"), "{}", plan.printed.text);
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Refused, words);
        assert!(up.printed.text.contains("Nothing was changed."), "{}", up.printed.text);
        assert_eq!((life.tally.changes(), others.touched(&life)), (Vec::new(), Vec::new()));
        assert_eq!(life.datacenter.look().guests, before);
        let status = life.run(&["status"]).await;
        assert!(!status.printed.text.contains("stands as its file says"), "{}", status.printed.text);
        hold(&status, status.exit.unwrap(), &words[..1]);
        hold(&life.run(&["drift"]).await, Exit::Differs, &words[..1]);
        // Taken back, there is nothing to do.
        life.disk().tamper(&life.script.file, text.as_bytes().to_vec());
        let up = life.run(&["up"]).await;
        assert_eq!(up.printed.result["result"], "unchanged", "{}", up.printed.text);
    });
}

/// Taken from all workers at once, the disks would take every copy of every volume along.
#[test]
fn the_disks_of_longhorn_are_not_taken_away() {
    let text = blue(2, "{longhorn: {replicas: 2}}");
    let script = written(&text);
    let words =
        ["blue-worker-1: has the volume longhorn and what is on it", "talosctl --nodes 127.42.0.21 edit machineconfig"];
    edited_in((&script, &text), ", dataDisk: 100GiB", "", &words);
    edited_in((&script, &text), "storage: {longhorn: {replicas: 2}}", "storage: none", &words);
}

/// What stands keeps its addresses and names. Talos has them in its main document up to 1.13, and in one of their own from 1.14 on.
#[test]
fn other_networks_are_given_to_no_castle_that_stands() {
    let newer = SMALL.replace("version: v1.13.9", "version: v1.14.0");
    for text in [SMALL, newer.as_str()] {
        let script = written(text);
        for (key, what) in [
            ("podSubnets: [10.200.0.0/16]", "for the subnets of Pods, and castle.yaml says"),
            ("serviceSubnets: [10.128.0.0/16]", "for the subnets of Services, and castle.yaml says"),
        ] {
            let from = "kubernetes: {version: v1.36.3}";
            let to = format!("kubernetes: {{version: v1.36.3, {key}}}");
            edited_in((&script, text), from, &to, &[what, "take the change back in castle.yaml"]);
        }
        let patch = if text == SMALL {
            "cluster:\n  network: {dnsDomain: other.local}\n"
        } else {
            "apiVersion: v1alpha1\nkind: KubeNetworkConfig\ndnsDomain: other.local\n"
        };
        let words = ["for the cluster's domain, and castle.yaml says", "take the change back in castle.yaml"];
        let beside = Some(("domain.yaml", patch));
        edited_beside((&script, text), beside, "talos: {", "talos: {patches: [domain.yaml], ", &words);
    }
}

/// What only another machine would bring about is shown by `plan`, and refused before anything is changed.
#[test]
fn a_machine_that_would_have_to_be_replaced_is_planned_and_refused() {
    let words =
        ["scsi1", "would have to be destroyed and made anew (", "give it in castle.yaml the sizes and the storage"];
    edited("dataDisk: 100GiB", "dataDisk: 50GiB", &words);
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file, SMALL.replace("dataDisk: 100GiB", "dataDisk: 50GiB").into_bytes());
        let plan = life.run(&["plan"]).await;
        let actions = plan.printed.result["actions"].as_array().unwrap();
        let replaced: Vec<_> = actions.iter().filter(|action| action["impact"] == "replace").collect();
        assert_eq!(replaced.len(), 1, "{}", plan.printed.result);
        assert_eq!(replaced[0]["step"], "platform/vm/blue-worker-1");
        assert_eq!(plan.printed.result["result"], "refused");
    });
}

#[test]
fn another_talos_is_not_claimed() {
    let next = "talosctl --nodes 127.42.0.11 upgrade --image factory.talos.dev/nocloud-installer/";
    edited("version: v1.13.9", "version: v1.13.8", &["runs Talos v1.13.9, and castle.yaml says v1.13.8", next]);
    edited("version: v1.13.9", "version: v1.14.0", &["runs Talos v1.13.9, and castle.yaml says v1.14.0", next]);
}

#[test]
fn other_extensions_and_kernel_arguments_are_not_claimed() {
    let words = ["runs an image with other extensions or kernel arguments"];
    edited("talos: {", "talos: {extensions: [iscsi-tools, util-linux-tools, qemu-guest-agent, amd-ucode], ", &words);
    edited("talos: {", "talos: {kernelArgs: [mitigations=off], ", &words);
}

#[test]
fn another_kubernetes_is_given_to_nobody() {
    let next = "talosctl --nodes 127.42.0.11 upgrade-k8s --to 1.36.2";
    edited(
        "kubernetes: {version: v1.36.3}",
        "kubernetes: {version: v1.36.2}",
        &["runs Kubernetes v1.36.3, and castle.yaml says v1.36.2", next],
    );
}

/// A patch can name another image than the version does: all nodes would get it at once. Talos has images in its main document up to 1.13, and in some
/// of their own from 1.14 on.
#[test]
fn another_kubelet_by_a_patch_is_given_to_nobody() {
    let newer = SMALL.replace("version: v1.13.9", "version: v1.14.0");
    let image = "image: 'ghcr.io/siderolabs/kubelet:v1.36.2'";
    for (text, patch, path) in [
        (SMALL, format!("machine: {{kubelet: {{{image}}}}}\n"), "machine.kubelet.image"),
        (newer.as_str(), format!("apiVersion: v1alpha1\nkind: KubeletConfig\n{image}\n"), "KubeletConfig.image"),
    ] {
        let told = format!("runs Kubernetes v1.36.3, and castle.yaml says v1.36.2 ({path}, by talos.patches)");
        let words = [told.as_str(), "talosctl --nodes 127.42.0.11 upgrade-k8s --to 1.36.2"];
        let beside = Some(("image.yaml", patch.as_str()));
        edited_beside((&written(text), text), beside, "talos: {", "talos: {patches: [image.yaml], ", &words);
    }
}

/// The same of what control planes alone run.
#[test]
fn another_control_plane_by_a_patch_is_given_to_nobody() {
    for (patch, path) in [
        ("cluster: {apiServer: {image: 'example.com/other:v1.36.2@sha256:ab'}}\n", "cluster.apiServer.image"),
        ("cluster: {proxy: {image: 'registry.k8s.io/kube-proxy:v1.36.2'}}\n", "cluster.proxy.image"),
    ] {
        in_worlds(&small(), &SEEDS[..1], async |life| {
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            life.disk().tamper(&life.script.file.with_file_name("image.yaml"), patch.as_bytes().to_vec());
            let edited = SMALL.replace("talos: {", "talos: {patches: [image.yaml], ");
            life.disk().tamper(&life.script.file, edited.into_bytes());
            let told = format!("runs Kubernetes v1.36.3, and castle.yaml says v1.36.2 ({path}, by talos.patches)");
            hold(&life.run(&["plan"]).await, Exit::Refused, &[&told]);
            hold(&life.run(&["up"]).await, Exit::Refused, &[&told, "Nothing was changed."]);
            life.disk().tamper(&life.script.file, SMALL.as_bytes().to_vec());
            hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
        });
    }
}

/// The same image from another place, pinned by its digest, is no other version.
#[test]
fn the_same_kubernetes_from_elsewhere_is_taken() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let patch = "machine: {kubelet: {image: 'example.com:5000/kubelet:v1.36.3'}}\n";
        life.disk().tamper(&life.script.file.with_file_name("image.yaml"), patch.as_bytes().to_vec());
        let edited = SMALL.replace("talos: {", "talos: {patches: [image.yaml], ");
        life.disk().tamper(&life.script.file, edited.into_bytes());
        hold(&life.run(&["up"]).await, Exit::Done, &["machine.kubelet.image"]);
    });
}

/// Goal: a castle whose nodes run another Kubernetes than their configurations have is not called as its file says. Method: a kubelet, and an API server, of
/// another version than their node was given.
#[test]
fn another_kubernetes_than_the_configured_one_is_told() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let of_kubelet = "Node blue-worker-1: runs the kubelet v1.36.2, and its configuration has v1.36.3";
        let of_server = "the API server: runs v1.36.2, and its configuration has v1.36.3";
        type Run = fn(&Life, &str) -> bool;
        let kubelet: Run = |life, version| life.datacenter.run_kubelet(1010, version);
        let server: Run = |life, version| life.datacenter.run_api_server(1000, version);
        for (run, told) in [(kubelet, of_kubelet), (server, of_server)] {
            assert!(run(&life, "v1.36.2"));
            life.clock().sleep(Duration::from_secs(30)).await;
            life.tally.changes();
            hold(&life.run(&["plan"]).await, Exit::Done, &[told]);
            hold(&life.run(&["drift"]).await, Exit::Differs, &[told]);
            let status = life.run(&["status"]).await;
            hold(&status, Exit::Done, &[told]);
            assert_eq!(status.printed.result["standing"], false, "{}", status.printed.text);
            hold(&life.run(&["up"]).await, Exit::Failed, &["platform/nodes/versions", told]);
            assert_eq!(life.tally.changes(), Vec::<String>::new());
            assert!(run(&life, "v1.36.3"));
            life.clock().sleep(Duration::from_secs(30)).await;
            hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
        }
    });
}

/// Goal: what an image of somebody's own differs by is told, though it has no schematic. Method: such an image is on a worker, with what the file says and more.
#[test]
fn an_image_of_ones_own_is_looked_at() {
    const OWN: [&str; 3] = ["iscsi-tools", "util-linux-tools", "qemu-guest-agent"];
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let worker = life.script.nodes.iter().find(|node| node.name.value == "blue-worker-1").unwrap().vmid.0;
        assert!(life.datacenter.replace_image(worker, &OWN, &[]));
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
        let args = SMALL.replace("talos: {", "talos: {kernelArgs: [mitigations=off], ");
        let more = [OWN[0], OWN[1], OWN[2], "amd-ucode"];
        let args_told = "runs a kernel that was started without mitigations=off, and castle.yaml says";
        let more_told = "runs an image with other extensions: amd-ucode, iscsi-tools, qemu-guest-agent";
        for (text, extensions, told) in [(args.as_str(), &OWN[..], args_told), (SMALL, &more[..], more_told)] {
            life.disk().tamper(&life.script.file, text.as_bytes().to_vec());
            assert!(life.datacenter.replace_image(worker, extensions, &[]));
            life.tally.changes();
            for verb in ["plan", "up"] {
                hold(&life.run(&[verb]).await, Exit::Refused, &[told]);
            }
            let status = life.run(&["status"]).await;
            hold(&status, status.exit.unwrap(), &[told]);
            assert!(!status.printed.text.contains("stands as its file says"), "{}", status.printed.text);
            hold(&life.run(&["drift"]).await, Exit::Differs, &[told]);
            assert_eq!(life.tally.changes(), Vec::<String>::new());
        }
    });
}

/// Of nodes that are off nobody knows what they run: once they do, it is refused, and what they were made from is still there.
#[test]
fn another_talos_is_not_claimed_of_nodes_that_are_off() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let before: Vec<u32> = life.datacenter.look().guests.into_keys().collect();
        for node in &life.script.nodes {
            life.datacenter.switch(node.vmid.0, false);
        }
        life.disk().tamper(&life.script.file, SMALL.replace("version: v1.13.9", "version: v1.13.8").into_bytes());
        let up = life.run(&["up"]).await;
        hold(&up, up.exit.unwrap(), &["runs Talos v1.13.9, and castle.yaml says v1.13.8"]);
        assert!(up.exit != Some(Exit::Done), "{}", up.printed.text);
        assert_eq!(life.datacenter.look().guests.into_keys().collect::<Vec<u32>>(), before, "{}", up.printed.text);
        life.disk().tamper(&life.script.file, SMALL.as_bytes().to_vec());
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}

/// Secrets of a cluster, as talosctl writes them.
async fn secrets(life: &Life) -> Bundle {
    let doors = life.doors();
    let options = Options { contract: Contract::V1_13, service_account: ServiceAccountKey::EcdsaP256 };
    let made = pki::Doors { mint: doors.mint.as_ref(), entropy: doors.entropy.as_ref(), clock: doors.clock.as_ref() };
    Bundle::generate(options, made).await.unwrap()
}

#[test]
fn other_secrets_than_it_was_raised_with_are_refused() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        let given = SMALL.replace("talos: {", "talos: {bundle: 'file:bundle.yaml', ");
        life.disk().tamper(&life.script.file, given.into_bytes());
        let keep = |bundle: &Bundle| {
            let file = life.script.file.with_file_name("bundle.yaml");
            life.disk().tamper(&file, bundle.save().expose().as_bytes().to_vec());
        };
        let own = secrets(&life).await;
        keep(&own);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
        let other = secrets(&life).await;
        // Another cluster, and the same one with another token.
        for bundle in [other.clone(), Bundle { trustd_token: other.trustd_token, ..own.clone() }] {
            keep(&bundle);
            life.tally.changes();
            for verb in ["plan", "up"] {
                let words = ["talos.bundle: holds other secrets than those that this castle was raised with"];
                hold(&life.run(&[verb]).await, Exit::Refused, &words);
            }
            let status = life.run(&["status"]).await;
            hold(&status, Exit::Done, &["holds other secrets than those that this castle was raised with"]);
            assert_eq!(status.printed.result["standing"], false, "{}", status.printed.result);
            hold(
                &life.run(&["drift"]).await,
                Exit::Differs,
                &["holds other secrets than those that this castle was raised with"],
            );
            assert_eq!(life.tally.changes(), Vec::<String>::new());
        }
        keep(&own);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

/// Goal: what the file says of the castle's secrets is never told as held against them if nobody could. Method: the file of them is damaged, and lost.
#[test]
fn secrets_of_the_file_that_cannot_be_read_are_not_called_those_of_the_castle() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        let given = SMALL.replace("talos: {", "talos: {bundle: 'file:bundle.yaml', ");
        life.disk().tamper(&life.script.file, given.into_bytes());
        let file = life.script.file.with_file_name("bundle.yaml");
        let own = secrets(&life).await.save().expose().as_bytes().to_vec();
        life.disk().tamper(&file, own.clone());
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for damaged in [Some(&b"cluster: {}\n"[..]), None] {
            life.disk().lose(&file);
            damaged.into_iter().for_each(|bytes| life.disk().tamper(&file, bytes.to_vec()));
            life.tally.changes();
            let words = ["talos.bundle: was not held against the secrets of this castle: ", "or remove talos.bundle"];
            for verb in [&["plan"][..], &["up"], &["rebirth", "--yes"], &["rebirth", "--keep-identity", "--yes"]] {
                hold(&life.run(verb).await, Exit::Refused, &words);
            }
            let status = life.run(&["status"]).await;
            hold(&status, Exit::Done, &["was not held against the secrets of this castle", "running"]);
            assert_eq!(status.printed.result["standing"], false, "{}", status.printed.result);
            hold(&life.run(&["drift"]).await, Exit::Differs, &words[..1]);
            assert_eq!(life.tally.changes(), Vec::<String>::new());
        }
        life.disk().tamper(&life.script.file, SMALL.as_bytes().to_vec());
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged", "the state has them");
    });
}

/// Goal: no verb begins with a patch that Talos would refuse, of a castle that stands or of none. Method: a misspelt key; one that meets what castle says
/// itself; and a text that is no patch.
#[test]
fn a_patch_that_talos_would_refuse_is_given_to_nobody() {
    let patched = SMALL.replace("talos: {", "talos: {patches: [bad.yaml], ");
    let bad = [
        ("machine: {network: {hostnam: x}}\n", "machine.network.hostnam: this Talos knows no such key"),
        ("machine: {network: {hostname: x}}\n", "machine.network.hostname: static hostname is already set"),
        ("machine: {certSANs: {a: b}}\n", "machine.certSANs: must be a list"),
    ];
    in_worlds(&small(), &SEEDS[..1], async |life| {
        for stands in [false, true] {
            life.disk().tamper(&life.script.file, SMALL.as_bytes().to_vec());
            if stands {
                hold(&life.run(&["up"]).await, Exit::Done, &[]);
            }
            life.disk().tamper(&life.script.file, patched.clone().into_bytes());
            let guests = life.datacenter.look().guests;
            for (patch, why) in bad {
                life.disk().tamper(&life.script.file.with_file_name("bad.yaml"), patch.as_bytes().to_vec());
                life.tally.changes();
                for verb in [&["plan"][..], &["up"], &["rebirth", "--yes"]] {
                    if stands || verb != ["rebirth", "--yes"] {
                        hold(&life.run(verb).await, Exit::Invalid, &["Talos would refuse the patch bad.yaml", why]);
                    }
                }
                let doctor = life.run(&["doctor"]).await;
                hold(&doctor, Exit::Failed, &["WRONG", "patches", why]);
                assert_eq!(life.tally.changes(), Vec::<String>::new());
                assert_eq!(life.datacenter.look().guests, guests);
            }
        }
    });
}
