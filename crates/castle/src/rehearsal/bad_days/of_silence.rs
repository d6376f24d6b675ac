//! Silence: whatever a verb is at, it says so every half minute, to people and to programs, and its time ends it there, too.

use std::sync::atomic::{AtomicU32, Ordering};

use castle_datacenter::{Asked, Reply, VaultAsked, VaultReply, Witness};
use castle_rehearsal::{Loss, Moment};
use serde_json::Value;

use super::super::life::{At, Kill};
use super::super::script::STATE;
use super::*;

/// Who makes others wait: for what a hypervisor tells of guests, and for the vault.
#[derive(Default)]
struct Slow {
    /// How many seconds a question after a guest takes.
    guests: AtomicU32,
    /// How many seconds the vault asks whoever comes to wait.
    vault: AtomicU32,
}

impl Witness for Slow {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let mut reply = handle();
        if asked.method == "GET" && asked.path.ends_with("/config") {
            reply.delay += Duration::from_secs(self.guests.load(Ordering::Relaxed).into());
        }
        Some(reply)
    }

    fn vault(&self, _: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        match self.vault.load(Ordering::Relaxed) {
            0 => Some(handle()),
            seconds => {
                let message = format!("Rate limit exceeded. Please try again in {seconds} seconds");
                let reply = VaultReply::failure(429, "RateLimitExceeded", message);
                Some(VaultReply { headers: vec![("retry-after", seconds.to_string())], ..reply })
            }
        }
    }
}

fn slow_world(life: &Life) -> Arc<Slow> {
    let slow = Arc::new(Slow::default());
    life.datacenter.watch(slow.clone());
    slow
}

/// Runs a verb, and tells how long it took and how long nothing was said.
async fn listened(life: &Life, words: &[&str]) -> (Told, Duration, Duration) {
    let begun = life.clock().monotonic();
    let told = life.run(words).await;
    let ended = life.clock().monotonic();
    let times: Vec<Duration> = [begun].into_iter().chain(told.printed.said.iter().copied()).chain([ended]).collect();
    let silence = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap();
    (told, ended - begun, silence)
}

/// Holds that a verb takes longer than that, and is not silent for half a minute.
async fn never_silent(life: &Life, words: &[&str], longer_than: u64) -> Told {
    let (told, took, silence) = listened(life, words).await;
    let text = &told.printed.text;
    assert!(told.exit.is_some() && took > Duration::from_secs(longer_than), "{words:?} took {took:?}: {text}");
    assert!(silence <= Duration::from_millis(30_500), "{words:?} was silent for {silence:?}: {text}");
    if words.contains(&"--json") {
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let still: Vec<&Value> = events.iter().filter(|event| event["event"] == "still-running").collect();
        let is_whole = |event: &&Value| {
            event["version"] == 1
                && event["doing"].is_string()
                && event["running"]["secs"].is_u64()
                && event["at"]["secs"].is_u64()
        };
        assert!(!still.is_empty() && still.iter().all(is_whole), "{words:?}: {text}");
    }
    told
}

/// Goal: a hypervisor that is slow to tell of guests makes no verb silent, whatever it asks for. Method: each question takes half a minute.
#[test]
fn a_hypervisor_that_is_slow_makes_no_verb_silent() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let slow = slow_world(&life);
        slow.guests.store(30, Ordering::Relaxed);
        for verb in ["drift", "adopt", "doctor"] {
            never_silent(&life, &[verb], 29).await;
            never_silent(&life, &[verb, "--json"], 29).await;
        }
        let down = never_silent(&life, &["down", "--yes"], 60).await;
        hold(&down, Exit::Done, &["Still looking at guests at ", ", for 30 s by now"]);
        // However many there are, they are asked at once.
        let longer =
            |line: &&str| line.starts_with("Still looking at guests at ") && !line.ends_with("for 30 s by now");
        assert_eq!(down.printed.text.lines().find(longer), None);
        slow.guests.store(0, Ordering::Relaxed);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        slow.guests.store(30, Ordering::Relaxed);
        never_silent(&life, &["rebirth", "--yes", "--json"], 60).await;
        never_silent(&life, &["wipe", "--yes", "--json"], 60).await;
    });
}

