//! Goal: a worker leaves only with what nobody misses, only if somebody agreed, and can be had back as long as its machine is there. Method: whole
//! castles in virtual time, with Longhorn and a database, in which people and bad luck have a hand.

use std::pin::pin;
use std::time::Duration;

use castle_datacenter::{Component, ComponentFault};
use castle_engine::Outcome;
use castle_kubernetes::client::Mode;
use castle_kubernetes::model::{Kind, Object};
use castle_layers::cluster::Rolling;
use castle_layers::platform;
use castle_rehearsal::{Loss, Moment};
use futures_util::future::{Either, select};
use serde_json::{Value, json};

use crate::output::Exit;
use crate::rehearsal::fixture::{blue, hold, in_a_world, person, stand, written};
use crate::rehearsal::{At, Kill, Life, Told};
use crate::stand::LOOKING;

const LONGHORN: &str = "{longhorn: {replicas: 1}}";
const WORKER: u32 = 1011;
const SPACE: &str = "longhorn-system";

fn write(life: &Life, workers: u32, storage: &str) {
    life.disk().tamper(&life.script.file, blue(workers, storage).into_bytes());
}

async fn edit(life: &Life, kind: &Kind, namespace: &str, name: &str, spec: Value) {
    let person = person(life).await;
    let object = person.get(kind, namespace, name).await.unwrap().unwrap();
    person.alter(&object, &json!({}), &spec).await.unwrap();
}

async fn cordon(life: &Life, node: &str, is_closed: bool) {
    let closed = if is_closed { json!(true) } else { Value::Null };
    edit(life, &Kind::new("v1", "Node"), "", node, json!({"unschedulable": closed})).await;
}

/// The objects of a collection of this namespace.
fn all(life: &Life, collection: &str, namespace: &str) -> Vec<Value> {
    let names = life.datacenter.object_names("blue", collection);
    let own = names.iter().filter_map(|name| name.split_once('/')).filter(|(space, _)| *space == namespace);
    own.map(|(_, name)| life.datacenter.object("blue", collection, namespace, name).unwrap()).collect()
}

/// Where the database runs.
fn runs_on(life: &Life) -> Vec<String> {
    let pods = all(life, "pods", "default");
    let here = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
    here.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Where sound copies of its volume are.
fn copies(life: &Life) -> Vec<String> {
    let sound = all(life, "replicas.longhorn.io", SPACE).into_iter().filter(|it| it["spec"]["failedAt"] == "");
    let mut copies: Vec<String> = sound.map(|it| it["spec"]["nodeID"].as_str().unwrap().to_owned()).collect();
    copies.sort();
    copies
}

fn volume(life: &Life) -> String {
    all(life, "volumes.longhorn.io", SPACE)[0]["metadata"]["name"].as_str().unwrap().to_owned()
}

fn second_worker(life: &Life) -> Option<Value> {
    life.datacenter.object("blue", "nodes", "", "blue-worker-2")
}

async fn until(life: &Life, what: &str, is_so: impl Fn(&Life) -> bool) {
    for _ in 0..600 {
        if is_so(life) {
            return;
        }
        life.clock().sleep(Duration::from_secs(1)).await;
    }
    panic!("it never came to {what}");
}

/// A castle with a database on the second worker, whose only copy is there.
async fn inhabited(life: &Life) {
    hold(&life.run(&["up"]).await, Exit::Done, &[]);
    cordon(life, "blue-worker-1", true).await;
    settled(life).await;
    until(life, "a database", |life| runs_on(life) == ["blue-worker-2"]).await;
    until(life, "a copy", |life| copies(life) == ["blue-worker-2"]).await;
    cordon(life, "blue-worker-1", false).await;
}

/// A database moves in.
async fn settled(life: &Life) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "longhorn", "resources": {"requests": {"storage": "1Gi"}}},
    });
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let template = json!({
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "db", "image": "example.com/db:1"}], "volumes": volumes},
    });
    let database = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "db", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, "template": template},
    });
    for object in [claim, database] {
        person(life).await.apply(&Object::new(object).unwrap(), Mode::Real).await.unwrap();
    }
}

/// Has Longhorn keep so many copies of the volume.
async fn keep(life: &Life, count: u32) {
    let kind = Kind::new("longhorn.io/v1beta2", "Volume");
    edit(life, &kind, SPACE, &volume(life), json!({"numberOfReplicas": count})).await;
}

