//! The picture at several sizes, and what is sent for it.

use castle_engine::{Change, Class, EVENT_VERSION, Fault, Impact, Layer, Outcome, Outlook, StepId, What};

use super::*;

const SIZE: Size = Size { width: 80, height: 24 };

fn step(path: &str) -> StepId {
    let parts: Vec<&str> = path.splitn(3, '/').collect();
    StepId::new(&Layer::new(parts[0]), parts[1], parts[2])
}

fn event(seconds: f64, what: What) -> Event {
    Event { version: EVENT_VERSION, at: Duration::from_secs_f64(seconds), what }
}

/// A castle of three nodes, with its image and two gates behind them.
fn outlook() -> Vec<Outlook> {
    let one = |path: &str, own, behind| Outlook {
        step: step(path),
        own: Duration::from_secs(own),
        behind: Duration::from_secs(behind),
    };
    let mut all = vec![one("secrets/bundle/blue", 2, 138), one("platform/image/talos on pve", 60, 78)];
    for node in ["blue-cp-1", "blue-worker-1", "blue-worker-2"] {
        all.push(one(&format!("platform/vm/{node}"), 8, 70));
        all.push(one(&format!("platform/config/{node}"), 30, 40));
    }
    all.push(one("platform/etcd/members", 20, 20));
    all.push(one("gitops/handover/blue", 20, 0));
    all
}

fn model() -> Model {
    let nodes = ["blue-cp-1", "blue-worker-1", "blue-worker-2"].map(str::to_owned);
    Model::new("up blue on proxmox", &nodes, &outlook(), false)
}

/// The run, some way in: one node is done, one is configured, one is in trouble, and a gate is closed.
fn on_the_way() -> (Model, Vec<String>) {
    let mut model = model();
    let mut kept = Vec::new();
    let started = |path: &str| What::StepStarted { step: step(path) };
    let ended = |path: &str, effects| What::StepEnded { step: step(path), outcome: Outcome::Done { effects } };
    let acting =
        |path: &str, verb: &str| What::StepActing { step: step(path), change: Change::new(verb, Impact::Create) };
    let fault = Fault::new(Class::RetryableAfter(None), "VM 1011", "got timeout\nwhile it was locked").contended();
    for (seconds, what) in [
        (0.0, started("secrets/bundle/blue")),
        (0.1, acting("secrets/bundle/blue", "mint")),
        (2.0, ended("secrets/bundle/blue", 1)),
        (2.0, started("platform/image/talos on pve")),
        (2.1, acting("platform/image/talos on pve", "download")),
        (50.0, acting("platform/image/talos on pve", "convert")),
        (62.0, ended("platform/image/talos on pve", 2)),
        (62.0, started("platform/vm/blue-cp-1")),
        (62.0, started("platform/vm/blue-worker-1")),
        (62.5, acting("platform/vm/blue-cp-1", "clone")),
        (70.0, ended("platform/vm/blue-cp-1", 1)),
        (70.0, started("platform/config/blue-cp-1")),
        (70.5, acting("platform/config/blue-cp-1", "apply")),
        (71.0, ended("platform/vm/blue-worker-1", 0)),
        (71.0, started("platform/vm/blue-worker-2")),
        (72.0, What::StepRetrying { step: step("platform/vm/blue-worker-2"), fault, after: Duration::from_secs(3) }),
        (90.0, ended("platform/config/blue-cp-1", 1)),
        (91.0, started("platform/config/blue-worker-1")),
        (92.0, acting("platform/config/blue-worker-1", "apply")),
        (93.0, started("platform/etcd/members")),
        (
            94.0,
            What::GateClosed {
                step: step("platform/etcd/members"),
                subject: "etcd".to_owned(),
                evidence: "1 of 3 members vote: blue-cp-1; blue-cp-2 is a learner that has 12 % of the log".to_owned(),
            },
        ),
    ] {
        kept.extend(model.hear(&event(seconds, what)));
    }
    (model, kept)
}