/// The same of a vault that has too much to do; and the time of a verb ends there, with what it waited for.
#[test]
fn a_vault_that_lets_wait_makes_nobody_silent_and_the_time_ends_there() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        let slow = slow_world(&life);
        slow.vault.store(60, Ordering::Relaxed);
        for words in [&["up"][..], &["up", "--json"]] {
            let told = never_silent(&life, words, 100).await;
            hold(&told, Exit::Failed, &["Rate limit exceeded", "asking the vault whether it lets castle in (https://"]);
        }
        let (told, took, _) = listened(&life, &["up", "--timeout", "100s"]).await;
        let words = [
            "stopped after 1.7 min (--timeout): still asking the vault whether it lets castle in (https://",
            "next: run the same command again, with more time",
        ];
        hold(&told, Exit::Failed, &words);
        assert!(took <= Duration::from_secs(101), "{took:?}");
        assert_eq!((&told.printed.result["verb"], &told.printed.result["result"]), (&"up".into(), &"failed".into()));
        slow.vault.store(0, Ordering::Relaxed);
        hold(&life.run(&["up", "--timeout", "20m"]).await, Exit::Done, &[]);
        // A rebirth asks it before anything goes.
        slow.vault.store(60, Ordering::Relaxed);
        let (told, took, _) = listened(&life, &["rebirth", "--yes", "--timeout", "30s"]).await;
        hold(&told, Exit::Failed, &["stopped after 30 s (--timeout): still asking the vault"]);
        assert_eq!(told.printed.result["verb"], "rebirth", "{}", told.printed.result);
        assert!(took <= Duration::from_secs(31), "{took:?}");
    });
}

/// Goal: time ends a verb wherever it looks, and the lease that it held by then is given back. Method: before the lease, under it, and after what
/// was removed.
#[test]
fn the_time_ends_a_verb_wherever_it_looks_and_the_lease_is_given_back() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let slow = slow_world(&life);
        slow.guests.store(30, Ordering::Relaxed);
        for (timeout, most, doing) in [
            ("20s", 20, "stopped after 20 s (--timeout): still looking at guests at "),
            ("45s", 45, "stopped after 45 s (--timeout): still looking at guests once more at "),
        ] {
            let (told, took, _) = listened(&life, &["down", "--yes", "--timeout", timeout]).await;
            hold(&told, Exit::Failed, &[doing]);
            assert!(took <= Duration::from_secs(most + 1), "{took:?}: {}", told.printed.text);
            hold(&life.run(&["lease", "show"]).await, Exit::Done, &["Nobody works on blue"]);
        }
        let (told, took, _) = listened(&life, &["down", "--yes", "--timeout", "80s"]).await;
        hold(&told, Exit::Failed, &["stopped after 80 s (--timeout): ", "still there: VM 1000 (blue-cp-1) on pve"]);
        assert!(!told.printed.result["leftovers"].as_array().unwrap().is_empty(), "{}", told.printed.result);
        assert!(took <= Duration::from_secs(80 + 65), "{took:?}: {}", told.printed.text);
        slow.guests.store(0, Ordering::Relaxed);
        hold(&life.run(&["lease", "show"]).await, Exit::Done, &["Nobody works on blue"]);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// Whoever watches whether another one lives says so, in every verb that takes the lease.
#[test]
fn whoever_watches_a_silent_holder_says_so() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for (words, machine) in [(&["adopt"][..], 'a'), (&["state", "restore", "platform", "1", "--yes"], 'b')] {
            let at = At::Change(Box::new(|change: &str| change.contains("/status/stop")));
            let kill = Kill { at, moment: Moment::Before, loss: Loss::None };
            assert!(life.run_killed(&["down", "--yes"], kill).await.exit.is_none());
            life.clock().sleep(Duration::from_secs(120)).await;
            // It was another machine that died.
            let file = std::path::Path::new(STATE).join(".machine");
            life.disk().tamper(&file, machine.to_string().repeat(32).into_bytes());
            let (told, _, silence) = listened(&life, words).await;
            assert!(told.printed.text.contains(" s: watching for 30 s"), "{words:?}: {}", told.printed.text);
            assert!(silence <= Duration::from_millis(30_500), "{words:?} was silent for {silence:?}");
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
        }
    });
}
