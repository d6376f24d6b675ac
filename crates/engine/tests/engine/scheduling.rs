//! Random graphs in random weather: order, lanes, isolation of failures, effects exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_engine::{
    Alone, CastleId, Chosen, GraphBuilder, GraphError, Journal, Lane, Layer, Outcome, Place, Report, StepId, Tools,
    Wanted, What, run,
};
use castle_seams::Disk;
use castle_testbed::{Call, Chance, ModelDisk, ModelWorld, Pulse, Thing, ThingStep, Trace, Weather, in_virtual_time};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A graph as data.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// For each step: which of the earlier ones it needs, its lane, and its predicted seconds.
    pub(crate) steps: Vec<(BTreeSet<usize>, usize, u64)>,
    /// The widths of the lanes.
    pub(crate) lanes: Vec<usize>,
    /// Steps that will never work.
    pub(crate) broken: BTreeSet<usize>,
    pub(crate) failing: u64,
    pub(crate) seed: u64,
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let steps =
        proptest::collection::vec((proptest::collection::btree_set(0..100usize, 0..4), 0..3usize, 0..60u64), 1..40);
    let broken = proptest::collection::btree_set(0..40usize, 0..3);
    (steps, proptest::collection::vec(1..5usize, 3), broken, 0..300u64, any::<u64>()).prop_map(
        |(steps, lanes, broken, failing, seed)| {
            let earlier = |(index, (needs, lane, seconds)): (usize, (BTreeSet<usize>, usize, u64))| {
                let needs =
                    if index == 0 { BTreeSet::new() } else { needs.into_iter().map(|need| need % index).collect() };
                (needs, lane, seconds)
            };
            Plan { steps: steps.into_iter().enumerate().map(earlier).collect(), lanes, broken, failing, seed }
        },
    )
}

pub(crate) fn id(index: usize) -> StepId {
    StepId::new(&Layer::new(if index.is_multiple_of(2) { "even" } else { "odd" }), "thing", &index.to_string())
}

/// Runs a plan; returns how it ended, what was heard, and what there is.
pub(crate) fn run_plan(plan: &Plan, layer: Option<Layer>, noted: bool) -> (Report, Trace, ModelWorld) {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let weather = Weather { failing: plan.failing, slowest_ms: 5000, lag_ms: 0 };
        let world = ModelWorld::new(&pulse, Arc::new(*clock), plan.seed, weather);
        let mut builder = GraphBuilder::new();
        let mut handles = Vec::new();
        for (index, (needs, lane, seconds)) in plan.steps.iter().enumerate() {
            let needs: Vec<_> = needs.iter().map(|&need| castle_engine::Handle::clone(&handles[need])).collect();
            let lane = Some(Lane::new(&format!("lane {lane}"), plan.lanes[*lane]));
            let place = Place { lane, predicted: Duration::from_secs(*seconds) };
            let thing = Thing { kind: 1, size: 1, firmware: 1, members: u32::try_from(index % 3).unwrap() };
            let name = if plan.broken.contains(&index) { format!("broken {index}") } else { index.to_string() };
            handles.push(builder.step(
                id(index),
                place,
                (needs,),
                ThingStep { world: world.clone(), name, wanted: Some(thing) },
            ));
        }
        world.forbid("broken");
        let graph = builder.build().unwrap();
        let castle = CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 };
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&pulse));
        let journal = Mutex::new(Journal::open(&disk, std::path::Path::new("/journal"), &castle).unwrap().0);
        let (trace, chance) = (Trace::new(), Chance::new(plan.seed));
        let tools = Tools {
            clock,
            entropy: &chance,
            fence: &Alone { epoch: 1 },
            listener: &trace,
            signals: None,
            journal: noted.then_some(&journal),
        };
        let mut wanted = Wanted::all(castle);
        wanted.layers = Chosen::of(layer);
        wanted.retry.attempts = 40;
        let report = run(&graph, tools, &wanted).await;
        (report, trace, world)
    })
}

