//! Bad days of the cluster and its components.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Component, ComponentFault};
use castle_engine::Class;
use castle_layers::cluster::Referred;
use castle_secrets::Secret;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::castle::faults;
use crate::day::{Said, day, one};
use crate::keep::{BLUE, Keep, full, inside_only, only};
use crate::person::Person;
use crate::room::{done, door};

#[test]
fn a_vault_that_does_not_let_the_cluster_in() {
    day(&only(&["engine"]), async |keep, _| {
        keep.wishes.client_secret = Some("wrong-and-secret".to_owned());
        let said = one(&keep.furnished().await).may_pass();
        let next = "kubectl describe clustersecretstore.external-secrets.io infisical";
        said.is("ClusterSecretStore infisical", "Ready is False (", next);
        assert!(!said.evidence.contains("wrong-and-secret"), "{}", said.evidence);
        keep.wishes.client_secret = None;
        // Whoever was turned away too often is turned away for a while, even with the right secret; and is told so.
        let locked = one(&keep.furnished().await).may_pass();
        locked.is("ClusterSecretStore infisical", "temporarily locked, please try again later", next);
        keep.castle.room.clock.sleep(Duration::from_secs(600)).await;
    });
}

/// Goal: without a network the nodes say so, before any component loses its patience; one that comes with the configuration is as good as flannel's.
#[test]
fn nodes_without_a_network_say_so() {
    let raised = |patch: &str| {
        let file = only(&["networking"]).replace("kubernetes: {", "kubernetes: {cni: none, ");
        let file = file.replace("talos: {", "talos: {patches: [network.yaml], ");
        assert!(file.contains("cni: none") && file.contains("network.yaml"), "{file}");
        in_virtual_time(async |clock| {
            let mut keep = Keep::new(inside_only(5), &file, door(clock));
            let patches = [("network.yaml".to_owned(), Secret::from(patch.to_owned()))].into();
            keep.castle.referred = Arc::new(Referred { patches, ..Referred::default() });
            let report = keep.up().await;
            faults(&report)
                .into_iter()
                .map(|fault| format!("{}: {}", fault.subject, fault.evidence))
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(raised("cluster: {inlineManifests: [{name: cilium, contents: 'kind: x'}]}\n"), Vec::<String>::new());
    let said = raised("machine: {certSANs: [castle.lan]}\n");
    let why = "kubernetes.cni is none, and no manifest in the machine configuration brings a network";
    let of_node = said.first().filter(|first| first.starts_with("Node ")).map(String::as_str).unwrap_or_default();
    assert!(of_node.contains("is not ready") && of_node.contains(why), "{said:?}");
}

#[test]
fn a_pool_among_the_nodes_own_addresses_is_refused_by_the_file() {
    let file = full(1, 1).replace("10.0.200.1-10.0.200.20", "10.0.1.1-10.0.1.20");
    let problems = castle_spec::read(file.as_bytes()).problems;
    let said: Vec<&str> = problems.iter().map(|problem| problem.summary.as_str()).collect();
    assert!(said.contains(&"the address of `blue-cp-1`, 10.0.1.1, is a load balancer's"), "{said:?}");
    assert!(castle_spec::read(full(1, 1).as_bytes()).castle.is_some());
}

#[test]
fn a_credential_that_comes_another_way_replaces_the_one_before() {
    let file = only(&["engine", "gitops"]);
    day(&file, async |keep, _| {
        let has =
            |keep: &Keep, kind: &str, name: &str| keep.datacenter().object(BLUE, kind, "flux-system", name).is_some();
        let secrets = |keep: &Keep| ["flux-system", "flux-system-vault"].map(|name| has(keep, "secrets", name));
        done(&keep.furnished().await);
        assert_eq!(secrets(keep), [false, true], "the cluster reads it by itself");
        keep.rewrite(&(file.clone() + "components: {externalSecrets: off}\n"));
        done(&keep.furnished().await);
        keep.castle.room.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(secrets(keep), [true, false], "castle gives it");
        keep.rewrite(&file);
    });
}

#[test]
fn a_component_that_the_file_gives_to_flux_while_castle_has_it() {
    let file = only(&["networking", "gitops"]);
    day(&file, async |keep, _| {
        done(&keep.furnished().await);
        keep.scribe.take();
        keep.rewrite(&(file.clone() + "components: {metallb: {owner: flux}}\n"));
        let said = one(&keep.furnished().await);
        assert!(said.is_guarded);
        let evidence = "castle.yaml gives it to Flux, and castle still has it";
        said.is("networking/metallb", evidence, "castle handover metallb --to flux");
        let writes = keep.scribe.take().writes;
        assert!(writes.is_empty(), "{writes:?}");
        keep.rewrite(&file);
    });
}

/// Somebody's MetalLB: its namespace and its controller, with these labels and annotations.
async fn install(person: &Person, labels: &Value, annotations: &Value) {
    let metadata = |name: &str| json!({"name": name, "labels": labels, "annotations": annotations});
    person.create("/api/v1/namespaces", &json!({"metadata": metadata("metallb-system")})).await;
    let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pods});
    let controller =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("controller"), "spec": spec});
    person.create("/apis/apps/v1/namespaces/metallb-system/deployments", &controller).await;
}

