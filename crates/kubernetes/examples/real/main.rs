//! Castle's client and steps on a real control plane: `real ETCD FOLDER_OF_KUBERNETES MIRROR`.
//!
//! Prints what was held, one line each, and how many there were.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a judge that stands outside, and says so and stops when it cannot go on"
)]

#[allow(dead_code, reason = "shared with the conformance suite, which uses more of it")]
#[path = "../../../datacenter/tests/conformance/real.rs"]
mod real;

mod handover;
mod suite;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use castle_components::adapt;
use castle_components::pins::pin;
use castle_components::{Fit, standin};
use castle_engine::{
    Alone, CastleId, Deaf, Fault, Gate, GraphBuilder, Handle, Journal, Layer, Outcome, Place, Report, StepId, Tools,
    Verdict, Wanted, run,
};
use castle_kubernetes::client::{Access, Api, Scope};
use castle_kubernetes::model::{Key, Kind, Mark, Object, manifest, owners};
use castle_kubernetes::steps::{Apply, Expect, Ready, install, rivals, survey};
use castle_seams::{BoxFuture, Disk, SystemClock, SystemEntropy, TcpDial};
use castle_secrets::Secret;
use castle_spec::ComponentName;
use castle_testbed::{ModelDisk, Pulse};
use serde_json::{Value, json};

use crate::real::{Programs, Real};
use crate::suite::server::Clients;

/// A castle of some size, and one that is as small as can be.
const FITS: [Fit; 2] = [
    Fit {
        replicas: 2,
        has_data_disks: true,
        is_without_workers: false,
        is_small: false,
        has_image_automation: false,
        has_source_watcher: false,
    },
    Fit {
        replicas: 1,
        has_data_disks: false,
        is_without_workers: true,
        is_small: true,
        has_image_automation: false,
        has_source_watcher: false,
    },
];

/// A real control plane, and castle's way to it.
struct Ground {
    real: Real,
    clients: Clients,
    access: Access,
    api: Api,
    held: Mutex<usize>,
    begun: Instant,
}

/// Gives a client to those who need one.
struct Reach(Access);

impl Gate for Reach {
    type Needs = ();
    type Output = Api;

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<Api>, Fault>> {
        Box::pin(async move { Ok(Verdict::Open(connect(&self.0))) })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(1)
    }
}

fn connect(access: &Access) -> Api {
    let dial = Arc::new(TcpDial { timeout: Duration::from_secs(5) });
    Api::new(access, dial, Arc::new(SystemClock::new())).unwrap()
}

fn id(name: &str) -> StepId {
    StepId::new(&Layer::new("storage"), "test", name)
}

fn mark(component: &str) -> Mark {
    Mark::new("blue", "storage", component)
}

fn object(value: Value) -> Object {
    Object::new(value).unwrap()
}

fn config(name: &str, value: &str) -> Object {
    object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": value}}),
    )
}

impl Ground {
    async fn new(programs: &Programs) -> Self {
        let real = Real::start("real", programs, false).await;
        let access = Access {
            address: real.server.url.clone(),
            authority: real.server.authority.clone(),
            certificate: real.server.admin.certificate.clone(),
            key: Secret::from(real.server.admin.key.clone()),
            is_plain: false,
        };
        let (clients, api) = (Clients::new(&real.server), connect(&access));
        Self { real, clients, access, api, held: Mutex::new(0), begun: Instant::now() }
    }

    fn hold(&self, what: &str, holds: bool) {
        assert!(holds, "does not hold: {what}");
        *self.held.lock().unwrap() += 1;
        println!("ok  {what} ({:.1} s)", self.begun.elapsed().as_secs_f64());
    }

    async fn run(&self, build: impl FnOnce(&mut GraphBuilder, &Handle<Api>)) -> Report {
        let mut graph = GraphBuilder::new();
        let api = graph.gate(id("api"), Place::default(), (), Reach(self.access.clone()));
        build(&mut graph, &api);
        let graph = graph.build().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let castle = CastleId { name: "blue".into(), lineage: "0123456789abcdef".into(), generation: 1 };
        let journal = Mutex::new(Journal::open(&disk, Path::new("/journal"), &castle).unwrap().0);
        let clock = SystemClock::new();
        let fence = Alone { epoch: 1 };
        let tools = Tools {
            clock: &clock,
            entropy: &SystemEntropy,
            fence: &fence,
            listener: &Deaf,
            signals: None,
            journal: Some(&journal),
        };
        run(&graph, tools, &Wanted::all(castle)).await
    }

