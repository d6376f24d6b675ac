//! The life of a castle in the embedded datacenter: what castle itself takes, beside what it waits for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

const RAISES: usize = 3;
const LOOKS: usize = 10;
/// Ticks of a processor in a second, as Linux tells them.
const TICKS: f64 = 100.0;
/// The network of the example, and another: somebody may have raised the example on this machine.
const NETWORKS: [&str; 2] = ["127.42.0.", "127.43.42."];

/// What one run of castle took.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    /// Seconds of a processor, in castle alone.
    cpu: f64,
    /// The most memory that castle had, in megabytes.
    memory: f64,
}

pub(super) fn run(castle: &Path) -> Result<()> {
    println!("a castle of 3+2 nodes in the embedded datacenter, release build");
    let raises = (0..RAISES).map(|_| Home::new(castle, &["--instant"])?.castle("up"));
    let raises = raises.collect::<Result<Vec<Cost>>>()?;
    tell("up, nothing takes any time", &raises, "2 s and 50 MB", 2.0);
    let memory = raises.iter().map(|cost| cost.memory).fold(0.0, f64::max);
    println!("    most memory in castle: {memory:.0} MB, {:.2} of what is wanted", memory / 50.0);
    let home = Home::new(castle, &[])?;
    tell("up, at the usual speed", &[home.castle("up")?], "about 10 s", 10.0);
    for (verb, wanted, bound) in [("status", "0.3 s", 0.3), ("up", "1 s", 1.0)] {
        let looks = (0..LOOKS).map(|_| home.castle(verb)).collect::<Result<Vec<Cost>>>()?;
        tell(if verb == "up" { "up, for the second time" } else { verb }, &looks, wanted, bound);
    }
    Ok(())
}

/// The best and the median of several runs: on a busy machine the best tells most.
fn tell(what: &str, costs: &[Cost], wanted: &str, bound: f64) {
    let mut walls: Vec<f64> = costs.iter().map(|cost| cost.wall.as_secs_f64()).collect();
    walls.sort_by(f64::total_cmp);
    let cpu = costs.iter().map(|cost| cost.cpu).fold(f64::MAX, f64::min);
    let (best, median) = (walls[0], walls[walls.len() / 2]);
    println!(
        "  {what:28} {best:6.2} s (median {median:.2}), {cpu:.2} s of a processor in castle; wanted: {wanted}; {:.2} of that",
        best / bound
    );
}

/// An empty home with a datacenter of its own, and the example.
struct Home {
    castle: PathBuf,
    folder: tempfile::TempDir,
    datacenter: Child,
}

impl Home {
    fn new(castle: &Path, how: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy(&shell::root().join("examples/blue"), &folder.path().join("blue"))?;
        let mut command = at_home(castle, folder.path());
        let datacenter = command.args(["datacenter", "--listen", "127.0.0.1:0"]).args(how).spawn()?;
        let home = Self { castle: castle.to_owned(), folder, datacenter };
        let begun = Instant::now();
        while !home.folder.path().join(".local/state/castle/datacenter/serving.json").is_file() {
            ensure!(begun.elapsed() < Duration::from_secs(20), "the embedded datacenter does not begin to serve");
            sleep(Duration::from_millis(20));
        }
        Ok(home)
    }

    /// Runs a verb on the example to its end.
    fn castle(&self, verb: &str) -> Result<Cost> {
        let begun = Instant::now();
        let mut child = at_home(&self.castle, self.folder.path()).args([verb, "blue", "--quiet"]).spawn()?;
        let mut memory: f64 = 0.0;
        // What has ended and is not waited for yet still tells what it took of a processor.
        let cpu = loop {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).context("figures need Linux")?;
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
            let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
            if fields.first() == Some(&"Z") {
                break (ticks(11) + ticks(12)) / TICKS;
            }
            memory = memory.max(resident(child.id()));
            sleep(Duration::from_millis(5));
        };
        let wall = begun.elapsed();
        let status = child.wait()?;
        if !status.success() {
            bail!("castle {verb} ended with {status}");
        }
        Ok(Cost { wall, cpu, memory })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.datacenter.kill();
        let _ = self.datacenter.wait();
    }
}

/// castle, in this home and with nothing in its environment.
fn at_home(castle: &Path, home: &Path) -> Command {
    let mut command = Command::new(castle);
    command.env_clear().env("HOME", home).current_dir(home);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// The most memory that a process had so far, in megabytes.
fn resident(process: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1e3
}

/// Copies a folder, in another network.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            let text = fs::read_to_string(entry.path())?;
            fs::write(target, text.replace(NETWORKS[0], NETWORKS[1]))?;
        }
    }
    Ok(())
}