fn text(lines: &[Line]) -> String {
    let line = |line: &Line| line.0.iter().map(|(_, text)| text.as_str()).collect::<String>();
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn shown(model: &Model, seconds: u64, width: usize, height: usize) -> String {
    let lines = lines(model, Duration::from_secs(seconds), Size { width, height });
    assert!(lines.len() < height.max(1), "the cursor has a row of its own");
    for line in text(&lines).lines() {
        assert!(columns(line) < width, "{line:?} is too wide for {width}");
    }
    text(&lines)
}

#[test]
fn one_line_is_kept_of_what_changed_something() {
    let (_, kept) = on_the_way();
    assert_eq!(
        kept,
        [
            "secrets/bundle/blue  mint (2.0 s)",
            "platform/image/talos on pve  download, convert (60.0 s)",
            "platform/vm/blue-cp-1  clone (8.0 s)",
            "platform/config/blue-cp-1  apply (20.0 s)"
        ]
    );
}

#[test]
fn at_the_beginning() {
    insta::assert_snapshot!(shown(&model(), 0, 80, 24));
}

#[test]
fn on_the_way_in_a_usual_terminal() {
    insta::assert_snapshot!(shown(&on_the_way().0, 100, 100, 30));
}

#[test]
fn on_the_way_in_a_narrow_one() {
    insta::assert_snapshot!(shown(&on_the_way().0, 100, 40, 30));
}

#[test]
fn on_the_way_in_low_ones() {
    let (model, _) = on_the_way();
    let all: Vec<String> =
        [9, 8, 7, 5, 3, 2].iter().map(|&height| format!("# {height}\n{}", shown(&model, 100, 80, height))).collect();
    insta::assert_snapshot!(all.join("\n"));
}

/// Goal: what is only waited for is no pace. Method: a gate behind everything that stays closed for an hour.
#[test]
fn a_wait_makes_nothing_longer_and_is_not_guessed_at() {
    let (mut model, _) = on_the_way();
    let closed = |evidence: &str| What::GateClosed {
        step: step("platform/vm/blue-worker-2"),
        subject: "blue-worker-2".to_owned(),
        evidence: evidence.to_owned(),
    };
    model.hear(&event(100.0, closed("does not answer")));
    let left = |model: &Model, seconds| model.left(Duration::from_secs(seconds));
    let first = left(&model, 100).expect("it may come any moment");
    assert!(left(&model, 130).is_some_and(|later| later <= first), "{:?} after {first:?}", left(&model, 130));
    for seconds in [200, 600, 3600] {
        assert_eq!(left(&model, seconds), None, "after {seconds} s of waiting nobody knows");
    }
    // What works goes on to tell.
    let change = Change::new("clone", Impact::Create);
    model.hear(&event(3600.0, What::StepActing { step: step("platform/vm/blue-worker-2"), change }));
    assert!(left(&model, 3601).is_some());
}

#[test]
fn no_room_at_all_is_no_trouble() {
    let (model, _) = on_the_way();
    for (width, height) in [(0, 0), (1, 1), (1, 40), (2, 2), (300, 1)] {
        let lines = lines(&model, Duration::from_secs(100), Size { width, height });
        assert!(lines.len() <= height && text(&lines).lines().all(|line| columns(line) <= width), "{width}x{height}");
    }
}

#[test]
fn wide_letters_are_counted_as_wide() {
    let mut model = model();
    let _ = model.hear(&event(0.0, What::StepStarted { step: step("platform/etcd/members") }));
    let evidence = "城".repeat(100);
    let subject = "城".to_owned();
    let _ = model.hear(&event(0.0, What::GateClosed { step: step("platform/etcd/members"), subject, evidence }));
    let line = shown(&model, 1, 60, 24).lines().last().unwrap().to_owned();
    assert!(line.ends_with('…') && (57..60).contains(&columns(&line)), "{line}");
}

#[test]
fn a_failure_and_what_it_kept_from_being_begun() {
    let (mut model, _) = on_the_way();
    let fault = Fault::new(Class::Final, "VM 1011", "no space left on local-lvm");
    let because = step("platform/vm/blue-worker-2");
    let outcome = Outcome::Failed { fault };
    let kept = model.hear(&event(101.0, What::StepEnded { step: because.clone(), outcome }));
    assert_eq!(kept.as_deref(), Some("platform/vm/blue-worker-2  failed: VM 1011: no space left on local-lvm"));
    let outcome = Outcome::Skipped { because };
    let skipped = What::StepEnded { step: step("platform/config/blue-worker-2"), outcome };
    assert_eq!(model.hear(&event(101.0, skipped)), None);
    let _ = model.hear(&event(102.0, What::Interrupted));
    insta::assert_snapshot!(shown(&model, 103, 100, 30));
}

#[test]
fn what_is_left_follows_the_pace_so_far() {
    let (slow, _) = on_the_way();
    // 70 s of the predicted 140 s are behind it, and took 100 s.
    let left = slow.left(Duration::from_secs(100)).unwrap();
    assert!((90..=145).contains(&left.as_secs()), "{left:?}");
    assert_eq!(model().left(Duration::ZERO), None, "a table alone is not believed");
    let known = Model::new("up", &[], &outlook(), true);
    assert_eq!(known.left(Duration::ZERO), Some(Duration::from_secs(140)));
    let mut ended = known;
    for one in outlook() {
        let outcome = Outcome::Done { effects: 0 };
        let _ = ended.hear(&event(1.0, What::StepEnded { step: one.step, outcome }));
    }
    assert_eq!(ended.left(Duration::from_secs(1)), Some(Duration::ZERO));
}

#[test]
fn it_is_drawn_when_something_is_new_and_not_too_often() {
    let mut live = Live::new(model(), false);
    let at = |millis| Duration::from_millis(millis);
    let started = event(0.0, What::StepStarted { step: step("secrets/bundle/blue") });
    live.hear(&started, None);
    assert_eq!(live.draw(at(299), SIZE), None, "what is over at once is not drawn");
    assert!(live.draw(at(300), SIZE).is_some());
    assert_eq!(live.draw(at(900), SIZE), None, "nothing is new");
    live.hear(&started, None);
    assert!(live.draw(at(950), SIZE).is_some());
    live.hear(&started, None);
    assert_eq!(live.draw(at(1049), SIZE), None, "too early");
    assert!(live.draw(at(1050), SIZE).is_some());
    assert_eq!(live.draw(at(2049), SIZE), None);
    assert!(live.draw(at(2050), SIZE).is_some(), "the clock goes on");
}

#[test]
fn what_is_sent_draws_over_what_was_there_and_leaves_a_clean_screen() {
    let mut live = Live::new(model(), false);
    let first = live.draw(Duration::from_secs(1), SIZE).unwrap();
    assert!(!first.contains("\u{1b}[31m") && !first.contains('A'), "nothing is above yet: {first:?}");
    let rows = first.matches('\n').count();
    live.hear(&event(1.5, What::RunEnded), Some("kept".to_owned()));
    let second = live.draw(Duration::from_secs(2), SIZE).unwrap();
    assert!(second.starts_with(&format!("{BEGIN}\r\u{1b}[{rows}Akept{CLEAR_LINE}\n")), "{second:?}");
    // Half as wide: what was there takes more rows now.
    let widest = live.drawn.iter().max().copied().unwrap();
    let narrow = Size { width: widest - 1, ..SIZE };
    let third = live.draw(Duration::from_secs(3), narrow).unwrap();
    assert!(third.starts_with(&format!("{BEGIN}\r\u{1b}[{}A", rows + live_wraps(&live, widest))), "{third:?}");
    live.hear(&event(3.5, What::RunEnded), Some("last words".to_owned()));
    let rows = third.matches('\n').count();
    assert_eq!(live.finish(SIZE), format!("{BEGIN}\r\u{1b}[{rows}Alast words{CLEAR_LINE}\n{CLEAR_BELOW}{END}"));
    assert_eq!(live.finish(SIZE), format!("{BEGIN}{CLEAR_BELOW}{END}"), "once is enough");
}

/// How many of the lines of the usual picture are of the greatest width.
fn live_wraps(live: &Live, widest: usize) -> usize {
    let usual = lines(&live.model, Duration::from_secs(2), SIZE);
    text(&usual).lines().filter(|line| columns(line) == widest).count()
}

#[test]
fn colour_only_where_it_is_wanted() {
    for is_coloured in [true, false] {
        let mut live = Live::new(on_the_way().0, is_coloured);
        let sent = live.draw(Duration::from_secs(100), SIZE).unwrap();
        assert_eq!(sent.contains("\u{1b}[1mup blue on proxmox\u{1b}[0m"), is_coloured);
        assert_eq!(sent.contains("\u{1b}[32m━"), is_coloured, "{sent:?}");
    }
}
