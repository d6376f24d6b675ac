//! Waiting: what is waited for is told from the first second, silence never lasts, every wait has an end, and Ctrl-C ends it at once.

use castle_datacenter::blueprint::{Latencies, Span};
use castle_rehearsal::{Loss, Moment};

use super::super::life::{At, Kill};
use super::of_castle::full;
use super::of_clocks::told_at;
use super::of_etcd::{lose, three, vmid};
use super::*;

/// Runs `up`, while another device has the address of the worker.
async fn up_without_its_worker(life: &Life, words: &[&str]) -> Told {
    let address = "127.42.0.21".parse().unwrap();
    life.datacenter.occupy_address(address, true);
    let told = life.run(words).await;
    life.datacenter.occupy_address(address, false);
    told
}

/// Holds that this was given up ten minutes after that was done.
pub(super) fn waited_ten_minutes(up: &Told, after: &str, step: &str) {
    let (begun, failed) = (told_at(up, &format!("{after}  done")), told_at(up, &format!("{step}  failed")));
    let waited = failed - begun;
    assert!((595.0..=630.0).contains(&waited), "{step} waited {waited} s: {}", up.printed.text);
    assert!(up.printed.text.contains("(waited 10 min"), "{}", up.printed.text);
}

/// The longest time between two lines.
fn longest_silence(text: &str) -> f64 {
    let times = text.lines().filter_map(|line| line.trim_start().split_once(" s  ")?.0.parse::<f64>().ok());
    let times: Vec<f64> = std::iter::once(0.0).chain(times).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

#[test]
fn a_node_that_never_answers_is_told_from_the_first_second_and_ends_the_run() {
    day(async |life| {
        let up = up_without_its_worker(life, &["up"]).await;
        let words = [
            "platform/answers/blue-worker-1  waits for blue-worker-1: does not answer at 127.42.0.21 port 50000",
            "likely causes: the bridge or VLAN of its machine",
            "a firewall between here and there",
            "look at the console of blue-worker-1 in Proxmox",
            "nc -vz 127.42.0.21 50000",
        ];
        hold(&up, Exit::Failed, &words);
        waited_ten_minutes(&up, "platform/power/blue-worker-1", "platform/answers/blue-worker-1");
        // From the first second what is missing, where and since when; likely causes after a minute.
        let first = |word: &str| -> f64 {
            let line = up.printed.text.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}"));
            line.trim_start().split_once(" s  ").unwrap().0.parse().unwrap()
        };
        let begun = first("platform/power/blue-worker-1  done");
        let (told, causes) = (first("does not answer at 127.42.0.21 port 50000"), first("likely causes: "));
        assert!(
            (0.0..2.0).contains(&(told - begun)) && (55.0..65.0).contains(&(causes - told)),
            "runs since {begun}, told at {told}, its causes at {causes}: {}",
            up.printed.text
        );
        let silence = longest_silence(&up.printed.text);
        assert!(silence <= 30.5, "nothing was said for {silence} s: {}", up.printed.text);
    });
}

/// A control plane has its configuration, and its disk is never mounted: nobody knows whether it has an etcd.
#[test]
fn a_control_plane_that_never_tells_of_its_etcd_is_told_at_once_and_ends_the_run() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        life.datacenter.spoil_etcd_data(vmid(&life, "blue-cp-2"));
        let up = life.run(&["up"]).await;
        let words = [
            "platform/etcd/bootstrap  waits for blue-cp-2: does not tell whether it has data of etcd",
            "castle begins no etcd while it may have one",
        ];
        hold(&up, Exit::Failed, &words);
        // It is asked once all control planes have their configuration.
        let last =
            ["blue-cp-1", "blue-cp-2", "blue-cp-3"].map(|node| told_at(&up, &format!("platform/config/{node}  done")));
        let last = last.into_iter().fold(0.0, f64::max);
        let failed = told_at(&up, "platform/etcd/bootstrap  failed");
        assert!((595.0..=630.0).contains(&(failed - last)), "{last} {failed}: {}", up.printed.text);
        let silence = longest_silence(&up.printed.text);
        assert!(silence <= 30.5, "nothing was said for {silence} s: {}", up.printed.text);
    });
}