#[test]
fn the_last_sound_copy_keeps_its_worker_until_there_is_another() {
    in_a_world(&written(&blue(2, LONGHORN)), 5, async |life| {
        inhabited(life).await;
        write(life, 1, LONGHORN);
        let only = format!(
            "Volume {SPACE}/{}: has no sound copy on a node that stays, only on blue-worker-2: let Longhorn keep more copies of it, or \
             remove it",
            volume(life)
        );
        hold(&life.run(&["plan"]).await, Exit::Refused, &[&only]);
        let next = format!("next: kubectl describe --namespace {SPACE} volume.longhorn.io {}", volume(life));
        life.tally.changes();
        let kept = life.run(&["up", "--yes"]).await;
        hold(&kept, Exit::Refused, &["platform/drain/blue-worker-2", &only, &next, "Nothing was changed."]);
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        // Nothing was begun: it takes Pods, and those that it has are there.
        let node = second_worker(life).unwrap();
        assert_eq!(
            (&node["spec"]["unschedulable"], node["metadata"]["labels"].get("castle.dev/leaving")),
            (&Value::Null, None)
        );
        assert_eq!(
            (runs_on(life), life.datacenter.look().guests[&WORKER].running),
            (vec!["blue-worker-2".to_owned()], true)
        );

        keep(life, 2).await;
        until(life, "a second copy", |life| copies(life) == ["blue-worker-1", "blue-worker-2"]).await;
        hold(&life.run(&["up", "--yes"]).await, Exit::Done, &["platform/vm/1011 blue-worker-2", "stands."]);
        assert!(!life.datacenter.look().guests.contains_key(&WORKER) && second_worker(life).is_none());
        until(life, "a database", |life| runs_on(life) == ["blue-worker-1"]).await;
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// Goal: that nothing is to be seen is not that there is nothing. Method: the worker that leaves has the only copy of a volume, and copies are not served just now.
#[test]
fn a_worker_does_not_go_while_copies_cannot_be_seen() {
    in_a_world(&written(&blue(2, LONGHORN)), 14, async |life| {
        inhabited(life).await;
        write(life, 1, LONGHORN);
        let definitions = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let definition = life.datacenter.object(
            "blue",
            "customresourcedefinitions.apiextensions.k8s.io",
            "",
            "replicas.longhorn.io",
        );
        let versions = definition.unwrap()["spec"]["versions"].clone();
        let mut hidden = versions.clone();
        hidden.as_array_mut().unwrap().iter_mut().for_each(|version| version["served"] = json!(false));
        edit(life, &definitions, "", "replicas.longhorn.io", json!({"versions": hidden})).await;
        life.tally.changes();
        let unseen =
            "CustomResourceDefinition replicas.longhorn.io: is there, and Replica of longhorn.io/v1beta2 is not served";
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &[unseen, "Nothing was changed."]);
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        assert!(life.datacenter.look().guests[&WORKER].running);
        edit(life, &definitions, "", "replicas.longhorn.io", json!({"versions": versions})).await;
        let only = "has no sound copy on a node that stays, only on blue-worker-2";
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &[only]);
    });
}

/// Four workers with a volume whose copies are on the two that leave: none of them goes before a copy is on a node that stays, and then one
/// after the other.
#[test]
fn copies_on_workers_that_leave_together_are_worth_nothing_to_each_other() {
    in_a_world(&written(&blue(4, "{longhorn: {replicas: 2}}")), 9, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for stays in ["blue-worker-1", "blue-worker-2"] {
            cordon(life, stays, true).await;
        }
        settled(life).await;
        let leaving = ["blue-worker-3", "blue-worker-4"];
        until(life, "two copies", |life| copies(life) == leaving && runs_on(life).len() == 1).await;
        for stays in ["blue-worker-1", "blue-worker-2"] {
            cordon(life, stays, false).await;
        }
        write(life, 2, "{longhorn: {replicas: 2}}");
        let only = format!(
            "Volume {SPACE}/{}: has no sound copy on a node that stays, only on blue-worker-3, blue-worker-4",
            volume(life)
        );
        hold(&life.run(&["plan"]).await, Exit::Refused, &[&only]);
        life.tally.changes();
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &[&only, "Nothing was changed."]);
        assert_eq!(life.tally.changes(), Vec::<String>::new());

        // One that stays has a copy, and is off: it is back before anybody goes.
        keep(life, 3).await;
        until(life, "a third copy", |life| copies(life) == ["blue-worker-1", leaving[0], leaving[1]]).await;
        life.datacenter.switch(1010, false);
        until(life, "somebody who misses it", |life| readiness(life, "blue-worker-1") != "True").await;
        let all = ["platform/power/blue-worker-1", "platform/vm/1012 blue-worker-3", "platform/vm/1013 blue-worker-4"];
        hold(&life.run(&["plan"]).await, Exit::Done, &all);
        life.tally.changes();
        // What was there when the second one's turn began.
        let begun = std::cell::RefCell::new(None);
        let watching = pin!(async {
            loop {
                let node = life.datacenter.object("blue", "nodes", "", "blue-worker-4");
                if begun.borrow().is_none() && node.is_some_and(|node| node["spec"]["unschedulable"] == true) {
                    *begun.borrow_mut() = Some(copies(life));
                }
                life.clock().sleep(Duration::from_millis(100)).await;
            }
        });
        let Either::Left((up, _)) = select(pin!(life.run(&["up", "--yes"])), watching).await;
        hold(&up, Exit::Done, &["stands."]);
        let begun = begun.take().unwrap();
        let is_made_up_for = ["blue-worker-1", "blue-worker-2"].iter().all(|stays| begun.iter().any(|it| it == stays));
        assert!(is_made_up_for, "the second began before what the first had was made up for: {begun:?}");
        let changes = life.tally.changes();
        let first = |what: &str| {
            changes.iter().position(|change| change.contains(what)).unwrap_or_else(|| panic!("{what}: {changes:#?}"))
        };
        assert!(
            first("DELETE /api/v1/nodes/blue-worker-3") < first("blue-worker-4"),
            "the second began before the first was gone: {changes:#?}"
        );
        until(life, "a database", |life| runs_on(life).len() == 1).await;
        until(life, "copies on what stays", |life| copies(life) == ["blue-worker-1", "blue-worker-2"]).await;
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// The database moves out, and its volume is let go of.
async fn abandoned(life: &Life) {
    edit(life, &Kind::new("apps/v1", "Deployment"), "default", "db", json!({"replicas": 0})).await;
    until(life, "a volume that nobody uses", |life| {
        all(life, "volumes.longhorn.io", SPACE)[0]["status"]["state"] == "detached"
    })
    .await;
}

/// Four workers with a volume that nobody uses, whose copies are on these.
async fn with_copies_on(life: &Life, here: [&str; 2]) {
    hold(&life.run(&["up"]).await, Exit::Done, &[]);
    let all = ["blue-worker-1", "blue-worker-2", "blue-worker-3", "blue-worker-4"];
    let others = || all.into_iter().filter(|name| !here.contains(name));
    for name in others() {
        cordon(life, name, true).await;
    }
    settled(life).await;
    until(life, "two copies", |life| copies(life) == here && runs_on(life).len() == 1).await;
    abandoned(life).await;
    for name in others() {
        cordon(life, name, false).await;
    }
}

/// Goal: whoever has gone already is not counted on, though Kubernetes has not missed it yet. Method: a volume that nobody uses has its copies on the
/// third worker and the fourth; the machine of the fourth is deleted by hand, both are left out of the file, and castle is run at once.
#[test]
fn a_worker_does_not_go_for_a_copy_on_one_that_has_gone_already() {
    in_a_world(&written(&blue(4, "{longhorn: {replicas: 2}}")), 11, async |life| {
        with_copies_on(life, ["blue-worker-3", "blue-worker-4"]).await;
        assert!(life.datacenter.remove_guest(1013));
        write(life, 2, "{longhorn: {replicas: 2}}");
        assert_eq!(readiness(life, "blue-worker-4"), "True");
        life.tally.changes();
        let only = "has no sound copy on a node that stays, only on blue-worker-3 (there is one on blue-worker-4, which castle.yaml does not name)";
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &[only, "0 of them changed something"]);
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        assert_ne!(readiness(life, "blue-worker-4"), "True", "nobody waited until it was missed");
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &[only, "Nothing was changed."]);
        assert!(life.datacenter.look().guests[&1012].running);
        // In use again, it gets another copy.
        edit(life, &Kind::new("apps/v1", "Deployment"), "default", "db", json!({"replicas": 1})).await;
        until(life, "a copy that stays", |life| copies(life).iter().any(|node| node == "blue-worker-1")).await;
        hold(&life.run(&["up", "--yes"]).await, Exit::Done, &["platform/missed/blue-worker-4", "stands."]);
        assert!(
            ["blue-worker-3", "blue-worker-4"]
                .iter()
                .all(|name| life.datacenter.object("blue", "nodes", "", name).is_none())
        );
        until(life, "copies on what stays", |life| copies(life) == ["blue-worker-1", "blue-worker-2"]).await;
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// The same of one that the file still names: its machine is made anew in the same run, and has none of what it had.
#[test]
fn a_worker_does_not_go_for_a_copy_on_one_that_is_made_anew() {
    in_a_world(&written(&blue(4, "{longhorn: {replicas: 2}}")), 12, async |life| {
        with_copies_on(life, ["blue-worker-2", "blue-worker-4"]).await;
        assert!(life.datacenter.remove_guest(WORKER));
        write(life, 3, "{longhorn: {replicas: 2}}");
        let only = "only on blue-worker-4 (there is one on blue-worker-2, whose machine is only made now)";
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &[only]);
        assert!(life.datacenter.look().guests[&1013].running);
    });
}

/// Of a volume that nobody uses Longhorn calls any copy sound, also on a disk that cannot be read.
#[test]
fn a_worker_does_not_go_for_a_copy_on_a_broken_disk() {
    let longhorn = "{longhorn: {replicas: 2}}";
    in_a_world(&written(&blue(4, longhorn)), 13, async |life| {
        with_copies_on(life, ["blue-worker-2", "blue-worker-4"]).await;
        let broken =
            |is_so| life.datacenter.fail_component("blue", Component::Longhorn, ComponentFault::NoUsableDisk, is_so);
        assert!(broken(true));
        life.clock().sleep(Duration::from_secs(30)).await;
        assert_eq!(copies(life), ["blue-worker-2", "blue-worker-4"]);
        write(life, 3, longhorn);
        let only = "only on blue-worker-4 (there is one on blue-worker-2, whose disk Longhorn does not call ready)";
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &[only, "Nothing was changed."]);
        assert!(broken(false));
        life.clock().sleep(Duration::from_secs(30)).await;
        hold(&life.run(&["up", "--yes"]).await, Exit::Done, &["platform/vm/1013 blue-worker-4", "stands."]);
    });
}

/// The copy elsewhere fails when the worker is already on its way: it stays, and can be had back or go later.
#[test]
fn a_copy_that_fails_meanwhile_keeps_the_worker_and_a_removal_can_be_called_off() {
    in_a_world(&written(&blue(2, LONGHORN)), 6, async |life| {
        inhabited(life).await;
        keep(life, 2).await;
        until(life, "a second copy", |life| copies(life).len() == 2).await;
        write(life, 1, LONGHORN);
        let at = At::Change(Box::new(|change| change.contains("/eviction")));
        let told = life.run_killed(&["up", "--yes"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(told.exit, None, "{}", told.printed.text);
        let kind = Kind::new("longhorn.io/v1beta2", "Replica");
        let replicas = all(life, "replicas.longhorn.io", SPACE);
        let other = replicas.iter().find(|it| it["spec"]["nodeID"] == "blue-worker-1").unwrap();
        let other = other["metadata"]["name"].as_str().unwrap();
        // Otherwise Longhorn would make another.
        keep(life, 1).await;
        edit(life, &kind, SPACE, other, json!({"failedAt": "2026-01-01T00:00:00Z"})).await;

        hold(
            &life.run(&["up", "--yes"]).await,
            Exit::Failed,
            &[
                "platform/copies/blue-worker-2",
                "has no sound copy on a node that stays, only on blue-worker-2",
                "(waited 2 min)",
            ],
        );
        assert!(life.datacenter.look().guests[&WORKER].running);
        write(life, 2, LONGHORN);
        hold(&life.run(&["up"]).await, Exit::Done, &["platform/nodes/left  uncordon"]);
        let node = second_worker(life).unwrap();
        assert_eq!(
            (&node["spec"]["unschedulable"], node["metadata"]["labels"].get("castle.dev/leaving")),
            (&Value::Null, None)
        );
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);

        edit(life, &kind, SPACE, other, json!({"failedAt": ""})).await;
        write(life, 1, LONGHORN);
        hold(&life.run(&["up", "--yes"]).await, Exit::Done, &["stands."]);
        assert!(second_worker(life).is_none());
    });
}

#[test]
fn whoever_is_asked_knows_that_a_node_does_not_answer() {
    in_a_world(&written(&blue(2, "none")), 7, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        write(life, 1, "none");
        let asked = life.run(&["up"]).await;
        hold(&asked, Exit::Refused, &["nothing was changed: answer yes, or give --yes"]);
        assert!(!asked.printed.text.contains(super::LOST), "it answers: {}", asked.printed.text);

        life.datacenter.switch(WORKER, false);
        let off = life.run(&["up"]).await;
        insta::assert_snapshot!("a_worker_that_is_off", told(&off));
        // One that runs, and whose kubelet says nothing.
        until(life, "somebody who misses it", |life| readiness(life, "blue-worker-2") != "True").await;
        // It is off: that says nothing of the network, which flannel brings.
        write(life, 2, "none");
        let status = life.run(&["status"]).await;
        assert!(!status.printed.text.contains("cni is none"), "{}", status.printed.text);
        write(life, 1, "none");
        life.datacenter.switch(WORKER, true);
        until(life, "a node that is ready", |life| readiness(life, "blue-worker-2") == "True").await;
        assert!(life.datacenter.reset_node(WORKER));
        until(life, "a silent kubelet", |life| readiness(life, "blue-worker-2") != "True").await;
        let silent = life.run(&["up"]).await;
        insta::assert_snapshot!("a_worker_that_is_not_ready", told(&silent));
        hold(&life.run(&["up", "--yes"]).await, Exit::Done, &["stands."]);
        assert!(second_worker(life).is_none() && !life.datacenter.look().guests.contains_key(&WORKER));
    });
}

/// A machine that is off has Pods all the same: as long as a budget says that they are missed, it stays.
#[test]
fn budgets_hold_for_a_worker_that_is_off() {
    in_a_world(&written(&blue(2, "none")), 9, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let tolerations = ["not-ready", "unreachable"].map(
            |what| json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoExecute"}),
        );
        let spec = json!({"nodeName": "blue-worker-2", "containers": [{"name": "db", "image": "example.com/db:1"}],
            "tolerations": tolerations});
        let metadata = |labels| json!({"name": "db", "namespace": "default", "labels": labels});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(json!({"app": "db"})), "spec": spec});
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(json!({})),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}});
        for object in [pod, budget.clone()] {
            person(life).await.apply(&Object::new(object).unwrap(), Mode::Real).await.unwrap();
        }
        until(life, "a database", |life| runs_on(life) == ["blue-worker-2"]).await;
        life.datacenter.switch(WORKER, false);
        until(life, "somebody who misses it", |life| readiness(life, "blue-worker-2") != "True").await;
        write(life, 1, "none");
        let held = life.run(&["up", "--yes"]).await;
        hold(&held, Exit::Failed, &["Pod default/db", "disruption budget", "kubectl get poddisruptionbudgets"]);
        assert!(life.datacenter.look().guests.contains_key(&WORKER), "{}", held.printed.text);
        person(life).await.delete(&Object::new(budget).unwrap()).await.unwrap();
        hold(&life.run(&["up", "--yes"]).await, Exit::Done, &["stands."]);
        assert!(second_worker(life).is_none() && !life.datacenter.look().guests.contains_key(&WORKER));
    });
}

