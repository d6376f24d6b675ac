//! Files that are edited so that machines have to restart: they do so one after the other, and the castle serves all the time.

use castle_datacenter::{Hurdle, Stage};
use castle_kubernetes::client::{Api, Mode};
use castle_kubernetes::model::{Kind, Object};
use castle_rehearsal::{Loss, Moment};
use serde_json::{Map, Value, json};

use super::super::fixture::{person, written_with};
use super::super::life::{At, Kill};
use super::*;

/// The number of the first worker.
const WORKERS: u32 = 1010;

/// Three control planes and two workers.
fn large() -> String {
    SMALL
        .replace("{count: 1, firstAddress: 127.42.0.11", "{count: 3, firstAddress: 127.42.0.11")
        .replace("{count: 1, firstAddress: 127.42.0.21", "{count: 2, firstAddress: 127.42.0.21")
}

/// More memory for control planes, and more cores for workers.
fn more(text: &str) -> String {
    text.replace("memory: 4GiB", "memory: 6GiB").replace("127.42.0.21, cores: 4", "127.42.0.21, cores: 6")
}

/// What was seen of a castle while a verb ran.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The fewest API servers that were ready at once.
    pub(super) served: Option<usize>,
    /// The most nodes that were away at once.
    away: usize,
}

impl Watched {
    fn look(&mut self, life: &Life) {
        let Some(cluster) = life.datacenter.cluster("blue") else { return };
        let serving = cluster.api_servers.values().filter(|is_ready| **is_ready).count();
        self.served = Some(self.served.map_or(serving, |least| least.min(serving)));
        let guests = life.datacenter.look().guests;
        let boots = life.datacenter.talos_nodes();
        let away = guests.iter().filter(|(vmid, guest)| {
            let is_node = boots.iter().any(|node| node.vmid == **vmid);
            let serves = cluster.api_servers.get(*vmid).copied().unwrap_or(true);
            let restarts = boots.iter().any(|node| node.vmid == **vmid && node.stage != Some(Stage::Running));
            is_node && (!guest.running || !serves || restarts)
        });
        self.away = self.away.max(away.count());
    }
}

/// Runs a verb and watches the castle meanwhile.
pub(super) async fn watched(life: &Life, words: &[&str]) -> (Told, Watched) {
    let seen = std::cell::RefCell::new(Watched::default());
    let watching = pin!(async {
        loop {
            seen.borrow_mut().look(life);
            life.clock().sleep(Duration::from_millis(200)).await;
        }
    });
    let Either::Left((told, _)) = select(pin!(life.run(words)), watching).await;
    (told, seen.take())
}

/// The guest that leads etcd.
fn leader(life: &Life) -> Option<u32> {
    let cluster = life.datacenter.cluster("blue")?;
    cluster.etcds.iter().flatten().find(|member| member.is_leader).map(|member| member.vmid)
}

/// The guests that were restarted, in their order.
pub(super) fn restarted(life: &Life) -> Vec<u32> {
    let tasks = life.datacenter.look().tasks;
    tasks.iter().filter(|task| task.kind == "qmreboot").filter_map(|task| task.id.parse().ok()).collect()
}

