//! A secret that travels from step to step: nothing that the engine tells, notes or reports holds it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use castle_engine::{
    Alone, CastleId, Change, Decision, Fault, GraphBuilder, Impact, Journal, Layer, Operation, Place, Step, StepId,
    Tools, Wanted, run,
};
use castle_seams::{BoxFuture, Disk};
use castle_secrets::Secret;
use castle_testbed::{Chance, ModelDisk, Pulse, Trace, in_virtual_time};

const PLANTED: &str = "planted-0123456789";

/// Mints a secret.
struct Mint;

impl Step for Mint {
    type Needs = ();
    type Observed = ();
    type Action = ();
    type Output = Secret;

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn decide(&self, (): &(), (): &()) -> Decision {
        Decision::Nothing
    }

    fn act<'a>(&'a self, (): &'a (), (): &'a (), (): &'a (), _: &'a Operation) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn output(&self, (): &(), (): &()) -> Secret {
        Secret::from(PLANTED.to_owned())
    }
}

/// Puts a secret where it belongs, and says that it did so, not what it was.
struct Put(Arc<Mutex<Option<String>>>);

impl Step for Put {
    type Needs = (Arc<Secret>,);
    type Observed = bool;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(self.0.lock().unwrap().is_some())))
    }

    fn decide(&self, (secret,): &Self::Needs, is_put: &bool) -> Decision {
        let change = Change::new("put", Impact::Create).differing("password", None, Some(format!("{secret:?}")));
        if *is_put { Decision::Nothing } else { Decision::Act((), change) }
    }

    fn act<'a>(
        &'a self,
        (secret,): &'a Self::Needs,
        _: &'a bool,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        *self.0.lock().unwrap() = Some(secret.expose().to_owned());
        Box::pin(std::future::ready(Ok(())))
    }

    fn output(&self, _: &Self::Needs, _: &bool) {}
}

#[test]
fn it_arrives_and_is_told_nowhere() {
    in_virtual_time(async |clock| {
        let place = Arc::new(Mutex::new(None));
        let mut builder = GraphBuilder::new();
        let id = |kind: &str| StepId::new(&Layer::new("secrets"), kind, "x");
        let secret = builder.step(id("mint"), Place::default(), (), Mint);
        builder.step(id("put"), Place::default(), (secret,), Put(place.clone()));
        let castle = CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 };
        let disk = ModelDisk::new(&Pulse::new());
        let doors: Arc<dyn Disk> = Arc::new(disk.clone());
        let journal = Mutex::new(Journal::open(&doors, Path::new("/journal"), &castle).unwrap().0);
        let (chance, trace) = (Chance::new(1), Trace::new());
        let tools = Tools {
            clock,
            entropy: &chance,
            fence: &Alone { epoch: 1 },
            listener: &trace,
            signals: None,
            journal: Some(&journal),
        };
        let graph = builder.build().unwrap();
        let report = run(&graph, tools, &Wanted::all(castle)).await;
        assert!(report.is_done() && place.lock().unwrap().as_deref() == Some(PLANTED));
        let events = serde_json::to_string(&trace.events()).unwrap();
        let written: String =
            disk.contents().values().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        assert!(events.contains("put") && written.contains("put"), "both tell of the step");
        for told in [events, written, format!("{report:?} {graph:?}")] {
            assert!(!told.contains(PLANTED), "{told}");
        }
    });
}
