//! Plans: each step is asked what it would do, on what those before it are expected to give; nothing is changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_engine::{
    Alone, CastleId, Change, Class, Deaf, Decision, Fault, Graph, GraphBuilder, Impact, Journal, Layer, Operation,
    Outcome, Place, Report, Step, StepId, Tools, Wanted, run,
};
use castle_seams::{BoxFuture, Clock, Disk};
use castle_testkit::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};

/// Wants to do something, and may know what that will give.
struct Wish {
    knows: bool,
    acted: Arc<Mutex<Vec<String>>>,
}

impl Step for Wish {
    type Needs = (Vec<Arc<String>>,);
    type Observed = ();
    type Output = String;

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn decide(&self, (before,): &Self::Needs, (): &()) -> Decision {
        let seen = before.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        Decision::Change(Change::new("make", Impact::Create).differing("on", None, Some(seen)))
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        (): &'a (),
        _: &'a Change,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        self.acted.lock().unwrap().push(operation.id.to_string());
        Box::pin(std::future::ready(Ok(())))
    }

    fn expect(&self, _: &Self::Needs, (): &(), _: &Change) -> Option<String> {
        self.knows.then(|| "expected".to_owned())
    }

    fn output(&self, _: &Self::Needs, (): &()) -> String {
        "made".to_owned()
    }
}

fn castle() -> CastleId {
    CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 }
}

/// Two steps in different layers, the second on what the first gives.
fn graph(knows: bool, acted: &Arc<Mutex<Vec<String>>>) -> Graph {
    let mut builder = GraphBuilder::new();
    let id = |layer: &str| StepId::new(&Layer::new(layer), "wish", "x");
    let wish = |knows| Wish { knows, acted: acted.clone() };
    let first = builder.step(id("below"), Place::default(), (Vec::new(),), wish(knows));
    builder.step(id("above"), Place::default(), (vec![first],), wish(true));
    builder.build().unwrap()
}

async fn plan(graph: &Graph, clock: &VirtualClock, journal: Option<&Mutex<Journal>>, layer: Option<&str>) -> Report {
    let chance = Chance::new(1);
    let tools = Tools { clock, entropy: &chance, fence: &Alone { epoch: 1 }, listener: &Deaf, signals: None, journal };
    run(graph, tools, &Wanted { layer: layer.map(Layer::new), ..Wanted::all(castle()) }).await
}

#[test]
fn a_plan_goes_on_from_what_is_expected() {
    in_virtual_time(async |clock| {
        let acted = Arc::default();
        let report = plan(&graph(true, &acted), clock, None, None).await;
        let [(_, Outcome::Planned { .. }), (_, Outcome::Planned { change })] = report.outcomes.as_slice() else {
            panic!("{report:?}")
        };
        assert_eq!(change.differences[0].wanted.as_deref(), Some("expected"));
        assert!(acted.lock().unwrap().is_empty());
    });
}

#[test]
fn where_nothing_is_known_beforehand_the_plan_says_so() {
    in_virtual_time(async |clock| {
        let report = plan(&graph(false, &Arc::default()), clock, None, None).await;
        assert!(matches!(report.outcomes[1].1, Outcome::Skipped { .. }), "{report:?}");
    });
}

#[test]
fn a_run_that_changes_things_never_builds_on_what_is_not_there() {
    in_virtual_time(async |clock| {
        let acted = Arc::default();
        let doors: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let journal = Mutex::new(Journal::open(&doors, std::path::Path::new("/journal"), &castle()).unwrap().0);
        let report = plan(&graph(true, &acted), clock, Some(&journal), Some("above")).await;
        assert!(
            matches!(report.outcomes[0].1, Outcome::Planned { .. }),
            "the other layer is only looked at: {report:?}"
        );
        assert!(matches!(report.outcomes[1].1, Outcome::Skipped { .. }), "{report:?}");
        assert!(acted.lock().unwrap().is_empty());
    });
}

/// Cannot be looked at before others have come to be, but is no surprise.
struct Foreseen;

impl Step for Foreseen {
    type Needs = (Vec<Arc<String>>,);
    type Observed = ();
    type Output = String;

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn decide(&self, _: &Self::Needs, (): &()) -> Decision {
        Decision::Nothing
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        (): &'a (),
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn foresee(&self) -> Option<Change> {
        Some(Change::new("make", Impact::Create))
    }

    fn output(&self, _: &Self::Needs, (): &()) -> String {
        "made".to_owned()
    }
}

/// Fails after a while.
struct Failing(VirtualClock, Duration);

impl Step for Failing {
    type Needs = (Vec<Arc<String>>,);
    type Observed = ();
    type Output = String;

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async {
            self.0.sleep(self.1).await;
            Err(Fault::new(Class::Final, "x", "is broken"))
        })
    }

    fn decide(&self, _: &Self::Needs, (): &()) -> Decision {
        Decision::Nothing
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        (): &'a (),
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn output(&self, _: &Self::Needs, (): &()) -> String {
        String::new()
    }
}

#[test]
fn what_stands_on_a_plan_is_foreseen_and_on_a_failure_is_not() {
    let above = |fails_after: Option<Duration>| {
        in_virtual_time(async |clock| {
            let mut builder = GraphBuilder::new();
            let id = |kind: &str| StepId::new(&Layer::new("x"), kind, "x");
            let mut needs = vec![builder.step(
                id("planned"),
                Place::default(),
                (Vec::new(),),
                Wish { knows: false, acted: Arc::default() },
            )];
            if let Some(after) = fails_after {
                needs.push(builder.step(id("failing"), Place::default(), (Vec::new(),), Failing(*clock, after)));
            }
            let first = builder.step(id("first"), Place::default(), (needs,), Foreseen);
            builder.step(id("second"), Place::default(), (vec![first],), Foreseen);
            let report = plan(&builder.build().unwrap(), clock, None, None).await;
            ["first", "second"].map(|kind| matches!(report.outcome(&id(kind)), Some(Outcome::Planned { .. })))
        })
    };
    assert_eq!(above(None), [true, true]);
    assert_eq!(above(Some(Duration::ZERO)), [false, false], "a failure before");
    assert_eq!(above(Some(Duration::from_secs(9))), [false, false], "a failure after");
}