#[test]
fn machines_restart_one_after_the_other_and_the_castle_serves_all_the_time() {
    let (before, after) = (written(&large()), more(&large()));
    in_worlds(&before, &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        let plan = life.run(&["plan"]).await;
        hold(
            &plan,
            Exit::Done,
            &["platform/restart/blue-cp-1", "memory: 4096 -> 6144", "platform/drain/blue-worker-2"],
        );
        assert_eq!(restarted(&life), Vec::<u32>::new());
        let leader = leader(&life);
        let (up, seen) = watched(&life, &["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!((seen.served, seen.away), (Some(2), 1), "{}", up.printed.text);
        let order = restarted(&life);
        assert_eq!(order.len(), 5, "{order:?}");
        assert!(order[..2].iter().all(|vmid| *vmid >= WORKERS), "workers first: {order:?}");
        assert_eq!(order.last().copied(), leader, "the leader last: {order:?}");
        for node in life.datacenter.object_names("blue", "nodes") {
            let name = node.trim_start_matches('/');
            let node = life.datacenter.object("blue", "nodes", "", name).unwrap();
            assert_eq!(node["spec"].get("unschedulable"), None, "{node:#}");
            assert_eq!(node["metadata"]["labels"].get("castle.dev/leaving"), None, "{node:#}");
        }
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
        assert_eq!(restarted(&life).len(), 5);
    });
}

/// A configuration that nodes take up only as they start: planned as what it is, and one after the other.
#[test]
fn a_configuration_that_restarts_nodes_is_rolled() {
    let patched = large().replace("serviceAccountKey: p256}", "serviceAccountKey: p256, patches: [all.yaml]}");
    let script = written_with(&patched, "all.yaml", "machine: {sysctls: {vm.swappiness: '1'}}\n");
    in_worlds(&script, &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let patch = life.script.file.with_file_name("all.yaml");
        life.disk().tamper(&patch, b"machine: {sysctls: {vm.swappiness: '1'}, udev: {rules: ['# none']}}\n".to_vec());
        let plan = life.run(&["plan"]).await;
        let names = ["blue-cp-1", "blue-cp-2", "blue-cp-3", "blue-worker-1", "blue-worker-2"];
        let turns = names.map(|name| format!("platform/configure/{name}"));
        hold(&plan, Exit::Done, &turns.each_ref().map(String::as_str));
        let planned = plan.printed.result["actions"].as_array().cloned().unwrap_or_default();
        for turn in &turns {
            let of_turn: Vec<_> = planned.iter().filter(|change| change["step"] == turn.as_str()).collect();
            assert!(of_turn.iter().any(|change| change["impact"] == "reboot"), "{turn}: {}", plan.printed.result);
        }
        let boot = |name: &str| {
            let node = life.datacenter.object("blue", "nodes", "", name).unwrap();
            node["status"]["nodeInfo"]["bootID"].as_str().unwrap().to_owned()
        };
        let before = names.map(boot);
        let (up, seen) = watched(&life, &["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!((seen.served, seen.away), (Some(2), 1), "{}", up.printed.text);
        assert!(names.map(boot).iter().zip(&before).all(|(now, before)| now != before), "{before:?}");
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
    });
}

#[test]
fn a_roll_that_was_killed_goes_on_where_it_was() {
    let (before, after) = (written(&large()), more(&large()));
    in_worlds(&before, &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        for beat in [2, 5, 8] {
            let kill = Kill { at: At::Beat(beat), moment: Moment::After, loss: Loss::None };
            let told = life.run_killed(&["up"], kill).await;
            assert!(told.exit.is_none(), "{}", told.printed.text);
        }
        let (up, seen) = watched(&life, &["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert!(seen.served >= Some(2) && seen.away <= 1, "{seen:?}");
        assert_eq!(restarted(&life).len(), 5, "{:?}", restarted(&life));
    });
}

#[test]
fn a_budget_that_forbids_it_stops_the_roll_before_its_node_restarts() {
    budget_holds(&json!([]), "platform/drain/blue-worker-");
}

/// Such Pods are not sent away: their like would be back at once. Their budget is asked all the same.
#[test]
fn a_budget_of_pods_that_stay_on_a_closed_node_stops_the_roll() {
    let stays = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]);
    budget_holds(&stays, "platform/empty/blue-worker-");
}

/// Holds that no node restarts that has a Pod with these tolerations whose budget forbids it, and that this step tells so.
fn budget_holds(tolerations: &Value, step: &str) {
    let (before, after) = (written(&large()), more(&large()));
    in_worlds(&before, &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let person = person(&life).await;
        let labels = json!({"app": "web"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"tolerations": tolerations, "containers": [{"name": "web", "image": "example.com/web:1"}]}});
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}});
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": labels}}});
        for object in [web, budget] {
            person.apply(&Object::new(object).unwrap(), Mode::Real).await.unwrap();
        }
        life.clock().sleep(Duration::from_secs(60)).await;
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Failed, &[step, "Pod default/web-", "poddisruptionbudgets"]);
        let pods =
            life.datacenter.object_names("blue", "pods").into_iter().filter(|name| name.starts_with("default/web-"));
        let carries = pods.map(|name| {
            let pod = life.datacenter.object("blue", "pods", "default", &name["default/".len()..]).unwrap();
            let number = pod["spec"]["nodeName"].as_str().unwrap().trim_start_matches("blue-worker-").parse::<u32>();
            WORKERS + number.unwrap() - 1
        });
        let carries: Vec<u32> = carries.collect();
        assert!(!carries.is_empty() && restarted(&life).iter().all(|vmid| !carries.contains(vmid)), "{carries:?}");
        let budget =
            person.get(&Kind::new("policy/v1", "PodDisruptionBudget"), "default", "web").await.unwrap().unwrap();
        person.delete(&budget).await.unwrap();
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(restarted(&life).len(), 5);
    });
}

