//! `castle rehearse`: your own file, in virtual time, in many worlds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::doors::Doors;
use crate::output::{Exit, Printer, table};
use crate::rehearsal::{Broken, Edit, Rehearsed, Script, rehearse_beside as try_worlds};
use crate::stand::Trouble;

/// How many worlds are tried at once.
const AT_ONCE: usize = 2;

/// Try a castle's file in worlds that are in memory: raise it, kill castle on the way, lose a machine, take it down, and hold castle to its promises
///
/// Nothing is asked of anybody, and nothing is written: hypervisor, nodes, cluster, vault and repository are simulated, all secrets
/// have stand-ins, and time passes as fast as it can. Tells how long raising it will take, and whether castle keeps its promises
/// with this file (docs/rehearse.md).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  castle rehearse --worlds 100\n  castle rehearse --seed 17 --worlds 1 -v")]
pub(crate) struct RehearseArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// How many worlds
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    worlds: u64,
    /// The seed of the first world; the others have the next ones
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    seed: u64,
    /// What Flux follows: this folder, as the root of the repository
    #[arg(long, value_name = "FOLDER")]
    tree: Option<PathBuf>,
    /// The folder or archive that manifests of components come from; CASTLE_MIRROR names one, too
    #[arg(long, value_name = "MIRROR")]
    mirror: Option<PathBuf>,
}

pub(crate) async fn rehearse(args: &RehearseArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let named = doors.variables.filled("CASTLE_MIRROR").map(PathBuf::from);
    let mirror = args.mirror.clone().or(named);
    let props = crate::rehearsal::Props { tree: args.tree.as_deref(), mirror: mirror.as_deref() };
    let script = Script::of(doors, &args.path, props).await.map_err(Trouble::Invalid)?;
    let script = Arc::new(script);
    let seeds: Vec<u64> = (args.seed..args.seed + args.worlds).collect();
    let at_once = std::thread::available_parallelism().map_or(1, |count| count.get().min(AT_ONCE));
    let (mut worlds, mut refused) = (Vec::new(), None);
    for seeds in seeds.chunks(at_once) {
        if refused.is_some() {
            break;
        }
        let lived = {
            let _at = doors.at(living(seeds));
            try_worlds(&script, seeds).await.map_err(|error| Trouble::of(&error))?
        };
        for rehearsed in lived {
            if let Some(refusal) = &rehearsed.refused {
                refused = Some(refusal.clone());
                continue;
            }
            tell(&rehearsed, args, printer);
            worlds.push(Summary::of(&rehearsed));
        }
    }
    if let Some((exit, why)) = refused {
        return Ok(refusal(&script, args, exit, &why, printer));
    }
    Ok(conclude(&script, args, &worlds, printer))
}

/// What it is at: `living through the worlds 1, 2`.
fn living(seeds: &[u64]) -> String {
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    format!("living through the worlds {}", seeds.join(", "))
}

/// Tells that `castle up` would not begin with this file: there is nothing to rehearse, and no promise is broken.
fn refusal(script: &Script, args: &RehearseArgs, exit: Exit, why: &str, printer: &mut Printer) -> Exit {
    let name = script.castle.castle.as_str();
    let result = if exit == Exit::Invalid { "invalid" } else { "refused" };
    printer.complain_to_people(&format!(
        "{why}\n\ncastle up would refuse {name} like this (exit code {}), and change nothing: there is nothing to rehearse.\n  next: mend \
         that, then {}",
        exit.code(),
        replay(args.seed, args)
    ));
    printer.result(&json!({
        "verb": "rehearse", "castle": name, "result": result, "worlds": 0, "first_seed": args.seed,
        "problems": [{"severity": "error", "summary": why}],
    }));
    exit
}

/// When something was reached in a world.
type Reached = fn(&Summary) -> Option<Duration>;

/// What is kept of a world until the end.
struct Summary {
    seed: u64,
    api: Option<Duration>,
    handover: Option<Duration>,
    whole: Option<Duration>,
    kills: usize,
    effects: u64,
    broken: Vec<Broken>,
}

impl Summary {
    fn of(rehearsed: &Rehearsed) -> Self {
        let Rehearsed { seed, times, kills, effects, broken, .. } = rehearsed;
        Self {
            seed: *seed,
            api: times.api,
            handover: times.handover,
            whole: times.whole,
            kills: kills.len(),
            effects: *effects,
            broken: broken.clone(),
        }
    }
}

fn seconds(time: Option<Duration>) -> Value {
    time.map_or(Value::Null, |time| time.as_secs_f64().into())
}

fn replay(seed: u64, args: &RehearseArgs) -> String {
    let tree = args.tree.as_ref().map_or_else(String::new, |tree| format!(" --tree {}", tree.display()));
    let mirror = args.mirror.as_ref().map_or_else(String::new, |mirror| format!(" --mirror {}", mirror.display()));
    format!("castle rehearse {} --seed {seed} --worlds 1 -v{tree}{mirror}", args.path.display())
}

fn objects(broken: &[Broken], seed: u64, args: &RehearseArgs) -> Vec<Value> {
    let object = |one: &Broken| {
        json!({"seed": seed, "promise": one.promise, "when": one.when, "expected": one.expected, "seen": one.seen,
            "replay": replay(seed, args)})
    };
    broken.iter().map(object).collect()
}

