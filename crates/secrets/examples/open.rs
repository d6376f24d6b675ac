//! How long it takes to open a SOPS file of a thousand values: read, decrypted, every value and the MAC verified.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a developer reads what it prints")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use castle_seams::{Clock, SystemClock, SystemDisk, SystemEntropy};
use castle_secrets::Secret;
use castle_secrets::sops::{Format, Keyring, Opened, Policy, Sealed, Surroundings};

const RUNS: usize = 51;

fn main() {
    let identity = castle_engine::Seal::mint_identity(&SystemEntropy).unwrap();
    let around = Surroundings {
        variables: BTreeMap::from([("SOPS_AGE_KEY".to_owned(), Secret::from(identity))]),
        more: Vec::new(),
        disk: &SystemDisk,
        run: &|_| Err(String::new()),
        passphrase: &|_| None,
    };
    let clock = SystemClock::new();
    println!("a SOPS file opened and verified, release build, median of {RUNS} runs");
    let mut before: Option<f64> = None;
    for values in [100, 1000, 10_000] {
        let mut clear = String::new();
        for number in 0..values {
            let _ = writeln!(clear, "key{number}:\n    secret: value of some forty characters number {number}");
        }
        let policy = Policy::for_recipients(Keyring::gather(&around).publics());
        let mut fresh = Opened::fresh("bench", Format::Yaml, clear.as_bytes(), &policy, &SystemEntropy).unwrap();
        let bytes = fresh.seal(UNIX_EPOCH, &SystemEntropy).unwrap();
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let start = clock.monotonic();
                let opened = Sealed::read("bench", Format::Yaml, &bytes).unwrap().open(&mut Keyring::gather(&around));
                let took = clock.monotonic() - start;
                assert_eq!(opened.unwrap().documents()[0].paths().len(), values);
                took
            })
            .collect();
        times.sort();
        let took = times[RUNS / 2].as_secs_f64() * 1e3;
        let wanted = if values == 1000 { "; wanted: at most 50 ms" } else { "" };
        let growth = before.map_or_else(String::new, |before| format!("   {:.1} times a tenth of them", took / before));
        println!("  {values:6} values   {took:7.2} ms{growth}{wanted}");
        before = Some(took);
    }
}