    /// A component, as a layer has it.
    async fn converge(&self, component: &str, objects: &[Object]) -> Report {
        self.run(|graph, api| drop(install(graph, api, objects, &mark(component)))).await
    }

    async fn expect(&self, expects: Vec<Expect>, within: Duration) -> Report {
        self.run(|graph, api| {
            let nothing =
                graph.step(id("nothing"), Place::default(), (api.clone(),), Apply::new(Vec::new(), &mark("x")));
            graph.gate(id("ready"), Place::default(), (api.clone(), nothing), Ready::new(expects, within));
        })
        .await
    }

    /// Applies something as somebody else, by force.
    async fn as_other(&self, manager: &str, path: &str, body: &Value) -> u16 {
        let path = format!("{path}?fieldManager={manager}&force=true");
        let headers = [("content-type".to_owned(), "application/apply-patch+yaml".to_owned())];
        self.clients.ask("admin", "PATCH", &path, &headers, &body.to_string()).await.unwrap().status
    }

    /// The version of each of these objects.
    async fn versions(&self, objects: &[Object]) -> BTreeMap<Key, String> {
        let mut versions = BTreeMap::new();
        for object in objects {
            let live = self.api.get(&object.kind(), object.namespace(), object.name()).await.unwrap().unwrap();
            versions.insert(object.key(), live.text("/metadata/resourceVersion").to_owned());
        }
        versions
    }
}

fn is_well(report: &Report) -> bool {
    let undone: Vec<_> = report.outcomes.iter().filter(|(_, outcome)| !outcome.is_done()).collect();
    if !undone.is_empty() {
        println!("{undone:#?}");
    }
    undone.is_empty()
}

fn fault(report: &Report) -> Fault {
    let failed = report.outcomes.iter().find_map(|(_, outcome)| match outcome {
        Outcome::Failed { fault } => Some(fault.clone()),
        _ => None,
    });
    failed.unwrap_or_else(|| panic!("nothing failed: {report:?}"))
}

/// Castle's own small manifests, adapted to both castles, and gone again.
async fn stand_ins(ground: &Ground) {
    for name in ComponentName::ALL {
        for fit in FITS {
            let objects = adapt(name, &standin::objects(name), &fit).unwrap();
            let report = ground.converge(name.word(), &objects).await;
            let size = if fit.is_small { "small" } else { "large" };
            ground.hold(&format!("the stand-in of {name} is applied in a {size} castle"), is_well(&report));
        }
    }
    for name in ComponentName::ALL {
        warm_up(ground, &standin::objects(name)).await;
        let report = ground.converge(name.word(), &[]).await;
        ground.hold(&format!("the stand-in of {name} is pruned to the last object"), is_well(&report));
    }
}