/// Holds that castle leaves somebody's MetalLB alone and says whose it is.
fn left_alone(labels: &Value, annotations: &Value, owner: &str) {
    day(&only(&["networking"]), async |keep, person| {
        install(person, labels, annotations).await;
        keep.scribe.take();
        let spec = |keep: &Keep| {
            keep.datacenter().object(BLUE, "deployments.apps", "metallb-system", "controller").unwrap()["spec"].clone()
        };
        let before = spec(keep);
        let said = one(&keep.furnished().await);
        assert!(said.is_guarded && said.class == Class::Final);
        said.is(
            "Namespace metallb-system",
            owner,
            "kubectl get namespace metallb-system --output yaml --show-managed-fields",
        );
        let writes = keep.scribe.take().writes;
        let own = |write: &String| write.contains("/namespaces/kube-system/configmaps/castle-");
        assert!(writes.keys().all(own), "only castle's own inventory: {writes:?}");
        assert_eq!(spec(keep), before);
        person.delete("/api/v1/namespaces/metallb-system").await;
        keep.castle.room.clock.sleep(Duration::from_secs(60)).await;
    });
}

#[test]
fn a_helm_release_that_has_metallb_keeps_it() {
    let labels = json!({"app.kubernetes.io/managed-by": "Helm"});
    let annotations = json!({"meta.helm.sh/release-name": "lb", "meta.helm.sh/release-namespace": "metallb-system"});
    left_alone(&labels, &annotations, "belongs to Helm (release metallb-system/lb)");
}

#[test]
fn a_person_who_has_metallb_keeps_it() {
    left_alone(&json!({}), &json!({}), "belongs to ");
}

#[test]
fn a_person_who_changes_what_castle_installed_is_named_and_may_set_it_back() {
    day(&only(&["networking"]), async |keep, person| {
        done(&keep.furnished().await);
        let path = "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools/castle";
        let addresses = |keep: &Keep| {
            let pool = keep.datacenter().object(BLUE, "ipaddresspools.metallb.io", "metallb-system", "castle");
            pool.unwrap()["spec"]["addresses"].clone()
        };
        let (before, theirs) = (addresses(keep), json!(["10.9.9.0/24"]));
        person.edit(path, &json!({"spec": {"addresses": theirs}})).await;
        let said = one(&keep.furnished().await);
        assert!(said.is_guarded);
        said.is(
            "IPAddressPool metallb-system/castle",
            ".spec.addresses is managed by kubectl-edit",
            "kubectl edit --namespace metallb-system ipaddresspool.metallb.io castle, and set it back; or ",
        );
        assert_eq!(addresses(keep), theirs);
        person.edit(path, &json!({"spec": {"addresses": before}})).await;
        done(&keep.furnished().await);
        // Now both have said the same.
        let again = keep.furnished().await;
        done(&again);
        assert_eq!(again.effects(), 0);
    });
}

#[test]
fn a_webhook_that_is_dead_while_the_pool_changes() {
    let file = only(&["networking"]);
    day(&file, async |keep, _| {
        done(&keep.furnished().await);
        let pool = |keep: &Keep| {
            keep.datacenter().object(BLUE, "ipaddresspools.metallb.io", "metallb-system", "castle").unwrap()["spec"]["addresses"].clone()
        };
        keep.datacenter().fail_component(BLUE, Component::MetalLb, ComponentFault::DeadWebhook, true);
        keep.castle.room.clock.sleep(Duration::from_secs(5)).await;
        keep.rewrite(&file.replace("10.0.200.20", "10.0.200.30"));
        let report = keep.furnished().await;
        let said: Vec<Said> = faults(&report).into_iter().map(Said::of).map(Said::may_pass).collect();
        let next = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";
        assert_eq!(said.len(), 2, "one for each kind that it judges");
        said[0].is("IPAddressPool metallb-system/castle", "connect: connection refused", next);
        said[1].is("L2Advertisement metallb-system/castle", "connect: connection refused", next);
        assert_eq!(pool(keep), json!(["10.0.200.1-10.0.200.20"]));
        keep.datacenter().fail_component(BLUE, Component::MetalLb, ComponentFault::DeadWebhook, false);
        keep.castle.room.clock.sleep(Duration::from_secs(5)).await;
        done(&keep.furnished().await);
        assert_eq!(pool(keep), json!(["10.0.200.1-10.0.200.30"]));
    });
}

