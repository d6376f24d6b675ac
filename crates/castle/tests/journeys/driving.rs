//! Real processes over real files: killed, interrupted and run again, until what is wanted is.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{
    Alone, CastleId, Change, Chosen, Class, Decision, Fault, Graph, GraphBuilder, Impact, Layer, Operation, Place,
    Seal, Step, StepId,
};
use castle_seams::{BoxFuture, Clock, SystemClock, SystemDisk, SystemEntropy, SystemSignals};
use zeroize::Zeroizing;

/// Names the folder of the process that this test starts as another one of itself.
const CHILD: &str = "CASTLE_TEST_FOLDER";
const STEPS: usize = 12;

/// A file that is to be there. Making one that is there is a mistake that leaves a trace.
struct FileStep {
    path: PathBuf,
    slow: Duration,
}

type Before = (Vec<Arc<PathBuf>>,);

impl Step for FileStep {
    type Needs = Before;
    type Observed = bool;
    type Action = ();
    type Output = PathBuf;

    fn observe<'a>(&'a self, _: &'a Before) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(self.path.exists())))
    }

    fn decide(&self, _: &Before, exists: &bool) -> Decision {
        if *exists { Decision::Nothing } else { Decision::Act((), Change::new("make", Impact::Create)) }
    }

    fn act<'a>(&'a self, _: &'a Before, _: &'a bool, (): &'a (), _: &'a Operation) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async {
            SystemClock::new().sleep(self.slow).await;
            if std::fs::File::create_new(&self.path).is_err() {
                std::fs::write(self.path.with_extension("twice"), "").unwrap();
                return Err(Fault::new(Class::Final, "file", "made twice"));
            }
            SystemClock::new().sleep(self.slow).await;
            Ok(())
        })
    }

    fn output(&self, _: &Before, _: &bool) -> PathBuf {
        self.path.clone()
    }
}

fn chain(folder: &Path, slow: Duration) -> Graph {
    let mut builder = GraphBuilder::new();
    let mut before = Vec::new();
    for number in 0..STEPS {
        let id = StepId::new(&Layer::new("model"), "file", &number.to_string());
        let step = FileStep { path: folder.join(format!("file-{number}")), slow };
        before = vec![builder.step(id, Place::default(), (before,), step)];
    }
    builder.build().unwrap()
}

/// A seal that opens again, or one for somebody else.
fn seal(wrong: bool) -> Seal {
    use age::secrecy::ExposeSecret;
    let identity = |key: &age::x25519::Identity| Zeroizing::new(key.to_string().expose_secret().to_owned());
    let (mine, other) = (age::x25519::Identity::generate(), age::x25519::Identity::generate());
    let recipient = if wrong { &other } else { &mine }.to_public().to_string();
    Seal::new(&[recipient], &[identity(&mine)]).unwrap()
}

/// What the other process does.
fn child(folder: &Path) -> ExitCode {
    let slow = Duration::from_millis(std::env::var("CASTLE_TEST_SLOW").map_or(1, |slow| slow.parse().unwrap()));
    let json = std::env::var_os("CASTLE_TEST_JSON").is_some();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exit = runtime.block_on(async {
        let signals = SystemSignals::install().unwrap();
        let setting = castle::Setting {
            verb: "up",
            castle: CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 },
            name: "blue on nothing".to_owned(),
            nodes: Vec::new(),
            layers: Chosen::default(),
            within: None,
            goes_on: false,
            folder: &folder.join("state"),
            disk: Arc::new(SystemDisk),
            clock: &SystemClock::new(),
            entropy: &SystemEntropy,
            fence: &Alone { epoch: 1 },
            seal: Some(&seal(std::env::var_os("CASTLE_TEST_WRONG_KEY").is_some())),
            signals: &signals,
        };
        let global = castle::Global { json, quiet: false, verbose: false, color: castle::Color::Never };
        let mut printer = castle::Printer::new(&global);
        match castle::drive(chain(folder, slow), setting, &mut printer).await {
            Ok(driven) => castle::conclude("up", "raised", "blue", &driven, serde_json::Map::new(), &mut printer),
            Err(exit) => exit,
        }
    });
    exit.into()
}

/// The test as another process of itself, so that it can be killed for real.
#[test]
fn this_is_the_other_process() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let code = child(Path::new(&folder));
        std::process::exit(if code == ExitCode::from(130) { 130 } else { i32::from(code != ExitCode::SUCCESS) });
    }
}

fn start(folder: &Path, slow: u64, json: bool) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "driving::this_is_the_other_process", "--nocapture", "--test-threads", "1"]);
    command.env(CHILD, folder).env("CASTLE_TEST_SLOW", slow.to_string());
    if json {
        command.env("CASTLE_TEST_JSON", "1");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

fn twice(folder: &Path) -> usize {
    std::fs::read_dir(folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "twice"))
        .count()
}

