//! A cluster that is up, castle's client of it, and graphs run on it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_datacenter::{Asked, CERTIFICATE_HEADER, Called, Datacenter, Fate, Reply, Witness};
use castle_engine::{
    Alone, CastleId, Deaf, Fault, Gate, Graph, GraphBuilder, Handle, Journal, Layer, Outcome, Place, Report, StepId,
    Tools, Verdict, Wanted, run,
};
use castle_kubernetes::client::{Access, Api};
use castle_kubernetes::model::{Kind, Mark, Object};
use castle_kubernetes::steps::{Apply, Expect, Present, Ready};
use castle_seams::{BoxFuture, Clock, Dial, Disk, Target};
use castle_secrets::Secret;
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::castle;
use crate::wire::Nodes;

/// Everything that was asked of the API (`TRY` before what was only tried), and what is to become of some of it.
#[derive(Default)]
pub(crate) struct Seen {
    asked: Mutex<Vec<String>>,
    fates: Mutex<Vec<(String, Fate)>>,
}

impl Witness for Seen {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        let tried = if called.is_change || called.method.starts_with("GET") { "" } else { "TRY " };
        self.asked.lock().unwrap().push(format!("{tried}{}", called.method));
        let mut fates = self.fates.lock().unwrap();
        match fates.iter().position(|(word, _)| called.method.contains(word)) {
            Some(index) => fates.remove(index).1,
            None => Fate::Handled,
        }
    }
}

impl Seen {
    /// What was asked since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The next call whose method contains this ends so.
    pub(crate) fn next(&self, method: &str, fate: Fate) {
        self.fates.lock().unwrap().push((method.to_owned(), fate));
    }
}

pub(crate) struct Room {
    nodes: Nodes,
    pub(crate) clock: VirtualClock,
    pub(crate) api: Arc<Api>,
    /// How castle reaches the cluster.
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) seen: Arc<Seen>,
}

/// Gives a client of an API to those who need one.
pub(crate) struct Reach {
    access: Access,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
}

impl Reach {
    pub(crate) fn new(access: Access, dial: Arc<dyn Dial>, clock: VirtualClock) -> Self {
        Self { access, dial, clock: Arc::new(clock) }
    }
}

impl Gate for Reach {
    type Needs = ();
    type Output = Api;

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<Api>, Fault>> {
        let api = Api::new(&self.access, self.dial.clone(), self.clock.clone());
        Box::pin(async move { Ok(Verdict::Open(api.unwrap())) })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(1)
    }
}

pub(crate) fn mark(component: &str) -> Mark {
    Mark::new("blue", "networking", component)
}

pub(crate) fn id(name: &str) -> StepId {
    StepId::new(&Layer::new("networking"), "test", name)
}

pub(crate) fn object(value: Value) -> Object {
    Object::new(value).unwrap()
}

impl Room {
    pub(crate) fn access(&self) -> Access {
        access(&self.nodes)
    }

    pub(crate) fn datacenter(&self) -> &Datacenter {
        self.nodes.datacenter()
    }

    /// A graph that needs the API.
    pub(crate) fn graph(&self, build: impl FnOnce(&mut GraphBuilder, &Handle<Api>)) -> Graph {
        let mut graph = GraphBuilder::new();
        let reach = Reach::new(self.access(), self.dial.clone(), self.clock);
        let api = graph.gate(id("api"), Place::default(), (), reach);
        build(&mut graph, &api);
        graph.build().unwrap()
    }

    /// Runs a graph that needs the API, as a process does that begins.
    pub(crate) async fn run(&self, build: impl FnOnce(&mut GraphBuilder, &Handle<Api>)) -> Report {
        let graph = self.graph(build);
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let castle = CastleId { name: "blue".into(), lineage: "0123456789abcdef".into(), generation: 1 };
        let journal = Mutex::new(Journal::open(&disk, Path::new("/journal"), &castle).unwrap().0);
        let chance = Chance::new(1);
        let tools = Tools {
            clock: &self.clock,
            entropy: &chance,
            fence: &Alone { epoch: 1 },
            listener: &Deaf,
            signals: None,
            journal: Some(&journal),
        };
        run(&graph, tools, &Wanted::all(castle)).await
    }

    /// Applies objects of one stage.
    pub(crate) async fn apply(&self, component: &str, objects: &[Object]) -> Report {
        let objects = objects.to_vec();
        self.run(|graph, api| drop(apply(graph, api, "apply", component, objects))).await
    }