#[test]
fn a_configuration_that_metallb_cannot_use() {
    day(&only(&["networking"]), async |keep, _| {
        keep.datacenter().fail_component(BLUE, Component::MetalLb, ComponentFault::InvalidConfiguration, true);
        let said = one(&keep.furnished().await).may_pass();
        said.is(
            "ConfigurationState metallb-system/controller",
            "is Invalid: failed to parse configuration",
            "kubectl describe --namespace metallb-system configurationstate.metallb.io controller",
        );
        keep.datacenter().fail_component(BLUE, Component::MetalLb, ComponentFault::InvalidConfiguration, false);
    });
}

#[test]
fn a_longhorn_without_a_disk() {
    day(&only(&["storage"]), async |keep, _| {
        keep.datacenter().fail_component(BLUE, Component::Longhorn, ComponentFault::NoUsableDisk, true);
        let said = one(&keep.furnished().await).may_pass();
        said.is(
            "Node longhorn-system/blue-worker-1",
            "Ready is False (NoDiskInfo)",
            "kubectl describe --namespace longhorn-system node.longhorn.io blue-worker-1",
        );
        keep.datacenter().fail_component(BLUE, Component::Longhorn, ComponentFault::NoUsableDisk, false);
    });
}

/// Lets something happen while `up` is under way.
async fn meanwhile(keep: &Keep, seconds: u64, happens: impl FnOnce(&Keep)) -> castle_engine::Report {
    let event = async {
        keep.castle.room.clock.sleep(Duration::from_secs(seconds)).await;
        happens(keep);
    };
    tokio::join!(keep.furnished(), event).0
}

fn machine(keep: &Keep, name: &str) -> u32 {
    keep.castle.room.nodes.iter().find(|node| node.name.value == name).unwrap().vmid.0
}

#[test]
fn a_worker_that_is_lost_meanwhile() {
    day(&only(&["storage", "networking"]), async |keep, _| {
        let worker = machine(keep, "blue-worker-1");
        let report = meanwhile(keep, 20, |keep| keep.datacenter().switch(worker, false)).await;
        let failed: Vec<String> = faults(&report).iter().map(ToString::to_string).collect();
        assert!(!failed.is_empty() && failed.iter().all(|fault| fault.contains("waited")), "{failed:#?}");
        keep.datacenter().switch(worker, true);
        keep.castle.room.clock.sleep(Duration::from_secs(60)).await;
    });
}

#[test]
fn an_api_server_that_restarts_meanwhile() {
    for seconds in [1, 20, 60] {
        day(&only(&["networking", "engine", "gitops"]), async |keep, _| {
            let control_plane = machine(keep, "blue-cp-1");
            let report = meanwhile(keep, seconds, |keep| assert!(keep.datacenter().restart_node(control_plane))).await;
            done(&report);
        });
    }
}

#[test]
fn what_a_person_deletes_or_changes_is_repaired() {
    day(&only(&["networking", "engine", "gitops"]), async |keep, person| {
        done(&keep.furnished().await);
        let pool = "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools/castle";
        let vars = "/api/v1/namespaces/flux-system/configmaps/cluster-vars";
        let controller = "/apis/apps/v1/namespaces/metallb-system/deployments/controller";
        person.delete(pool).await;
        person.delete(controller).await;
        person.edit(vars, &json!({"data": {"castle_name": null}})).await;
        keep.scribe.take();
        let repaired = keep.furnished().await;
        done(&repaired);
        let noted = keep.scribe.take();
        let written: Vec<&str> = noted.writes.keys().map(String::as_str).collect();
        assert_eq!(written, [vars, controller, pool].map(|path| format!("PATCH {path}")), "{:?}", noted.broken());
        assert_eq!(repaired.effects(), 3);
    });
}