/// Tells of one world.
fn tell(rehearsed: &Rehearsed, args: &RehearseArgs, printer: &mut Printer) {
    let Rehearsed { seed, times, kills, losses, edit, effects, broken, story, .. } = rehearsed;
    let result = if broken.is_empty() { "held" } else { "broken" };
    printer.event(&json!({
        "event": "world", "seed": seed, "result": result, "api_seconds": seconds(times.api),
        "handover_seconds": seconds(times.handover), "seconds": seconds(times.whole), "kills": kills,
        "losses": losses, "edit": edit.map(Edit::word), "effects": effects, "broken": objects(broken, *seed, args),
    }));
    if printer.is_verbose() {
        printer.say(story.trim_start());
    }
    let whole = times.whole.map_or_else(|| "did not stand".to_owned(), |whole| format!("stood after {}", clock(whole)));
    let killed = if kills.is_empty() { "not killed".to_owned() } else { format!("killed: {}", kills.join(", ")) };
    let lost = if losses.is_empty() { String::new() } else { format!("; lost: {}", losses.join(", ")) };
    let edited = edit.map_or_else(String::new, |edit| format!("; edited: {}", edit.word()));
    printer.say(&format!("world {seed}: {whole}; {killed}{lost}{edited}; {result}"));
    for one in broken {
        printer.complain_to_people(&format!(
            "\u{1b}[1;31mbroken\u{1b}[0m: promise {} ({}), {}\n  expected: {}\n  seen: {}\n  next: {}",
            one.promise,
            promise(one.promise),
            one.when,
            one.expected,
            one.seen,
            replay(*seed, args)
        ));
    }
}

/// A promise in a few words.
fn promise(number: u8) -> &'static str {
    match number {
        1 => "kill -9, then up: the same castle",
        2 => "nothing of others is changed",
        3 => "up after up changes nothing; the state can be rebuilt",
        4 => "down leaves nothing",
        6 => "a lost machine is made anew, an edited file is followed or refused",
        _ => "no secret shows",
    }
}

/// A time as people read it: minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The value that so many per cent of all do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// How long it took until something was reached: as a table, and for programs. A world in which it did not come to that has no time: it
/// is told of how many the times are.
fn reached(worlds: &[Summary]) -> (Vec<[String; 4]>, serde_json::Map<String, Value>) {
    let mut rows = vec![["", "median", "95 of 100", "worlds"].map(str::to_owned)];
    let mut times = serde_json::Map::new();
    let kinds: [(&str, &str, Reached); 3] = [
        ("api", "the API answers", |world| world.api),
        ("handover", "Flux has taken over", |world| world.handover),
        ("whole", "all stands", |world| world.whole),
    ];
    for (name, words, of) in kinds {
        let mut all: Vec<Duration> = worlds.iter().filter_map(of).collect();
        all.sort_unstable();
        if let (Some(middle), Some(late)) = (percentile(&all, 50), percentile(&all, 95)) {
            let of = format!("{} of {}", all.len(), worlds.len());
            rows.push([words.to_owned(), clock(middle), clock(late), of]);
            let time = json!({"p50": middle.as_secs_f64(), "p95": late.as_secs_f64(), "worlds": all.len()});
            times.insert(name.to_owned(), time);
        }
    }
    (rows, times)
}

fn conclude(script: &Script, args: &RehearseArgs, worlds: &[Summary], printer: &mut Printer) -> Exit {
    let (rows, times) = reached(worlds);
    let broken: Vec<&Summary> = worlds.iter().filter(|world| !world.broken.is_empty()).collect();
    let kills: usize = worlds.iter().map(|world| world.kills).sum();
    let effects: u64 = worlds.iter().map(|world| world.effects).sum();
    let name = script.castle.castle.as_str();
    if rows.len() > 1 {
        printer.say(&format!("\n{}", table(&rows)));
    }
    let held = worlds.len() - broken.len();
    printer.say(&format!(
        "\n{name} in {} worlds: castle kept its promises in {held} of them; killed {kills} times, {effects} effects.",
        worlds.len()
    ));
    if broken.is_empty() {
        printer.say(&format!("Not rehearsed: {}.", script.left_out.join("; ")));
    } else {
        let seeds: Vec<String> = broken.iter().map(|world| world.seed.to_string()).collect();
        printer.complain_to_people(&format!("Promises were broken in the worlds {}.", seeds.join(", ")));
    }
    let all: Vec<Value> = broken.iter().flat_map(|world| objects(&world.broken, world.seed, args)).collect();
    let (result, exit) = if broken.is_empty() { ("held", Exit::Done) } else { ("broken", Exit::Failed) };
    printer.result(&json!({
        "verb": "rehearse", "castle": name, "result": result, "worlds": worlds.len(), "first_seed": args.seed,
        "kills": kills, "effects": effects, "times": times, "broken": all, "not_rehearsed": script.left_out,
    }));
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_of_the_worlds_that_have_one() {
        let world = |seconds: Option<u64>| Summary {
            seed: 1,
            api: seconds.map(Duration::from_secs),
            handover: None,
            whole: None,
            kills: 0,
            effects: 0,
            broken: Vec::new(),
        };
        let (rows, times) = reached(&[world(Some(60)), world(None), world(Some(90))]);
        assert_eq!(rows[1..], [["the API answers", "1:00", "1:30", "2 of 3"].map(str::to_owned)]);
        assert_eq!(Value::Object(times), json!({"api": {"p50": 60.0, "p95": 90.0, "worlds": 2}}));
    }
}