/// One control plane takes connections and says nothing, another is lost: the first does not hold up what the others decide.
#[test]
fn no_question_to_a_control_plane_that_says_nothing_lasts() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        lose(&life, "blue-cp-3");
        life.clock().sleep(Duration::from_secs(60)).await;
        life.datacenter.hush_node(vmid(&life, "blue-cp-2"), true);
        let up = life.run(&["up"]).await;
        let at = |word: &str| -> f64 {
            let line = up.printed.text.lines().find(|line| line.contains(word));
            let line = line.unwrap_or_else(|| panic!("{word}: {}", up.printed.text));
            line.trim_start().split_once(" s  ").unwrap().0.parse().unwrap()
        };
        let forgotten = at("platform/member/blue-cp-3  done");
        assert!(forgotten < 20.0, "{forgotten}: {}", up.printed.text);
        hold(&up, Exit::Failed, &["waits for blue-cp-2: does not answer at 127.42.0.12 port 50000"]);
    });
}

#[test]
fn ctrl_c_while_only_waiting_ends_at_once() {
    day(async |life| {
        let interrupting = pin!(async {
            life.clock().sleep(Duration::from_secs(400)).await;
            life.interrupt();
            std::future::pending::<()>().await;
        });
        let running = pin!(up_without_its_worker(life, &["up"]));
        let begun = life.clock().monotonic();
        let Either::Left((told, _)) = select(running, interrupting).await else { panic!("it never ends") };
        hold(&told, Exit::Interrupted, &["Interrupted. ", "Run the same command again to go on."]);
        let took = life.clock().monotonic().saturating_sub(begun);
        assert!(took < Duration::from_secs(402), "{took:?}");
    });
}

/// Also where castle waits for what it has not begun, and where it looks: once somebody has listened, no signal ends the process by itself.
#[test]
fn ctrl_c_while_castle_looks_ends_at_once() {
    let interrupted = async |life: &Life, words: &[&str], after: u64| {
        let begun = life.clock().monotonic();
        let hand = async {
            life.clock().sleep(Duration::from_secs(after)).await;
            life.interrupt();
        };
        let (told, ()) = join(life.run(words), hand).await;
        hold(&told, Exit::Interrupted, &["Run the same command again to go on."]);
        assert_eq!(told.printed.result["result"], "interrupted", "{}", told.printed.result);
        let took = life.clock().monotonic().saturating_sub(begun);
        assert!(took < Duration::from_secs(after + 2), "{took:?}: {}", told.printed.text);
    };
    in_worlds(&slow(), &SEEDS[..1], async |life| {
        let at = At::Change(Box::new(|change: &str| change.contains("/download-url")));
        let kill = Kill { at, moment: Moment::After, loss: Loss::None };
        assert!(life.run_killed(&["up"], kill).await.exit.is_none());
        interrupted(&life, &["rebirth", "--yes"], 40).await;
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &[]);
    });
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        interrupted(life, &["drift", "--watch"], 95).await;
    });
}