/// All steps behind the given ones.
fn behind(plan: &Plan, broken: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for (index, (needs, ..)) in plan.steps.iter().enumerate() {
        if needs.iter().any(|need| broken.contains(need) || found.contains(need)) {
            found.insert(index);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    #[test]
    fn order_lanes_isolation_and_exactly_once(plan in plan()) {
        let (report, trace, world) = run_plan(&plan, None, true);
        let broken: BTreeSet<usize> = plan.broken.iter().copied().filter(|&index| index < plan.steps.len()).collect();
        let skipped = behind(&plan, &broken);

        // Isolation: what is broken fails, what needs it is skipped, and all the rest is done.
        for index in 0..plan.steps.len() {
            let outcome = report.outcome(&id(index)).unwrap();
            match (skipped.contains(&index), broken.contains(&index)) {
                (true, _) => prop_assert!(matches!(outcome, Outcome::Skipped { .. }), "{index}: {outcome:?}"),
                (false, true) => prop_assert!(matches!(outcome, Outcome::Failed { .. }), "{index}: {outcome:?}"),
                (false, false) => prop_assert!(outcome.is_done(), "{index}: {outcome:?}"),
            }
        }

        // Order and lanes, from what was heard.
        let mut ended = BTreeSet::new();
        let mut busy: BTreeMap<usize, usize> = BTreeMap::new();
        let number = |step: &StepId| step.name.parse::<usize>().unwrap();
        for event in trace.events() {
            match &event.what {
                What::StepStarted { step } => {
                    let (needs, lane, _) = &plan.steps[number(step)];
                    prop_assert!(needs.iter().all(|need| ended.contains(need)), "{step} began before its needs were met");
                    let busy = busy.entry(*lane).or_default();
                    *busy += 1;
                    prop_assert!(*busy <= plan.lanes[*lane], "lane {lane} is overfull");
                }
                What::StepEnded { step, outcome } => {
                    if outcome.is_done() {
                        ended.insert(number(step));
                    }
                    if !matches!(outcome, Outcome::Skipped { .. }) {
                        *busy.entry(plan.steps[number(step)].1).or_default() -= 1;
                    }
                }
                _ => {}
            }
        }

        // Exactly once.
        for (effect, count) in world.effects() {
            prop_assert_eq!(count, 1, "{}", effect);
        }
        let wanted = (0..plan.steps.len()).filter(|index| report.outcome(&id(*index)).unwrap().is_done()).map(|index| 1 + index % 3).sum::<usize>();
        prop_assert_eq!(world.effects().len(), wanted, "each thing is made once and rolled as often as it has members");
    }

    #[test]
    fn without_a_journal_nothing_is_changed(plan in plan()) {
        let (report, _, world) = run_plan(&plan, None, false);
        prop_assert_eq!(world.effects().len(), 0);
        prop_assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_done()));
    }

    #[test]
    fn only_the_chosen_layer_is_changed(plan in plan()) {
        let (_, _, world) = run_plan(&plan, Some(Layer::new("odd")), true);
        for effect in world.effects().keys() {
            let number: usize = effect.split(' ').find_map(|word| word.parse().ok()).unwrap();
            prop_assert_eq!(number % 2, 1, "{}", effect);
        }
    }

    #[test]
    fn the_critical_path_is_a_chain_of_needs_that_ends_last(plan in plan()) {
        let (report, _, _) = run_plan(&plan, None, true);
        let path = &report.timeline.critical_path;
        let end = |span: &castle_engine::Span| span.ready + span.waited + span.worked;
        let last = report.timeline.spans.iter().map(end).max().unwrap_or_default();
        prop_assert_eq!(path.last().map(end).unwrap_or_default(), last);
        for pair in path.windows(2) {
            let (needs, ..) = &plan.steps[pair[1].step.name.parse::<usize>().unwrap()];
            prop_assert!(needs.contains(&pair[0].step.name.parse().unwrap()));
            prop_assert_eq!(end(&pair[0]), pair[1].ready, "each is ready when the one before it ends");
        }
    }
}

