//! Goal: a rehearsal tries the user's own file with the real verbs, and a verb can be killed wherever one likes. Method: whole worlds, as
//! `castle rehearse` makes them.

use std::path::Path;

use castle_kubernetes::client::Mode;
use castle_kubernetes::model::Object;
use castle_rehearsal::{Loss, Moment};
use futures_util::future::{FutureExt, join};
use serde_json::json;

use super::fixture::{SMALL, blue, in_a_world, person, script, written, written_with};
use super::life::{At, Kill};
use super::*;
use crate::output::Exit;

#[test]
fn the_castle_of_the_readme_is_rehearsed() {
    let script = script(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/blue"));
    for rehearsed in rehearse(&script, &[1]).unwrap() {
        assert_eq!(rehearsed.broken, [], "{}", rehearsed.story);
        let times = rehearsed.times;
        assert!(times.api < times.handover && times.handover <= times.whole && times.api.is_some(), "{times:?}");
    }
}

#[test]
fn a_castle_on_proxmox_is_rehearsed_without_its_secrets() {
    let script = written(SMALL);
    for rehearsed in rehearse(&script, &[1, 2]).unwrap() {
        assert_eq!(rehearsed.broken, [], "{}", rehearsed.story);
        assert!(!rehearsed.kills.is_empty() && rehearsed.effects > 100, "{:?}", rehearsed.kills);
        assert_eq!((rehearsed.losses.len(), rehearsed.edit), (1, Some(Edit::Followed)), "{}", rehearsed.story);
        let memory = ["memory: 4096 -> 5120", "memory: 5120 -> 4096"];
        assert!(memory.iter().all(|change| rehearsed.story.contains(change)), "{}", rehearsed.story);
    }
    assert!(script.left_out.iter().any(|what| what.starts_with("your secrets")), "{:?}", script.left_out);
}

/// A world takes minutes, in which the verb says what it is at, and hears Ctrl-C.
#[test]
fn whoever_waits_for_worlds_can_do_something_else_meanwhile() {
    let (script, runtime) = (written(&blue(1, "none")), tokio::runtime::Builder::new_current_thread().build().unwrap());
    runtime.block_on(async {
        let mut worlds = std::pin::pin!(rehearse_beside(&script, &[1]));
        assert!((&mut worlds).now_or_never().is_none());
        assert_eq!(worlds.await.unwrap()[0].broken, []);
    });
}

/// An ISO that the file names is there, as it is at home; on a storage of its own, too.
#[test]
fn a_castle_with_an_iso_is_rehearsed() {
    for iso in ["local:iso/drivers.iso", "nas:iso/drivers.iso"] {
        let text = SMALL
            .replace("    bridge: vmbr1\n", &format!("    bridge: vmbr1\n    hardware: {{iso: {{file: '{iso}'}}}}\n"));
        let script = written(&text);
        for rehearsed in rehearse(&script, &[1]).unwrap() {
            assert_eq!((rehearsed.broken, rehearsed.refused), (Vec::new(), None), "{iso}: {}", rehearsed.story);
        }
    }
}

/// Goal: a file that castle refuses breaks no promise. Method: Flux is to follow what no cluster takes.
#[test]
fn a_file_that_up_refuses_is_told_as_such() {
    let script = written_with(
        &format!("{}gitops: {{repository: embedded}}\n", blue(1, "none")),
        "gitops/clusters/blue/bad.yaml",
        "apiVersion: nobody.example.com/v1\nkind: Unheard\nmetadata: {name: of}\n",
    );
    let rehearsed = rehearse(&script, &[1]).unwrap().remove(0);
    assert_eq!(rehearsed.broken, [], "{}", rehearsed.story);
    let (exit, why) = rehearsed.refused.expect(&rehearsed.story);
    assert!(exit == Exit::Refused && why.contains("nobody.example.com"), "{why}");
    assert!(rehearsed.kills.is_empty() && rehearsed.effects == 0);
}

/// Goal: the same of a patch that no node would take. Method: one with a misspelt key, and one that a node refuses only once it is merged.
#[test]
fn a_patch_that_up_refuses_is_told_as_such() {
    for (patch, word) in [
        ("machine: {network: {hostnam: x}}\n", "machine.network.hostnam"),
        ("machine: {network: {hostname: x}}\n", "machine.network.hostname"),
    ] {
        let text = blue(1, "none").replace("talos: {", "talos: {patches: [bad.yaml], ");
        let rehearsed = rehearse(&written_with(&text, "bad.yaml", patch), &[1]).unwrap().remove(0);
        assert_eq!(rehearsed.broken, [], "{}", rehearsed.story);
        let (exit, why) = rehearsed.refused.expect(&rehearsed.story);
        assert!(exit == Exit::Invalid && why.contains(word), "{why}");
        assert!(rehearsed.kills.is_empty() && rehearsed.effects == 0);
    }
}

/// Goal: a picture holds what controllers do by themselves. Method: somebody makes a namespace, for which controllers make more.
#[test]
fn what_controllers_do_by_themselves_is_waited_for() {
    in_a_world(&written(&blue(0, "none")), 2052, async |life| {
        assert_eq!(life.run(&["up"]).await.exit, Some(Exit::Done));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}});
        person(life).await.apply(&Object::new(namespace).unwrap(), Mode::Real).await.unwrap();
        let early = picture::Picture::of(life);
        let settled = picture::Picture::settled(life).await;
        let late = early.against(&settled);
        assert!(!late.is_empty() && late.iter().all(|one| one.ends_with(" is missing")), "{late:?}");
        assert_eq!(picture::Picture::settled(life).await.against(&settled), Vec::<String>::new());
    });
}