    /// Waits for what is expected.
    pub(crate) async fn expect(&self, expects: Vec<Expect>, within: Duration) -> Report {
        self.run(|graph, api| {
            let present = apply(graph, api, "nothing", "nothing", Vec::new());
            graph.gate(id("ready"), Place::default(), (api.clone(), present), Ready::new(expects, within));
        })
        .await
    }

    /// What is there.
    pub(crate) async fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Object> {
        self.api.get(&Kind::new(api_version, kind), namespace, name).await.unwrap()
    }

    /// Applies something as somebody else, by force.
    pub(crate) async fn as_other(&self, manager: &str, path: &str, body: &Value) -> u16 {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.send("PATCH", &path, "application/apply-patch+yaml", body).await
    }

    /// Changes something as somebody else, in the way people do.
    pub(crate) async fn edited_by(&self, manager: &str, path: &str, body: &Value) -> u16 {
        self.send("PATCH", &format!("{path}?fieldManager={manager}"), "application/merge-patch+json", body).await
    }

    /// Makes something as somebody else, in the way controllers do.
    pub(crate) async fn made_by(&self, manager: &str, collection: &str, body: &Value) -> u16 {
        self.send("POST", &format!("{collection}?fieldManager={manager}"), "application/json", body).await
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> u16 {
        let stream = self.datacenter().dial().dial(&Target::new("10.0.0.1", 6443)).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "10.0.0.1")
            .header("content-type", kind)
            .header(CERTIFICATE_HEADER, self.nodes.castle.kubernetes_admin())
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        sender.send_request(request).await.unwrap().status().as_u16()
    }
}

pub(crate) fn access(nodes: &Nodes) -> Access {
    Access {
        address: "https://10.0.0.1:6443".to_owned(),
        authority: String::new(),
        certificate: nodes.castle.kubernetes_admin(),
        key: Secret::from(String::new()),
        is_plain: true,
    }
}

/// Wants objects of one stage.
pub(crate) fn apply(
    graph: &mut GraphBuilder,
    api: &Handle<Api>,
    name: &str,
    component: &str,
    objects: Vec<Object>,
) -> Handle<Present> {
    graph.step(id(name), Place::default(), (api.clone(),), Apply::new(objects, &mark(component)))
}

/// A cluster of one node, in which nothing takes time.
pub(crate) fn in_room(work: impl AsyncFnOnce(&Room)) {
    in_room_over(|dial| dial, work);
}

/// The same with a worker, on which Pods run.
pub(crate) fn in_hall(work: impl AsyncFnOnce(&Room)) {
    in_room_of(4, |dial| dial, work);
}

/// A cluster of one node, reached in a way of its own.
pub(crate) fn in_room_over(way: impl FnOnce(Arc<dyn Dial>) -> Arc<dyn Dial>, work: impl AsyncFnOnce(&Room)) {
    in_room_of(1, way, work);
}

/// So many nodes, of which the first three are control planes.
fn in_room_of(count: u32, way: impl FnOnce(Arc<dyn Dial>) -> Arc<dyn Dial>, work: impl AsyncFnOnce(&Room)) {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, count).await;
        nodes.bring_up(&castle::Wanted { vip: None, ..castle::Wanted::default() }).await;
        let dial = way(nodes.datacenter().dial());
        let api = Arc::new(Api::new(&access(&nodes), dial.clone(), Arc::new(*clock)).unwrap());
        let seen = Arc::new(Seen::default());
        nodes.datacenter().watch(seen.clone());
        work(&Room { nodes, clock: *clock, api, dial, seen }).await;
    });
}

/// What failed.
pub(crate) fn faults(report: &Report) -> Vec<Fault> {
    let failed = report.outcomes.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Failed { fault } => Some(fault.clone()),
        _ => None,
    });
    failed.collect()
}

#[track_caller]
pub(crate) fn well(report: &Report) {
    let undone: Vec<_> = report.outcomes.iter().filter(|(_, outcome)| !outcome.is_done()).collect();
    assert!(undone.is_empty(), "{undone:#?}");
}

/// The one thing that failed.
#[track_caller]
pub(crate) fn fault(report: &Report) -> Fault {
    let mut faults = faults(report);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    faults.remove(0)
}