/// A patch that Talos 1.13 takes up only when it starts.
const PATCH: &str = "machine:\n  env: {GRPC_GO_LOG_SEVERITY_LEVEL: info}\n";

#[test]
fn a_configuration_that_restarts_nodes_restarts_them_in_turns() {
    let patched = large().replace("serviceAccountKey: p256}", "serviceAccountKey: p256, patches: [env.yaml]}");
    in_worlds(&written(&large()), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let boots = |life: &Life| -> Vec<String> {
            let names = life.datacenter.object_names("blue", "nodes");
            let node =
                |name: &String| life.datacenter.object("blue", "nodes", "", name.trim_start_matches('/')).unwrap();
            names.iter().map(|name| node(name)["status"]["nodeInfo"]["bootID"].to_string()).collect()
        };
        let before = boots(&life);
        life.disk().tamper(&life.script.file.with_file_name("env.yaml"), PATCH.as_bytes().to_vec());
        life.disk().tamper(&life.script.file, patched.clone().into_bytes());
        let (up, seen) = watched(&life, &["up"]).await;
        hold(&up, Exit::Done, &["platform/configure/blue-cp-1"]);
        assert_eq!(seen.served, Some(2), "{}", up.printed.text);
        let after = boots(&life);
        assert!(before.len() == 5 && before.iter().zip(&after).all(|(before, after)| before != after), "{after:?}");
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

#[test]
fn the_first_that_does_not_come_back_is_the_last_that_went() {
    let (before, after) = (written(&large()), more(&large()));
    in_worlds(&before, &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        let keep_off = pin!(async {
            loop {
                if let Some(first) = restarted(&life).first() {
                    life.datacenter.switch(*first, false);
                }
                life.clock().sleep(Duration::from_secs(1)).await;
            }
        });
        let Either::Left((up, _)) = select(pin!(life.run(&["up"])), keep_off).await;
        assert!(matches!(up.exit, Some(Exit::Failed)), "{}", up.printed.text);
        let first = restarted(&life);
        assert_eq!(first.len(), 1, "{first:?}");
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let all = restarted(&life);
        assert_eq!((all.len(), all[0]), (5, first[0]), "it was restarted already");
    });
}

/// A Pod on this node that, once it is to end, stays until somebody lets it go: as long its node is being emptied.
async fn lingering(life: &Life, node: &str) {
    let metadata = json!({"name": "lingers", "namespace": "default", "finalizers": ["example.com/lingers"]});
    let spec = json!({"nodeName": node, "containers": [{"name": "it", "image": "example.com/it:1"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    person(life).await.apply(&Object::new(pod).unwrap(), Mode::Real).await.unwrap();
}

fn is_emptied(life: &Life) -> bool {
    life.datacenter
        .object("blue", "pods", "default", "lingers")
        .is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string())
}

/// Lets it go, through this way to the API.
async fn let_go(api: &Api) {
    let pod = api.get(&Kind::new("v1", "Pod"), "default", "lingers").await.unwrap().unwrap();
    api.relabel(&pod, Map::from_iter([("finalizers".to_owned(), Value::Null)])).await.unwrap();
}

/// Goal: nobody restarts while another is away, also where it went away only after the first turn had begun. Method: the first worker is back; the second is
/// being emptied, and is kept at that; the first goes off and is missed; only then the second is empty.
#[test]
fn a_worker_that_is_lost_while_another_is_emptied_keeps_that_from_restarting() {
    in_worlds(&written(&large()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        lingering(&life, "blue-worker-2").await;
        let person = person(&life).await;
        life.disk().tamper(&life.script.file, more(&large()).into_bytes());
        let keep_off = async |life: &Life| {
            life.datacenter.switch(WORKERS, false);
            let is_ready = |life: &Life| {
                let node = life.datacenter.object("blue", "nodes", "", "blue-worker-1").unwrap();
                let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
            };
            while is_ready(life) {
                life.clock().sleep(Duration::from_secs(1)).await;
            }
            let_go(&person).await;
        };
        let up = meanwhile(&life, &["up"], is_emptied, keep_off).await;
        hold(&up, Exit::Failed, &["platform/rest/blue-worker-2", "Node blue-worker-1: is not ready"]);
        assert_eq!(restarted(&life), [WORKERS]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(restarted(&life).len(), 5);
    });
}

/// The same of control planes: one of which the API server is away, and one that votes no more.
#[test]
fn a_control_plane_that_is_lost_while_another_is_emptied_keeps_that_from_restarting() {
    for (is_mute, told) in [(true, "/readyz"), (false, "is a member of etcd, and away")] {
        in_worlds(&written(&large()), &SEEDS[..1], async |life| {
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            let leader = leader(&life).unwrap();
            let mut others = (1000..1003).filter(|vmid| *vmid != leader);
            let (first, second) = (others.next().unwrap(), others.next().unwrap());
            let name = format!("blue-cp-{}", second - 999);
            lingering(&life, &name).await;
            let person = person(&life).await;
            let edited = large().replace("memory: 4GiB", "memory: 6GiB");
            life.disk().tamper(&life.script.file, edited.into_bytes());
            let lose = async |life: &Life| {
                assert_eq!(restarted(life), [first]);
                match is_mute {
                    true => life.datacenter.mute_api_server(first, true),
                    false => life.datacenter.hush_node(first, true),
                }
                life.clock().sleep(Duration::from_secs(5)).await;
                let_go(&person).await;
            };
            let up = meanwhile(&life, &["up"], is_emptied, lose).await;
            hold(&up, Exit::Failed, &[&format!("platform/rest/{name}"), &format!("blue-cp-{}", first - 999)]);
            if is_mute {
                assert!(up.printed.text.contains(told), "{}", up.printed.text);
            }
            assert_eq!(restarted(&life), [first], "{}", up.printed.text);
            life.datacenter.mute_api_server(first, false);
            life.datacenter.hush_node(first, false);
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            assert_eq!(restarted(&life).len(), 3);
        });
    }
}

/// Goal: a node that restarts for its machine and for its configuration does so once, and what it did before counts for nothing. Method: one edit asks for both.
#[test]
fn memory_and_a_configuration_that_restarts_nodes_are_one_restart() {
    let patched = large().replace("serviceAccountKey: p256}", "serviceAccountKey: p256, patches: [env.yaml]}");
    let after = more(&patched);
    in_worlds(&written(&large()), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file.with_file_name("env.yaml"), PATCH.as_bytes().to_vec());
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &["platform/stage/blue-cp-1", "platform/restart/blue-cp-1"]);
        assert!(!plan.printed.text.contains("platform/configure/"), "{}", plan.printed.text);
        let boots =
            std::cell::RefCell::new(std::collections::BTreeMap::<String, std::collections::BTreeSet<String>>::new());
        let watching = pin!(async {
            loop {
                for name in life.datacenter.object_names("blue", "nodes") {
                    let name = name.trim_start_matches('/');
                    let node = life.datacenter.object("blue", "nodes", "", name).unwrap();
                    let boot = node["status"]["nodeInfo"]["bootID"].to_string();
                    boots.borrow_mut().entry(name.to_owned()).or_default().insert(boot);
                }
                life.clock().sleep(Duration::from_millis(200)).await;
            }
        });
        let Either::Left(((up, seen), _)) = select(pin!(watched(&life, &["up"])), watching).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!((seen.served, seen.away), (Some(2), 1), "{}", up.printed.text);
        let boots = boots.take();
        assert!(boots.len() == 5 && boots.values().all(|boots| boots.len() == 2), "each started once more: {boots:?}");
        assert_eq!(restarted(&life).len(), 5);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

/// What was laid down for the next start of a node, and is wanted no more, is taken back: it would be taken up with whatever restarts the node.
#[test]
fn a_configuration_that_was_only_laid_down_is_taken_back_with_the_file() {
    let patched = large().replace("serviceAccountKey: p256}", "serviceAccountKey: p256, patches: [env.yaml]}");
    in_worlds(&written(&large()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file.with_file_name("env.yaml"), PATCH.as_bytes().to_vec());
        life.disk().tamper(&life.script.file, more(&patched).into_bytes());
        let at = At::Change(Box::new(|change| change.contains("ApplyConfiguration")));
        let told = life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert!(told.exit.is_none() && restarted(&life).is_empty(), "{}", told.printed.text);
        life.disk().tamper(&life.script.file, large().into_bytes());
        hold(&life.run(&["drift"]).await, Exit::Differs, &["platform/config/blue-worker-1", "machine.env"]);
        hold(&life.run(&["up"]).await, Exit::Done, &["platform/configure/blue-worker-1"]);
        hold(&life.run(&["drift"]).await, Exit::Done, &[]);
        assert_eq!(restarted(&life), Vec::<u32>::new());
    });
}

#[test]
fn the_only_node_of_a_castle_restarts_with_all_that_it_runs() {
    let text = SMALL.replace("workers: {count: 1,", "workers: {count: 0,");
    day_to(&written(&text), &undisturbed(&written(&text.replace("memory: 4GiB", "memory: 6GiB"))), async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file, text.replace("memory: 4GiB", "memory: 6GiB").into_bytes());
    });
}

/// A patch that nodes take up in place, and for which the API server is started again.
const SERVED: &str = "cluster:\n  apiServer:\n    extraArgs: {audit-log-maxage: \"7\"}\n";

#[test]
fn a_configuration_that_restarts_api_servers_is_given_to_one_after_the_other() {
    let patched = large().replace("serviceAccountKey: p256}", "serviceAccountKey: p256, patches: [api.yaml]}");
    in_worlds(&written(&large()), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file.with_file_name("api.yaml"), SERVED.as_bytes().to_vec());
        life.disk().tamper(&life.script.file, patched.clone().into_bytes());
        hold(&life.run(&["plan"]).await, Exit::Done, &["in-place  platform/configure/blue-cp-2"]);
        let (up, seen) = watched(&life, &["up"]).await;
        hold(&up, Exit::Done, &["platform/serves/blue-cp-1"]);
        assert_eq!((seen.served, restarted(&life)), (Some(2), Vec::new()), "{}", up.printed.text);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

/// The first that does not serve again is the last that was given it; and what it was given is taken back though it does not serve.
#[test]
fn a_configuration_without_which_an_api_server_serves_is_given_to_no_other() {
    let patched = large().replace("controlPlanes: {", "controlPlanes: {patches: [api.yaml], ");
    in_worlds(&written(&large()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file.with_file_name("api.yaml"), SERVED.as_bytes().to_vec());
        life.disk().tamper(&life.script.file, patched.clone().into_bytes());
        let is_away =
            |life: &Life| life.datacenter.cluster("blue").is_some_and(|blue| !blue.api_servers.contains_key(&1000));
        let up = meanwhile(&life, &["up"], is_away, async |life| life.datacenter.mute_api_server(1000, true)).await;
        hold(&up, Exit::Failed, &["platform/serves/blue-cp-1"]);
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &["platform/configure/blue-cp-2", "platform/configure/blue-cp-3"]);
        assert!(!plan.printed.text.contains("platform/configure/blue-cp-1"), "{}", plan.printed.text);
        life.disk().tamper(&life.script.file, large().into_bytes());
        let begun = life.clock().monotonic();
        let later = |life: &Life| life.clock().monotonic() > begun + Duration::from_secs(60);
        let back = meanwhile(&life, &["up"], later, async |life| life.datacenter.mute_api_server(1000, false)).await;
        hold(&back, Exit::Done, &[]);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

/// A patch with which no kubelet starts, taken up only by a restart.
const BAD: &str = "machine:\n  env: {GRPC_GO_LOG_SEVERITY_LEVEL: nonsense}\n";

/// Goal: a node that nothing but its own restart mends is restarted, first of all and without another one away. Method: a configuration that restarts
/// nodes, and with which no kubelet starts; the first that takes it up does not come back, and the file is as it was again.
fn takes_back(text: &str, patched: &str, first: &str) {
    in_worlds(&written(text), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.datacenter.set_hurdle(Some(Hurdle::Configured("nonsense".to_owned())));
        life.disk().tamper(&life.script.file.with_file_name("env.yaml"), BAD.as_bytes().to_vec());
        life.disk().tamper(&life.script.file, patched.as_bytes().to_vec());
        hold(&life.run(&["up"]).await, Exit::Failed, &[first]);
        life.disk().tamper(&life.script.file, text.as_bytes().to_vec());
        hold(&life.run(&["plan"]).await, Exit::Done, &["reboot", &format!("platform/configure/{first}")]);
        let (up, seen) = watched(&life, &["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(seen.away, 1, "{}", up.printed.text);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

#[test]
fn a_worker_that_only_its_own_restart_mends_is_restarted() {
    let patched = large().replace("127.42.0.21, cores: 4", "127.42.0.21, patches: [env.yaml], cores: 4");
    takes_back(&large(), &patched, "blue-worker-1");
}

#[test]
fn a_control_plane_that_only_its_own_restart_mends_is_restarted() {
    let patched = large().replace("controlPlanes: {", "controlPlanes: {patches: [env.yaml], ");
    takes_back(&large(), &patched, "blue-cp-");
}

/// Nobody serves, so that nothing can be asked of the cluster, or moved in it.
#[test]
fn the_only_control_plane_that_only_its_own_restart_mends_is_restarted() {
    let patched = SMALL.replace("controlPlanes: {", "controlPlanes: {patches: [env.yaml], ");
    takes_back(SMALL, &patched, "blue-cp-1");
}

/// Goal: those that are not well go first, and of the others nobody before they are. Method: all workers and a control plane have too little memory, and get more.
#[test]
fn machines_with_too_little_memory_are_mended_before_any_other_restarts() {
    let little = large().replace("memory: 8GiB", "memory: 2GiB");
    let after = more(&large());
    in_worlds(&written(&little), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.datacenter.set_hurdle(Some(Hurdle::Memory(3072)));
        for vmid in [WORKERS, WORKERS + 1] {
            life.datacenter.reboot_node(vmid);
        }
        life.datacenter.mute_api_server(1001, true);
        life.clock().sleep(Duration::from_secs(120)).await;
        life.disk().tamper(&life.script.file, after.clone().into_bytes());
        let mend = async |life: &Life| life.datacenter.mute_api_server(1001, false);
        let up = meanwhile(&life, &["up"], |life| restarted(life).first() == Some(&1001), mend).await;
        hold(&up, Exit::Done, &[]);
        let order = restarted(&life);
        assert_eq!((order.len(), &order[..3]), (5, [1001, WORKERS, WORKERS + 1].as_slice()), "{}", up.printed.text);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

/// Goal: what kubelets do not start with reaches one of them. Method: a flag that Talos accepts, and with which no kubelet starts, for all workers; the same
/// file once more; and the file as it was.
#[test]
fn a_configuration_with_which_no_kubelet_starts_is_given_to_one_node() {
    let patched = large().replace("127.42.0.21, cores: 4", "127.42.0.21, patches: [kubelet.yaml], cores: 4");
    in_worlds(&written(&large()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.datacenter.set_hurdle(Some(Hurdle::Configured("nonsense".to_owned())));
        let patch = b"machine:\n  kubelet:\n    extraArgs: {nonsense: \"1\"}\n".to_vec();
        life.disk().tamper(&life.script.file.with_file_name("kubelet.yaml"), patch);
        life.disk().tamper(&life.script.file, patched.clone().into_bytes());
        hold(&life.run(&["plan"]).await, Exit::Done, &["in-place  platform/configure/blue-worker-2"]);
        hold(&life.run(&["up"]).await, Exit::Failed, &["platform/lives/blue-worker-1"]);
        hold(&life.run(&["up"]).await, Exit::Failed, &["platform/spare/blue-worker-2", "blue-worker-1"]);
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &["platform/configure/blue-worker-2"]);
        assert!(!plan.printed.text.contains("platform/configure/blue-worker-1"), "{}", plan.printed.text);
        life.disk().tamper(&life.script.file, large().into_bytes());
        hold(&life.run(&["up"]).await, Exit::Done, &["platform/configure/blue-worker-1"]);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

/// Labels are written to the cluster, and are for all nodes at once.
#[test]
fn labels_of_workers_wait_for_no_turn() {
    let labelled = large().replace("127.42.0.21, cores: 4", "127.42.0.21, labels: {example.com/tier: a}, cores: 4");
    in_worlds(&written(&large()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().tamper(&life.script.file, labelled.clone().into_bytes());
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &["platform/config/blue-worker-1", "platform/config/blue-worker-2"]);
        assert!(!plan.printed.text.contains("platform/configure/"), "{}", plan.printed.text);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}
