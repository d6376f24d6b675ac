//! Ends that were cut off: a castle that was coming to rest, or was on its way out, is raised again or goes all the same.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::{Verdict, Webhook};
use castle_kubernetes::client::{Api, Mode, Scope};
use castle_kubernetes::model::{Kind, Object};
use castle_rehearsal::{Loss, Moment};
use serde_json::json;

use super::super::fixture::person;
use super::super::life::{At, Kill};
use super::of_castle::full;
use super::*;

#[test]
fn a_graceful_end_that_was_cut_off_is_called_off_by_up() {
    let script = written(&full());
    day_of(&script, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for beat in [1, 2, 4, 6, 9, 12] {
            let kill = Kill { at: At::Beat(beat), moment: Moment::After, loss: Loss::None };
            let told = life.run_killed(&["down", "--graceful", "--yes"], kill).await;
            assert!(told.exit.is_none(), "{}", told.printed.text);
            if castles(life) < 2 {
                // It was past coming to rest.
                hold(&life.run(&["down", "--yes"]).await, Exit::Done, &[]);
                break;
            }
            // Long enough for whatever restarts Pods.
            life.clock().sleep(Duration::from_secs(300)).await;
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
        }
    });
}

/// How many machines of the castle there are.
fn castles(life: &Life) -> usize {
    let guests = life.datacenter.look().guests;
    let is_ours = |name: &String| name.starts_with("blue-cp-") || name.starts_with("blue-worker-");
    guests.values().filter(|guest| guest.config.get("name").is_some_and(is_ours)).count()
}

/// A storage system has a say in what becomes of nodes, and is not awake yet.
#[test]
fn nodes_are_opened_as_soon_as_a_webhook_lets_them_be() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let kill = Kill { at: At::Beat(9), moment: Moment::After, loss: Loss::None };
        assert!(life.run_killed(&["down", "--graceful", "--yes"], kill).await.exit.is_none());
        let person = person(&life).await;
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]);
        let service = json!({"namespace": "default", "name": "asleep", "path": "/", "port": 443});
        let webhook = json!({"name": "nodes.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": service}, "rules": rules});
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "asleep"}, "webhooks": [webhook]});
        let configuration = Object::new(configuration).unwrap();
        person.apply(&configuration, Mode::Real).await.unwrap();
        let awaking = pin!(async {
            life.clock().sleep(Duration::from_secs(240)).await;
            person.delete(&configuration).await.unwrap();
            std::future::pending::<()>().await;
        });
        let Either::Left((up, _)) = select(pin!(life.run(&["up"])), awaking).await else { panic!("it never ends") };
        hold(&up, Exit::Done, &["platform/nodes/open", "asleep"]);
    });
}

/// A storage system has a say in what becomes of nodes, and the Pod that would say it finds no node: castle has closed them all. Opening one
/// needs the webhook, the webhook needs its Pod, and the Pod needs an open node.
#[test]
fn nodes_are_opened_though_the_webhook_that_has_a_say_waits_for_an_open_node() {
    in_worlds(&written(&full()), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let pods = guarded(&life, &person(&life).await).await;
        let kill = Kill { at: At::Beat(9), moment: Moment::After, loss: Loss::None };
        assert!(life.run_killed(&["down", "--graceful", "--yes"], kill).await.exit.is_none());
        // Its node was lost for a while, or somebody took it for the cure.
        let person = person(&life).await;
        for pod in person.list(&Kind::new("v1", "Pod"), &pods).await.unwrap().objects {
            person.delete(&pod).await.unwrap();
        }
        life.clock().sleep(Duration::from_secs(300)).await;
        let waiting = person.list(&Kind::new("v1", "Pod"), &pods).await.unwrap().objects;
        assert!(waiting.iter().all(|pod| pod.text("/spec/nodeName").is_empty()) && waiting.len() == 1, "{waiting:?}");
        hold(&life.run(&["up"]).await, Exit::Done, &["platform/nodes/open"]);
        let nodes = person.list(&Kind::new("v1", "Node"), &Scope::default()).await.unwrap().objects;
        assert!(nodes.iter().all(|node| node.at("/spec/unschedulable").is_null()), "{nodes:?}");
    });
}

/// Has every change of a node judged by a Pod of a Deployment. Says where its Pods are.
async fn guarded(life: &Life, person: &Api) -> Scope {
    let (namespace, labels) = ("default", json!({"app": "guard"}));
    let names = [format!("guard.{namespace}.svc")];
    let issued = life.datacenter.issue_certificate("blue", &names.each_ref().map(String::as_str)).unwrap();
    let webhook = Webhook::new(|_| Verdict::Allow);
    webhook.listen(&issued.certificate);
    assert!(life.datacenter.serve_webhook("blue", "default/guard", Some(webhook)));
    let metadata = json!({"name": "guard", "namespace": namespace});
    let container = json!({"name": "guard", "image": "example.com/guard:1", "ports": [{"containerPort": 443}]});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]);
    let service = json!({"namespace": namespace, "name": "guard", "path": "/", "port": 443});
    let config = json!({"service": service, "caBundle": STANDARD.encode(&issued.authority)});
    let hook = json!({"name": "nodes.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail", "clientConfig": config, "rules": rules});
    for object in [
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 443}]}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "guard"}, "webhooks": [hook]}),
    ] {
        person.apply(&Object::new(object).unwrap(), Mode::Real).await.unwrap();
    }
    life.clock().sleep(Duration::from_secs(120)).await;
    Scope { namespace: namespace.to_owned(), ..Scope::labelled("app=guard") }
}

/// Killed at any effect, the next one ends it. Guests that are just being destroyed have lost what they were known by.
#[test]
fn a_down_that_was_killed_anywhere_is_ended_by_the_next() {
    let begun = AtomicU64::new(0);
    in_worlds(&small(), &SEEDS, async |life| {
        let others = Others::of(&life);
        // Each world takes another part of them.
        for beat in (begun.fetch_add(1, Ordering::Relaxed)..200).step_by(SEEDS.len()) {
            let up = life.run(&["up"]).await;
            assert_eq!(up.exit, Some(Exit::Done), "after effect {beat}: {}", up.printed.text);
            let kill = Kill { at: At::Beat(beat), moment: Moment::After, loss: Loss::None };
            let told = life.run_killed(&["down", "--yes"], kill).await;
            let is_over = told.exit.is_some();
            let down = life.run(&["down", "--yes"]).await;
            assert_eq!(down.exit, Some(Exit::Done), "after effect {beat}: {}", down.printed.text);
            assert_eq!((castles(&life), others.touched(&life)), (0, Vec::new()), "after effect {beat}");
            if is_over {
                return;
            }
        }
    });
}