/// Kubernetes has given up on a machine that is off for five minutes: the end of its Pods cannot be taken back, no budget counts them, and none holds
/// the machine.
#[test]
fn no_budget_holds_for_pods_that_kubernetes_has_given_up() {
    in_a_world(&written(&blue(2, "none")), 14, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let spec = json!({"nodeName": "blue-worker-2", "containers": [{"name": "db", "image": "example.com/db:1"}]});
        let metadata = |labels| json!({"name": "db", "namespace": "default", "labels": labels});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(json!({"app": "db"})), "spec": spec});
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(json!({})),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}});
        for object in [pod, budget] {
            person(life).await.apply(&Object::new(object).unwrap(), Mode::Real).await.unwrap();
        }
        until(life, "a database", |life| runs_on(life) == ["blue-worker-2"]).await;
        life.datacenter.switch(WORKER, false);
        let ending = |life: &Life| {
            all(life, "pods", "default").into_iter().find(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
        };
        until(life, "an end of patience", |life| ending(life).is_some()).await;
        let pod = Object::new(ending(life).unwrap()).unwrap();
        person(life).await.evict(&pod, Mode::DryRun).await.unwrap();
        write(life, 1, "none");
        hold(&life.run(&["up", "--yes"]).await, Exit::Done, &["stands."]);
        assert!(second_worker(life).is_none() && !life.datacenter.look().guests.contains_key(&WORKER));
    });
}

