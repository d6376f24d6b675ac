//! What it costs to make the secrets of a castle and the configurations of five nodes, with the search for the RSA key told apart.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this measures real time")]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example speaks, and stops where it cannot go on")]
#![allow(dead_code, reason = "the room has more than is measured")]

#[path = "../tests/platform/room.rs"]
mod room;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use castle_layers::cluster::{Referred, configuration};
use castle_seams::{BoxFuture, KeyKind, KeyMint, MintError, PrivateKey, SystemClock, SystemEntropy, SystemKeyMint};
use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::config::Contract;
use castle_talos::model::pki::Doors;

use crate::room::{file, read};

/// How often each is measured.
const RUNS: usize = 11;

/// Knows how long the search for RSA keys took.
#[derive(Default)]
struct Timed {
    searching: Mutex<Duration>,
}

impl KeyMint for Timed {
    fn mint(&self, kind: KeyKind) -> BoxFuture<'_, Result<PrivateKey, MintError>> {
        Box::pin(async move {
            let start = Instant::now();
            let minted = SystemKeyMint.mint(kind).await;
            if kind == KeyKind::Rsa4096 {
                *self.searching.lock().unwrap() += start.elapsed();
            }
            minted
        })
    }
}

/// A bundle and five configurations: milliseconds in all, and of those the search for an RSA key.
async fn make(service_account: ServiceAccountKey) -> (f64, f64) {
    let (mint, clock) = (Timed::default(), SystemClock::new());
    let (castle, nodes) = read(&file(3, 2, "nodes: [pve]"));
    let start = Instant::now();
    let doors = Doors { mint: &mint, entropy: &SystemEntropy, clock: &clock };
    let bundle = Bundle::generate(Options { contract: Contract::V1_13, service_account }, doors).await.unwrap();
    let bytes: usize = nodes
        .iter()
        .map(|node| configuration(&castle, &nodes, node, &bundle, &Referred::default()).unwrap())
        .map(|made| made.text().expose().len())
        .sum();
    assert!(bytes > 10_000, "five configurations are longer than {bytes} bytes");
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    (ms(start.elapsed()), ms(*mint.searching.lock().unwrap()))
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    println!("the secrets of a castle and five configurations, median of {RUNS} runs");
    for (name, kind) in [("P-256", ServiceAccountKey::EcdsaP256), ("RSA 4096", ServiceAccountKey::Rsa4096)] {
        let mut runs: Vec<(f64, f64)> = (0..RUNS).map(|_| runtime.block_on(make(kind))).collect();
        runs.sort_by(|one, other| (one.0 - one.1).total_cmp(&(other.0 - other.1)));
        let (all, searching) = runs[RUNS / 2];
        let more = if searching > 0.0 { format!(", and {searching:.0} ms of search") } else { String::new() };
        println!("  {name:<16} {:7.1} ms   wanted: at most 200{more}", all - searching);
    }
}
