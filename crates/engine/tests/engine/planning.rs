//! Plans: each step is asked what it would do, on what those before it are expected to give; nothing is changed.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_engine::{
    Alone, CastleId, Change, Chosen, Class, Deaf, Decision, Fault, Graph, GraphBuilder, Impact, Journal, Layer,
    Operation, Outcome, Place, Report, Step, StepId, Tools, Wanted, run,
};
use castle_seams::{BoxFuture, Clock, Disk};
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};

/// Wants to do something, and may know what that will give.
struct Wish {
    knows: bool,
    acted: Arc<Mutex<Vec<String>>>,
}

impl Step for Wish {
    type Needs = (Vec<Arc<String>>,);
    type Observed = ();
    type Action = ();
    type Output = String;

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn decide(&self, (before,): &Self::Needs, (): &()) -> Decision {
        let seen = before.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        Decision::Act((), Change::new("make", Impact::Create).differing("on", None, Some(seen)))
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        (): &'a (),
        (): &'a (),
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        self.acted.lock().unwrap().push(operation.id.to_string());
        Box::pin(std::future::ready(Ok(())))
    }

    fn expect(&self, _: &Self::Needs, (): &()) -> Option<String> {
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

fn journal() -> Mutex<Journal> {
    let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
    Mutex::new(Journal::open(&disk, Path::new("/journal"), &castle()).unwrap().0)
}

async fn plan(graph: &Graph, clock: &VirtualClock, journal: Option<&Mutex<Journal>>, layer: Option<&str>) -> Report {
    let chance = Chance::new(1);
    let tools = Tools { clock, entropy: &chance, fence: &Alone { epoch: 1 }, listener: &Deaf, signals: None, journal };
    run(graph, tools, &Wanted { layers: Chosen::of(layer.map(Layer::new)), ..Wanted::all(castle()) }).await
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
        let journal = journal();
        let report = plan(&graph(true, &acted), clock, Some(&journal), Some("above")).await;
        assert!(
            matches!(report.outcomes[0].1, Outcome::Planned { .. }),
            "the other layer is only looked at: {report:?}"
        );
        assert!(matches!(report.outcomes[1].1, Outcome::Skipped { .. }), "{report:?}");
        assert!(acted.lock().unwrap().is_empty());
    });
}

/// Has nothing to do once it can be looked at, or fails after a while; what it will do is no surprise.
struct Foreseen {
    fails: Option<(VirtualClock, Duration)>,
}

impl Step for Foreseen {
    type Needs = (Vec<Arc<String>>,);
    type Observed = ();
    type Action = ();
    type Output = String;

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async {
            let Some((clock, after)) = &self.fails else { return Ok(()) };
            clock.sleep(*after).await;
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
        (): &'a (),
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
                needs.push(builder.step(
                    id("failing"),
                    Place::default(),
                    (Vec::new(),),
                    Foreseen { fails: Some((*clock, after)) },
                ));
            }
            let first = builder.step(id("first"), Place::default(), (needs,), Foreseen { fails: None });
            builder.step(id("second"), Place::default(), (vec![first],), Foreseen { fails: None });
            let report = plan(&builder.build().unwrap(), clock, None, None).await;
            ["first", "second"].map(|kind| matches!(report.outcome(&id(kind)), Some(Outcome::Planned { .. })))
        })
    };
    assert_eq!(above(None), [true, true]);
    assert_eq!(above(Some(Duration::ZERO)), [false, false], "a failure before");
    assert_eq!(above(Some(Duration::from_secs(9))), [false, false], "a failure after");
}

#[test]
fn order_alone_is_no_reason_not_to_look_for_whoever_plans() {
    let looked = |can_be_seen: bool, layer: Option<&str>| {
        in_virtual_time(async |clock| {
            let id = |kind: &str| StepId::new(&Layer::new(if kind == "planned" { "x" } else { "y" }), kind, "x");
            let mut builder = GraphBuilder::new();
            let wish = Wish { knows: false, acted: Arc::default() };
            builder.step(id("planned"), Place::default(), (Vec::new(),), wish);
            let fails = (!can_be_seen).then_some((*clock, Duration::ZERO));
            builder.step(id("later"), Place::default(), (Vec::new(),), Foreseen { fails });
            builder.after(id("later"), id("planned"));
            let journal = layer.map(|_| journal());
            let report = plan(&builder.build().unwrap(), clock, journal.as_ref(), layer).await;
            report.outcome(&id("later")).unwrap().clone()
        })
    };
    let foreseen = Outcome::Planned { change: Change::new("make", Impact::Create) };
    assert_eq!(looked(true, None), Outcome::Done { effects: 0 }, "it is there");
    assert_eq!(looked(false, None), foreseen, "it was too early");
    let skipped = Outcome::Skipped { because: StepId::new(&Layer::new("x"), "planned", "x") };
    assert_eq!(looked(true, Some("y")), skipped, "whoever changes something keeps the order");
}