/// Asks for objects of each kind that is defined, as its controller would. A definition that is removed within moments of being made,
/// before anybody has asked, hangs for minutes: the server removes what is stored of it, and has not yet begun to store.
async fn warm_up(ground: &Ground, objects: &[Object]) {
    for object in objects.iter().filter(|object| object.text("/kind") == "CustomResourceDefinition") {
        let served = object.list("/spec/versions").iter().find(|version| version["served"] == true);
        let version = served.and_then(|version| version["name"].as_str()).expect("a definition serves a version");
        let kind = Kind::new(&format!("{}/{version}", object.text("/spec/group")), object.text("/spec/names/kind"));
        for _ in 0..50 {
            if ground.api.list(&kind, &Scope::default()).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Upstream's manifests, adapted to a castle: applied once, left alone, and adapted to another castle.
async fn components(ground: &Ground, mirror: &Path) {
    let mut moving = Vec::new();
    for name in ComponentName::ALL {
        let component = name.word();
        let file = pin(name, &name.newest()).unwrap().file;
        let text = std::fs::read_to_string(mirror.join(file)).unwrap();
        let [objects, small] = FITS.map(|fit| adapt(name, &manifest(&text).unwrap(), &fit).unwrap());
        let begun = Instant::now();
        let first = ground.converge(component, &objects).await;
        let took = begun.elapsed();
        ground.hold(&format!("{component} is applied in stages"), is_well(&first));
        let before = ground.versions(&objects).await;
        let begun = Instant::now();
        let second = ground.converge(component, &objects).await;
        println!(
            "    {} objects: {:.2} s, then {:.2} s",
            objects.len(),
            took.as_secs_f64(),
            begun.elapsed().as_secs_f64()
        );
        ground.hold(&format!("{component} a second time is as wanted"), is_well(&second));
        ground.hold(&format!("{component} a second time changes nothing"), ground.versions(&objects).await == before);
        let report = ground.converge(component, &small).await;
        ground.hold(&format!("{component} is made fit for a small castle"), is_well(&report));
        if name == ComponentName::Metallb {
            moving = small;
        }
    }
    // By now Flux is there, too.
    handover::there_and_back(ground, &moving).await;
}

async fn others(ground: &Ground) {
    ground.hold("an object is applied", is_well(&ground.converge("x", &[config("a", "1")]).await));
    let path = "/api/v1/namespaces/default/configmaps/a";
    let theirs =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    assert_eq!(ground.as_other("kubectl", path, &theirs(json!({"b": "theirs"}))).await, 200);
    ground.hold("what others add stays", is_well(&ground.converge("x", &[config("a", "2")]).await));
    let live = ground.api.get(&Kind::new("v1", "ConfigMap"), "default", "a").await.unwrap().unwrap();
    ground.hold("and what castle wants is there", *live.at("/data") == json!({"a": "2", "b": "theirs"}));
    assert_eq!(ground.as_other("helm", path, &theirs(json!({"a": "9"}))).await, 200);
    let refused = fault(&ground.converge("x", &[config("a", "2")]).await);
    let told = "ConfigMap default/a: .data.a is managed by helm: \"9\", and castle wants \"2\"";
    ground.hold("a rival is named with its field", refused.guarded && refused.to_string() == told);
    let found = rivals(&ground.api, &mark("x").on(config("a", "2"))).await.unwrap();
    ground.hold("a dry run names the rival", found.len() == 1 && found[0].manager == "helm");
    ground
        .hold("an object is applied that a person changes", is_well(&ground.converge("p", &[config("p", "1")]).await));
    let path = "/api/v1/namespaces/default/configmaps/p";
    let said =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": {"a": value}});
    assert_eq!(ground.as_other("kubectl", path, &said("9")).await, 200);
    let refused = fault(&ground.converge("p", &[config("p", "1")]).await);
    ground.hold("the person is named with a way out", refused.guarded && refused.next.contains("and set it back; or "));
    assert_eq!(ground.as_other("kubectl", path, &said("1")).await, 200);
    let again = [ground.converge("p", &[config("p", "1")]).await, ground.converge("p", &[config("p", "1")]).await];
    ground.hold("set back it is as wanted", again.iter().all(is_well));
    let live = ground.api.get(&Kind::new("v1", "ConfigMap"), "default", "p").await.unwrap().unwrap();
    let both = owners(&live, &BTreeMap::new());
    ground.hold("and both having said the same is no quarrel", both.claims.len() == 2 && !both.is_contested());
    assert_eq!(
        ground.as_other("kubectl", "/api/v1/namespaces/default/configmaps/s", config("s", "1").value()).await,
        201
    );
    let refused = fault(&ground.converge("y", &[config("s", "1")]).await);
    ground.hold("what is a person's is not taken", refused.evidence == "belongs to a person (kubectl)");
    let maps = ground.api.served().await.unwrap().called("cm").unwrap().clone();
    let found = survey(&ground.api, &[maps]).await.unwrap();
    let owner =
        |name: &str| found.iter().find(|one| one.key.name == name).and_then(|one| one.owner()).map(ToString::to_string);
    ground.hold("owners are told", owner("s").as_deref() == Some("a person (kubectl)"));
}

async fn refusals(ground: &Ground) {
    let unknown = object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "u", "namespace": "default"}, "dota": {"a": "1"},
    }));
    let refused = fault(&ground.converge("u", &[unknown]).await);
    ground.hold("an unknown field is final", refused.is_final() && refused.evidence.contains(".dota"));
    let refused = fault(&ground.converge("l", &[config("large", &"x".repeat(2 << 20))]).await);
    ground.hold("an object of 2 MB is final", refused.is_final() && refused.subject == "ConfigMap default/large");
    let secret = object(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": {"a": "planted in clear"},
    }));
    let refused = fault(&ground.converge("s", &[secret]).await);
    ground
        .hold("what a Secret holds is in no fault", refused.is_final() && !format!("{refused:?}").contains("planted"));
    let pod = object(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bold", "namespace": "default"},
        "spec": {"hostNetwork": true, "containers": [{"name": "bold", "image": "bold:1"}]},
    }));
    let refused = fault(&ground.converge("p", &[pod]).await);
    ground.hold(
        "what PodSecurity forbids is final",
        refused.is_final() && refused.evidence.contains("violates PodSecurity"),
    );
    let mut access = ground.access.clone();
    access.certificate.clone_from(&ground.real.server.stranger.certificate);
    access.key = Secret::from(ground.real.server.stranger.key.clone());
    let stranger = connect(&access);
    let denied = stranger.list(&Kind::new("v1", "Secret"), &Scope::default()).await.unwrap_err();
    ground.hold("whoever may not is told so", denied.fault(&config("a", "").key()).is_final());
}