#[test]
fn what_failed_what_that_stopped_and_what_to_do_is_said() {
    let folder = tempfile::tempdir().unwrap();
    // Not a folder, so that the file below it cannot be made.
    std::fs::write(folder.path().join("state"), "").unwrap();
    let (mut child, output) = start(folder.path(), 1, true);
    let said: String = output.lines().map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("\"result\":\"failed\"") && said.contains("/state"), "{said}");

    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("nowhere/below", folder.path().join("file-4")).unwrap();
    let (mut child, output) = start(folder.path(), 1, true);
    let last = output.lines().map_while(Result::ok).filter(|line| line.starts_with('{')).last().unwrap();
    let result: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{result}");
    assert_eq!(
        result["steps"],
        serde_json::json!({"total": 12, "acted": 4, "failed": 1, "skipped": 7, "remaining": 0})
    );
    let problems: Vec<&str> =
        result["problems"].as_array().unwrap().iter().map(|problem| problem["summary"].as_str().unwrap()).collect();
    assert_eq!(problems[..2], ["file: made twice", "not begun: it needs model/file/4"]);
    let first = &result["problems"][0];
    assert_eq!((&first["wanted"], &first["seen"]), (&"make".into(), &"made twice".into()));
    assert_eq!(first["did"], "make; did not begin 7 steps that need it");
    assert_eq!(first["hint"], "castle doctor; then run the same command again");
    assert_eq!((&result["layers"][0]["layer"], &result["layers"][0]["acted"]), (&"model".into(), &4.into()));
}

#[test]
fn with_a_key_that_does_not_open_what_it_seals_nothing_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "driving::this_is_the_other_process", "--nocapture", "--test-threads", "1"]);
    let output = command.env(CHILD, folder.path()).env("CASTLE_TEST_WRONG_KEY", "1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("none of the 1 age identities opens it; nothing was done"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was done");
}

#[test]
fn killed_at_any_word_it_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut kills = 0;
    // Each time it may say one word more before it is killed, so that it dies at another place.
    for words in 1.. {
        assert!(words < 100, "it never came to an end");
        let (mut child, output) = start(folder.path(), 1, false);
        let said = output.lines().map_while(Result::ok).take(words + 3).count();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        kills += usize::from(status.code().is_none());
        assert_eq!(twice(folder.path()), 0, "something was made twice");
        if said < words + 3 && status.success() {
            break;
        }
    }
    assert!(kills > 3, "{kills}");
    assert!((0..STEPS).all(|number| folder.path().join(format!("file-{number}")).exists()));
    let (mut child, output) = start(folder.path(), 1, false);
    let said: Vec<String> = output.lines().map_while(Result::ok).collect();
    assert!(child.wait().unwrap().success());
    let closing = format!(": {STEPS} steps, 0 of them changed something, 0 failed, 0 skipped");
    assert!(said.iter().any(|line| line.contains("unchanged in ") && line.ends_with(&closing)), "{said:?}");
}

#[test]
fn interrupted_it_ends_what_it_began_says_what_remains_and_exits_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut output) = start(folder.path(), 100, false);
    let mut line = String::new();
    while !line.contains("model/file/2  make") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended too early");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: String = output.lines().map_while(Result::ok).map(|line| line + "\n").collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("stopping: what is under way is brought to its end"), "{rest}");
    // How far it had come when the signal arrived is the machine's affair; that all it began is there is not.
    let made = (0..STEPS).filter(|number| folder.path().join(format!("file-{number}")).exists()).count();
    assert!((3..STEPS).contains(&made), "{made} were made: {rest}");
    let remain = STEPS - made;
    assert!(rest.contains(&format!("Interrupted. {remain} of {STEPS} steps remain: model/file/{made}")), "{rest}");
    let (mut child, output) = start(folder.path(), 1, true);
    let objects: Vec<serde_json::Value> = output
        .lines()
        .map_while(Result::ok)
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    assert!(child.wait().unwrap().success());
    let result = objects.last().unwrap();
    assert_eq!((&result["result"], &result["steps"]["acted"]), (&"raised".into(), &remain.into()), "{result}");
    assert_eq!(result["critical_path"].as_array().unwrap().len(), STEPS);
    assert!(objects[..objects.len() - 1].iter().all(|event| event["version"] == 1 && event["event"].is_string()));
    assert_eq!(twice(folder.path()), 0);
    // The first run did not know how long it would take; the next one does.
    let (mut child, output) = start(folder.path(), 1, true);
    let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
    assert!(child.wait().unwrap().success());
    let started = lines
        .iter()
        .find_map(|line| line.split_once("{\"version\"").map(|(_, rest)| format!("{{\"version\"{rest}")))
        .unwrap();
    let started: serde_json::Value = serde_json::from_str(&started).unwrap();
    assert_eq!(started["event"], "run-started", "{started}");
    let predicted = |event: &serde_json::Value| {
        event["predicted"]["secs"].as_u64().unwrap() * 1_000_000_000 + event["predicted"]["nanos"].as_u64().unwrap()
    };
    assert!(predicted(&started) > 0, "{started}");
}