#[test]
fn a_run_has_as_much_time_as_it_is_given() {
    day(async |life| {
        let begun = life.clock().monotonic();
        let up = up_without_its_worker(life, &["up", "--timeout", "5m"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        let words = ["stopped after 5.0 min (--timeout)", "platform/answers/blue-worker-1", "it goes on where it was"];
        hold(&up, Exit::Failed, &words);
        assert!(took < Duration::from_secs(5 * 60 + 35), "{took:?}");
    });
}

/// So have an end and a rebirth.
#[test]
fn an_end_and_a_rebirth_have_as_much_time_as_they_are_given() {
    in_worlds(&slow(), &SEEDS[..1], async |life| {
        let at = At::Change(Box::new(|change: &str| change.contains("/download-url")));
        let kill = Kill { at, moment: Moment::After, loss: Loss::None };
        assert!(life.run_killed(&["up"], kill).await.exit.is_none());
        let begun = life.clock().monotonic();
        let down = life.run(&["down", "--yes", "--timeout", "60s"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        hold(&down, Exit::Failed, &["(--timeout)", "downloads on pve"]);
        assert!(took < Duration::from_secs(95), "{took:?}: {}", down.printed.text);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &[]);
    });
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let begun = life.clock().monotonic();
        let reborn = up_without_its_worker(&life, &["rebirth", "--yes", "--timeout", "5m"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        hold(&reborn, Exit::Failed, &["(--timeout)", "platform/answers/blue-worker-1"]);
        assert_eq!(reborn.printed.result["during"], "up", "{}", reborn.printed.result);
        assert!(took < Duration::from_secs(5 * 60 + 35), "{took:?}: {}", reborn.printed.text);
        hold(&life.run(&["rebirth", "--yes"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["(life 2)"]);
    });
}

/// What cannot be built cannot be built the next time either: nobody waits for it.
#[test]
fn what_flux_refuses_for_good_ends_the_run() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        let file = life.script.file.with_file_name("gitops").join("clusters/blue/kustomization.yaml");
        let write = |text: &str| life.disk().tamper(&file, text.as_bytes().to_vec());
        write("resources: [missing.yaml]\n");
        let up = life.run(&["up", "--skip-preflight"]).await;
        hold(&up, Exit::Failed, &["Kustomization flux-system/flux-system: is not ready (BuildFailed)", "missing.yaml"]);
        // Once Flux serves it fetches and tries it within seconds.
        let served = told_at(&up, "gitops/flux/serving  done").max(told_at(&up, "gitops/sync/objects  done"));
        let failed = told_at(&up, "gitops/handover/flux-system  failed");
        assert!(
            (0.0..10.0).contains(&(failed - served)),
            "served at {served}, failed at {failed}: {}",
            up.printed.text
        );
        write("resources: [word.yaml]\n");
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}

/// Goal: what Flux will find when it tries again is waited for. Method: a Kustomization takes variables from a Secret that another one makes, without
/// waiting for it; it is tried first.
#[test]
fn variables_that_come_a_little_later_are_waited_for() {
    let file = full().replace("folder: gitops}", "folder: gitops, critical: {apps: 5m}}");
    in_worlds(&written(&file), &SEEDS[..1], async |life| {
        let gitops = life.script.file.with_file_name("gitops");
        let write = |file: &str, text: String| life.disk().tamper(&gitops.join(file), text.into_bytes());
        let kustomization = |name: &str, more: &str| {
            format!(
                "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: flux-system}}\n\
                 spec: {{interval: 10m, retryInterval: 30s, prune: true, path: ./{name}, {more}\
                 sourceRef: {{kind: GitRepository, name: flux-system}}}}\n"
            )
        };
        let from = "postBuild: {substituteFrom: [{kind: Secret, name: words}]}, ";
        write("clusters/blue/apps.yaml", kustomization("apps", from));
        write("clusters/blue/words.yaml", kustomization("words", ""));
        let object = |kind: &str, place: &str, data: &str| {
            format!("apiVersion: v1\nkind: {kind}\nmetadata: {{{place}}}\n{data}\n")
        };
        write("apps/hue.yaml", object("ConfigMap", "name: hue, namespace: default", "data: {hue: '${hue}'}"));
        write("words/words.yaml", object("Secret", "name: words, namespace: flux-system", "stringData: {hue: teal}"));
        let up = life.run(&["up"]).await;
        let words = "is not ready (BuildFailed): post build failed for 'ConfigMap.v1.[noGrp]/hue': substitute from 'Secret/words' error";
        hold(&up, Exit::Done, &[words]);
        let hue = life.datacenter.object("blue", "configmaps", "default", "hue").unwrap();
        assert_eq!(hue["data"]["hue"], "teal");
    });
}

/// Goal: what was said of earlier variables is nobody's end. Method: a variable is missing, and then it is not; the commit stays the same.
#[test]
fn a_variable_that_was_missing_can_be_given() {
    let file = full().replace("folder: gitops}", "folder: gitops, within: 3m}");
    in_worlds(&written(&file), &SEEDS[..1], async |life| {
        let word = life.script.file.with_file_name("gitops").join("clusters/blue/word.yaml");
        let text =
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: word, namespace: default}\ndata: {hue: '${hue}'}\n";
        life.disk().tamper(&word, text.as_bytes().to_vec());
        let up = life.run(&["up", "--skip-preflight"]).await;
        hold(&up, Exit::Failed, &["is not ready (BuildFailed)", "variable not set (strict mode): \"hue\""]);
        let hue = |hue: &str| file.replace("within: 3m}", &format!("within: 3m, vars: {{hue: {hue}}}}}")).into_bytes();
        for (colour, verbs) in [("teal", ["up", "--skip-preflight"]), ("navy", ["up", "--timeout=5m"])] {
            life.disk().tamper(&life.script.file, hue(colour));
            hold(&life.run(&verbs).await, Exit::Done, &[]);
            // Flux has applied what is wanted now, and not just this commit.
            let word = life.datacenter.object("blue", "configmaps", "default", "word").unwrap();
            assert_eq!(word["data"]["hue"], colour);
        }
    });
}

/// Holds that verbs that only look take less than this.
async fn glanced(life: &Life, words: &[&str]) {
    for verb in ["plan", "status"] {
        let begun = life.clock().monotonic();
        let told = life.run(&[verb]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        hold(&told, told.exit.unwrap(), words);
        assert!(took < Duration::from_secs(5), "{verb} took {took:?}: {}", told.printed.text);
    }
}

#[test]
fn whoever_looks_waits_three_seconds_for_a_node_that_takes_connections_and_says_nothing() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for name in ["blue-cp-2", "blue-worker-1"] {
            life.datacenter.hush_node(vmid(&life, name), true);
            glanced(&life, &[name]).await;
            life.datacenter.hush_node(vmid(&life, name), false);
        }
    });
}

#[test]
fn whoever_looks_does_not_wait_for_a_control_plane_that_has_not_joined() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let late = vmid(&life, "blue-cp-3");
        assert!(life.datacenter.freeze_learner(late, true) && life.datacenter.lose_etcd_member(late));
        for seconds in [5, 60, 300] {
            life.clock().sleep(Duration::from_secs(seconds)).await;
            glanced(&life, &[]).await;
        }
    });
}