/// Whether a node is ready, as the cluster knows it.
fn readiness(life: &Life, name: &str) -> String {
    let node = life.datacenter.object("blue", "nodes", "", name).unwrap();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|it| it["type"] == "Ready");
    ready.and_then(|it| it["status"].as_str()).unwrap_or_default().to_owned()
}

/// What was said of those who leave.
fn told(told: &Told) -> String {
    assert_eq!(told.exit, Some(Exit::Refused), "{}", told.printed.text);
    let (_, rest) = told.printed.text.split_once("Not in the file any more:").unwrap();
    rest.trim().to_owned()
}

/// A guest that nobody was asked about stays, even if it is one that the file does not name by then.
#[test]
fn only_those_go_that_somebody_agreed_to() {
    in_a_world(&written(&blue(2, "none")), 8, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        write(life, 1, "none");
        for is_agreed in [false, true] {
            let stand = stand(life).await;
            let identity = stand.identify().await.unwrap();
            let ground = stand.ground(&identity.castle, false);
            let (survey, placed) = stand.lay_out(&ground, &stand.window(&identity.castle)).await.unwrap();
            let leaving = platform::leaving(&ground, &stand.site, &survey, &stand.kept.nodes).await.unwrap();
            assert_eq!(leaving.iter().map(|guest| guest.vmid).collect::<Vec<_>>(), [WORKER]);
            stand.agree_to(if is_agreed { &leaving } else { &[] });
            let window = stand.window(&identity.castle);
            let graph = stand.raise(&ground, &window, &survey, &placed, (LOOKING, &Rolling::at_once())).await.unwrap();
            let report = stand.look(&graph, &identity.castle).await;
            let planned = report.ended(|outcome| matches!(outcome, Outcome::Planned { .. }));
            let planned: Vec<String> = planned.map(|(step, _)| step.to_string()).collect();
            let all =
                ["platform/drain/blue-worker-2", "platform/vm/1011 blue-worker-2", "platform/forget/blue-worker-2"];
            let expected = if is_agreed { all.to_vec() } else { Vec::new() };
            assert_eq!(planned, expected, "{report:?}");
        }
    });
}