#[test]
fn a_circle_is_refused_and_named() {
    let pulse = Pulse::new();
    in_virtual_time(async |clock| {
        let world = ModelWorld::new(&pulse, Arc::new(*clock), 1, Weather::default());
        let mut builder = GraphBuilder::new();
        for index in 0..3 {
            let step = ThingStep { world: world.clone(), name: index.to_string(), wanted: None };
            builder.step(id(index), Place::default(), (Vec::new(),), step);
        }
        builder.after(id(0), id(2));
        builder.after(id(1), id(0));
        builder.after(id(2), id(1));
        let error = builder.build().unwrap_err();
        assert_eq!(
            error.to_string(),
            "these wait for each other: even/thing/0 -> odd/thing/1 -> even/thing/2 -> even/thing/0"
        );
        let mut builder = GraphBuilder::new();
        builder.after(id(0), id(1));
        assert!(matches!(builder.build().unwrap_err(), GraphError::Missing { .. }));
        let mut builder = GraphBuilder::new();
        for _ in 0..2 {
            let step = ThingStep { world: world.clone(), name: "x".into(), wanted: None };
            builder.step(id(0), Place::default(), (Vec::new(),), step);
        }
        assert_eq!(builder.build().unwrap_err(), GraphError::Duplicate(id(0)));
        let mut other = GraphBuilder::new();
        let step = |name: &str| ThingStep { world: world.clone(), name: name.into(), wanted: None };
        let foreign = other.step(id(0), Place::default(), (Vec::new(),), step("a"));
        let mut builder = GraphBuilder::new();
        builder.step(id(1), Place::default(), (vec![foreign],), step("b"));
        assert_eq!(builder.build().unwrap_err(), GraphError::Foreign(id(1)));
    });
}

/// Used where the plan is only a seed.
pub(crate) fn fixed_plan(seed: u64) -> Plan {
    let chance = Chance::new(seed);
    let draw = |limit: usize| usize::try_from(chance.below(limit as u64)).unwrap();
    let steps = (0..30).map(|index| {
        ((0..draw(4)).filter(|_| index > 0).map(|_| draw(index.max(1))).collect(), draw(3), chance.below(60))
    });
    let steps = steps.collect();
    Plan { steps, lanes: vec![2, 1, 4], broken: BTreeSet::from([draw(30)]), failing: 200, seed }
}

#[test]
fn complaints_narrow_a_lane_and_calm_widens_it() {
    let plan = Plan {
        steps: (0..30).map(|_| (BTreeSet::new(), 0, 1)).collect(),
        lanes: vec![4],
        broken: BTreeSet::new(),
        failing: 0,
        seed: 5,
    };
    let widths = in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let world = ModelWorld::new(&pulse, Arc::new(*clock), 5, Weather { failing: 0, slowest_ms: 100, lag_ms: 0 });
        (0..3).for_each(|call| world.fail_call(call, Call::Busy));
        let mut builder = GraphBuilder::new();
        for index in 0..plan.steps.len() {
            let step = ThingStep { world: world.clone(), name: index.to_string(), wanted: Some(Thing::default()) };
            let place = Place { lane: Some(Lane::new("storage", 4)), ..Place::default() };
            builder.step(id(index), place, (Vec::new(),), step);
        }
        let graph = builder.build().unwrap();
        let castle = CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 };
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&pulse));
        let journal = Mutex::new(Journal::open(&disk, std::path::Path::new("/journal"), &castle).unwrap().0);
        let (trace, chance) = (Trace::new(), Chance::new(1));
        let tools = Tools {
            clock,
            entropy: &chance,
            fence: &Alone { epoch: 1 },
            listener: &trace,
            signals: None,
            journal: Some(&journal),
        };
        assert!(run(&graph, tools, &Wanted::all(castle)).await.is_done());
        let widths = trace.events().into_iter().filter_map(|event| match event.what {
            What::LaneChanged { width, .. } => Some(width),
            _ => None,
        });
        widths.collect::<Vec<_>>()
    });
    assert_eq!(widths, [2, 1, 2, 3, 4]);
}