const LONG: Span = Span::new(200.0, 210.0);

/// The small castle where a copy of a disk, or a download, takes so long.
fn slow() -> Arc<Script> {
    with_latencies(Latencies { linked_clone: LONG, full_copy: LONG, download: LONG, ..Latencies::default() })
}

fn with_latencies(latencies: Latencies) -> Arc<Script> {
    let script = Arc::into_inner(written(SMALL)).unwrap();
    let blueprint = script.blueprint.clone().with_latencies(latencies);
    Arc::new(Script { blueprint, ..script })
}

/// Goal: also the first look, and what is looked at after a removal, is told and bounded. Method: castle is killed while Proxmox copies a disk, and
/// while it downloads, and is run again.
#[test]
fn what_is_waited_for_while_looking_is_told_and_bounded() {
    in_worlds(&slow(), &SEEDS[..1], async |life| {
        let killed = async |life: &Life, part: &'static str| {
            let at = At::Change(Box::new(move |change: &str| change.contains(part)));
            let kill = Kill { at, moment: Moment::After, loss: Loss::None };
            assert!(life.run_killed(&["up"], kill).await.exit.is_none(), "{part}");
        };
        killed(&life, "/download-url").await;
        let begun = life.clock().monotonic();
        let down = life.run(&["down", "--yes"]).await;
        hold(&down, Exit::Done, &["waits for downloads on pve: one that was begun earlier still runs (UPID:pve:"]);
        assert!(life.clock().monotonic().saturating_sub(begun) > Duration::from_secs(60));
        killed(&life, "/clone").await;
        let begun = life.clock().monotonic();
        let up = life.run(&["up", "--timeout", "100s"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        hold(
            &up,
            Exit::Failed,
            &["(--timeout)", "Still looking: ", "waits for VM 10", "on pve: is being made", "stopped after 1.7 min"],
        );
        assert!(took < Duration::from_secs(110), "{took:?}");
        // What is removed is waited for where that is told, and nobody who lists what goes waits at all.
        let begun = life.clock().monotonic();
        let down = life.run(&["down", "--yes", "--timeout", "60s"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        hold(&down, Exit::Failed, &["waits for VM 10", "on pve: is being made", "(--timeout)"]);
        assert!(took < Duration::from_secs(70), "{took:?}");
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// Goal: somebody else's guest that is being made within the castle's numbers, or a copy of a castle's guest anywhere, keeps nobody waiting.
/// Method: people copy guests, for minutes, while verbs look.
#[test]
fn what_others_are_making_keeps_nobody_waiting() {
    let slow_copies = with_latencies(Latencies { full_copy: LONG, ..Latencies::default() });
    in_worlds(&slow_copies, &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let node = vmid(&life, "blue-worker-1");
        for target in [1005, 300] {
            assert!(life.datacenter.begin_clone(node, target), "{target}");
            let begun = life.clock().monotonic();
            for words in [&["plan"][..], &["status"], &["adopt"]] {
                let told = life.run(words).await;
                assert!(told.exit.is_some(), "{}", told.printed.text);
            }
            let took = life.clock().monotonic().saturating_sub(begun);
            assert!(took < Duration::from_secs(60), "{target}: {took:?}");
        }
    });
}