/// Goal: a roll takes no volume's copies faster than they come back. Method: more memory for workers that have a copy each of a database's volume;
/// whoever watches counts sound copies, and the workers that were closed so far.
#[test]
fn workers_with_volumes_restart_one_after_the_other_each_once_all_copies_are_sound() {
    let longhorn = "{longhorn: {replicas: 2}}";
    let (before, after) = (blue(2, longhorn), blue(2, longhorn).replace("memory: 8GiB", "memory: 12GiB"));
    assert_ne!(before, after);
    in_a_world(&written(&before), 7, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        settled(life).await;
        until(life, "two copies", |life| copies(life).len() == 2 && runs_on(life).len() == 1).await;
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        let seen = std::cell::RefCell::new(Vec::new());
        let watching = pin!(async {
            let mut closed = std::collections::BTreeSet::new();
            loop {
                for name in ["blue-worker-1", "blue-worker-2"] {
                    let node = life.datacenter.object("blue", "nodes", "", name).unwrap();
                    if node["spec"]["unschedulable"] == true {
                        closed.insert(name);
                    }
                }
                seen.borrow_mut().push((closed.len(), copies(life).len()));
                life.clock().sleep(Duration::from_millis(100)).await;
            }
        });
        let Either::Left((up, _)) = select(pin!(life.run(&["up"])), watching).await;
        hold(&up, Exit::Done, &["platform/rebuilt/blue-worker-"]);
        let seen = seen.take();
        let missed = seen.iter().filter(|(closed, copies)| *closed == 1 && *copies < 2).count();
        assert!(missed > 0, "no copy was ever missed, so nothing was waited for");
        let second = seen.iter().find(|(closed, _)| *closed == 2).unwrap();
        assert_eq!(second.1, 2, "the second began before the copies of the first were sound: {}", up.printed.text);
        until(life, "two copies", |life| copies(life).len() == 2).await;
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// A volume of four workers that keeps three copies, of which these have one each.
async fn with_volume_on(life: &Life, here: [&str; 3]) {
    hold(&life.run(&["up"]).await, Exit::Done, &[]);
    let all = ["blue-worker-1", "blue-worker-2", "blue-worker-3", "blue-worker-4"];
    let others = || all.into_iter().filter(|name| !here.contains(name));
    for name in others() {
        cordon(life, name, true).await;
    }
    settled(life).await;
    until(life, "two copies", |life| copies(life).len() == 2 && runs_on(life).len() == 1).await;
    keep(life, 3).await;
    until(life, "all copies", |life| copies(life) == here).await;
    for name in others() {
        cordon(life, name, false).await;
    }
}

/// What was to be seen at the first moment at which a node was closed.
async fn copies_when_closed(life: &Life, node: &str, words: &[&str]) -> (Told, Option<Vec<String>>) {
    let begun = std::cell::RefCell::new(None);
    let watching = pin!(async {
        loop {
            let node = life.datacenter.object("blue", "nodes", "", node);
            if begun.borrow().is_none() && node.is_some_and(|node| node["spec"]["unschedulable"] == true) {
                *begun.borrow_mut() = Some(copies(life));
            }
            life.clock().sleep(Duration::from_millis(100)).await;
        }
    });
    let Either::Left((up, _)) = select(pin!(life.run(words)), watching).await;
    (up, begun.take())
}

/// Goal: a worker that went in an earlier run is made up for, too, before the next one goes. Method: castle is killed as soon as the first of two has gone,
/// and is run again.
#[test]
fn who_has_gone_in_an_earlier_run_is_made_up_for_before_the_next_one_goes() {
    let longhorn = "{longhorn: {replicas: 2}}";
    in_a_world(&written(&blue(4, longhorn)), 15, async |life| {
        with_volume_on(life, ["blue-worker-1", "blue-worker-3", "blue-worker-4"]).await;
        write(life, 2, longhorn);
        // Meanwhile there is nowhere that another copy could be made.
        cordon(life, "blue-worker-2", true).await;
        let at = At::Change(Box::new(|change| change.contains("DELETE /api/v1/nodes/blue-worker-3")));
        let told = life.run_killed(&["up", "--yes"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(told.exit, None, "{}", told.printed.text);
        assert!(!life.datacenter.look().guests.contains_key(&1012));
        let stays = ["blue-worker-1", "blue-worker-2"];
        assert!(!copies(life).contains(&stays[1].to_owned()), "nothing is left to be made up for: {:?}", copies(life));
        cordon(life, "blue-worker-2", false).await;
        hold(&life.run(&["plan"]).await, Exit::Done, &["platform/drain/blue-worker-4"]);
        let (up, begun) = copies_when_closed(life, "blue-worker-4", &["up", "--yes"]).await;
        hold(&up, Exit::Done, &["stands."]);
        let begun = begun.unwrap();
        assert!(stays.iter().all(|stays| begun.iter().any(|it| it == stays)), "the second began before: {begun:?}");
        until(life, "copies on what stays", |life| copies(life) == stays).await;
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// Goal: nodes restart although others are to leave: what those have is there until then. Method: more memory and fewer workers in one edit; copies are on
/// one that stays and on both that leave.
#[test]
fn memory_and_fewer_workers_in_one_edit() {
    let longhorn = "{longhorn: {replicas: 2}}";
    in_a_world(&written(&blue(4, longhorn)), 16, async |life| {
        with_volume_on(life, ["blue-worker-1", "blue-worker-3", "blue-worker-4"]).await;
        let after = blue(2, longhorn).replace("memory: 8GiB", "memory: 12GiB");
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &["platform/restart/blue-worker-1", "platform/drain/blue-worker-4"]);
        let (up, begun) = copies_when_closed(life, "blue-worker-4", &["up", "--yes"]).await;
        hold(&up, Exit::Done, &["stands."]);
        let (begun, stays) = (begun.unwrap(), ["blue-worker-1", "blue-worker-2"]);
        assert!(stays.iter().all(|stays| begun.iter().any(|it| it == stays)), "the second began before: {begun:?}");
        until(life, "copies on what stays", |life| copies(life) == stays).await;
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}