/// Goal: no false alarm. Method: the worlds in which castle was blamed for what controllers had not done yet.
#[test]
fn worlds_that_were_blamed_on_castle_keep_all_promises() {
    for (seed, text) in [(2052, blue(0, "none")), (8150, blue(2, "{longhorn: {replicas: 2}}")), (3200, blue(1, "none"))]
    {
        for rehearsed in rehearse(&written(&text), &[seed]).unwrap() {
            assert_eq!((rehearsed.broken, rehearsed.refused), (Vec::new(), None), "{seed}: {}", rehearsed.story);
        }
    }
}

/// Goal: a `down` that was killed is ended by the next one, whatever the hypervisor was at: a guest that is being removed and has lost its mark already, a
/// download that ends only after the tidying. Method: the worlds in which something was left, of castles on two hosts, and of one without GitOps.
#[test]
fn worlds_in_which_a_killed_down_left_something_keep_all_promises() {
    let (before, rest) = SMALL.split_once("gitops:\n").unwrap();
    let (_, after) = rest.split_once("state:").unwrap();
    let without_gitops = format!("{before}state:{after}");
    let two_hosts = |text: String| text.replace("platform: embedded", "platform: {embedded: {nodes: [pve, pve2]}}");
    for (seed, text) in [
        (7100, without_gitops),
        (7100, blue(1, "none")),
        (11001, SMALL.to_owned()),
        (11001, two_hosts(blue(2, "none"))),
    ] {
        for rehearsed in rehearse(&written(&text), &[seed]).unwrap() {
            assert_eq!((rehearsed.broken, rehearsed.refused), (Vec::new(), None), "{seed}: {}", rehearsed.story);
        }
    }
}

#[test]
fn whoever_is_killed_at_the_first_effects_is_dead_at_once() {
    let script = written(SMALL);
    in_a_world(&script, 1, async |life| {
        for beat in 0..12 {
            let kill = Kill { at: At::Beat(beat), moment: Moment::Before, loss: Loss::None };
            let told = life.run_killed(&["up"], kill).await;
            assert_eq!((told.exit, told.effects), (None, beat + 1), "{}", told.printed.text);
        }
    });
}

#[test]
fn a_verb_is_killed_where_it_is_meant_and_goes_on() {
    let script = written(SMALL);
    in_a_world(&script, 1, async |life| {
        let is_bootstrap = |change: &str| change.starts_with("Bootstrap");
        let at = At::Change(Box::new(is_bootstrap));
        let told = life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(told.exit, None, "{}", told.printed.text);
        assert!(life.tally.changes().last().is_some_and(|last| is_bootstrap(last)));
        // Meanwhile somebody presses Ctrl-C; and then goes on.
        let hand = async {
            life.clock().sleep(std::time::Duration::from_secs(5)).await;
            life.interrupt();
        };
        let (told, ()) = join(life.run(&["up"]), hand).await;
        assert_eq!(told.exit, Some(Exit::Interrupted), "{}", told.printed.text);
        let told = life.run(&["up"]).await;
        assert_eq!(told.exit, Some(Exit::Done), "{}", told.printed.text);
        assert_eq!(told.printed.result["result"], "raised");
        assert_eq!(life.datacenter.clusters().len(), 1, "bootstrapped once");
        assert_eq!(life.run(&["status", "--nonsense"]).await.exit, Some(Exit::Invalid));
    });
}

/// Each generation of Talos has other names for what is drawn.
#[test]
fn nothing_that_is_drawn_is_in_a_picture() {
    for (version, kubernetes) in [("v1.12.4", "v1.35.0"), ("v1.13.9", "v1.36.3"), ("v1.14.0", "v1.36.3")] {
        let script = written(&SMALL.replace("v1.13.9", version).replace("v1.36.3", kubernetes));
        let raised = |seed| {
            in_a_world(&script, seed, async |life| {
                let told = life.run(&["up"]).await;
                assert_eq!(told.printed.result["result"], "raised", "{version}: {}", told.printed.text);
                picture::Picture::of(life)
            })
        };
        assert_eq!(raised(1).against(&raised(2)), Vec::<String>::new(), "{version}");
    }
}

#[test]
fn the_same_seed_is_the_same_story_whenever_the_file_is_read() {
    let (script, read_again) = (written(SMALL), written(SMALL));
    assert_eq!((&script.variables, &script.vaulted), (&read_again.variables, &read_again.vaulted));
    let once = |script| rehearse(script, &[4]).unwrap().remove(0);
    let (first, again) = (once(&script), once(&read_again));
    assert_eq!(first.story, again.story);
    assert_eq!((first.kills, first.times, first.effects), (again.kills, again.times, again.effects));
}