/// A webhook of MetalLB's configuration that no Pod serves.
async fn webhooks(ground: &Ground) {
    let pool = object(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": {"name": "first", "namespace": "metallb-system"},
        "spec": {"addresses": ["192.0.2.1-192.0.2.9"]},
    }));
    let expects = vec![Expect::Accepted(Box::new(mark("metallb").on(pool)))];
    let closed = fault(&ground.expect(expects, Duration::from_secs(3)).await);
    let words = "no endpoints available for service \"metallb-webhook-service\"";
    ground.hold("a webhook that nobody serves closes the gate", closed.evidence.contains(words));
    let injected = Expect::Injected {
        kind: "ValidatingWebhookConfiguration".to_owned(),
        name: "metallb-webhook-configuration".to_owned(),
        authority: None,
    };
    let closed = fault(&ground.expect(vec![injected], Duration::from_secs(3)).await);
    ground.hold("so does one without an authority", closed.evidence.contains("has no caBundle yet"));
}

async fn watches(ground: &Ground) {
    let (kind, scope) = (Kind::new("v1", "ConfigMap"), Scope::within("default"));
    let listed = ground.api.list(&kind, &scope).await.unwrap();
    let mut watch = ground.api.watch(&kind, &scope, &listed.version).await.unwrap();
    assert_eq!(
        ground.as_other("kubectl", "/api/v1/namespaces/default/configmaps/w", config("w", "1").value()).await,
        201
    );
    let event = format!("{:?}", watch.next().await.unwrap());
    ground.hold("a watch tells what happens", event.contains("ConfigMap default/w"));
}

async fn ends(ground: &Ground) {
    let definitions = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let defined = ground.api.list(&definitions, &Scope::default()).await.unwrap().objects;
    warm_up(ground, &defined).await;
    let kept = fault(&ground.converge("flux", &[]).await);
    let told = "Kustomization flux-system/apps would go with it, and belongs to Flux";
    ground.hold("a definition of somebody's objects is not removed", kept.guarded && kept.evidence == told);
    let gone = ground.clients.ask("admin", "DELETE", handover::KUSTOMIZATION, &[], "").await.unwrap();
    assert_eq!(gone.status, 200);
    for component in ComponentName::ALL.into_iter().rev() {
        let report = ground.converge(component.word(), &[]).await;
        ground.hold(&format!("{component} is pruned to the last object"), is_well(&report));
    }
    let left = ground.api.list(&definitions, &Scope::default()).await.unwrap();
    ground.hold("no definition is left", left.objects.is_empty());
}

fn main() {
    let arguments: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    let [etcd, kubernetes, mirror] = arguments.as_slice() else { panic!("real ETCD FOLDER_OF_KUBERNETES MIRROR") };
    let programs = Programs { etcd: etcd.clone(), kubernetes: kubernetes.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ground = Ground::new(&programs).await;
        stand_ins(&ground).await;
        components(&ground, mirror).await;
        others(&ground).await;
        refusals(&ground).await;
        webhooks(&ground).await;
        watches(&ground).await;
        ends(&ground).await;
        println!("{} checks hold", ground.held.lock().unwrap());
    });
}
