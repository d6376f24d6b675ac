//! Whatever the text: no panic, every problem inside of it, and a castle only where there is no error.
//!
//! The same is fuzzed (`cargo fuzz run read`); what fuzzing found interesting is replayed here.
#![allow(clippy::disallowed_methods, reason = "the corpus is on disk")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

use castle_spec::{Code, Look, Severity};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const GOOD: &str = include_str!("../../../examples/blue/castle.yaml");

fn hold(bytes: &[u8]) {
    let reading = castle_spec::read(bytes);
    for problem in &reading.problems {
        assert!(!problem.summary.is_empty() && !problem.hint.is_empty(), "{problem:?}");
        for label in &problem.labels {
            assert!(label.span.start <= label.span.end && label.span.end <= reading.shown.len(), "{problem:?}");
            assert!(reading.shown.is_char_boundary(label.span.start), "{problem:?}");
            assert!(reading.shown.is_char_boundary(label.span.end), "{problem:?}");
        }
    }
    let refused = reading.problems.iter().any(|problem| problem.code.severity() == Severity::Error);
    assert_eq!(refused, reading.castle.is_none());
    castle_spec::references(&reading.references, &mut |_| Look::File {
        bytes: bytes.to_vec(),
        shared: true,
        tracked: false,
    });
}

#[test]
fn on_the_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/read");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        hold(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 50, "the corpus has only {count} files");
}

/// Pieces that YAML and castle give a meaning to.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "castle",
        "platform",
        "proxmox",
        "embedded",
        "nodes",
        "controlPlanes",
        "workers",
        "pools",
        "overrides",
        "count",
        "firstAddress",
        "talos",
        "version",
        "network",
        "cidr",
        "secrets",
        "token",
        "storage",
        "longhorn",
        ":",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a",
        "*a",
        "!!x",
        "|",
        ">",
        "\"",
        "'",
        "#",
        "---\n",
        "...\n",
        "%",
        "@",
        "\t",
        "~",
        "null",
        "3",
        "-1",
        "99999999999999999999",
        "10.0.0.1",
        "10.0.0.0/8",
        "fd00::1",
        "::/0",
        "4GiB",
        "v1.13.9",
        "sops:a#b",
        "env:X",
        "blue",
        "\u{feff}",
        "ü",
        "😀",
        "\u{2028}",
        "\u{0}",
    ];
    prop_oneof![4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    #[test]
    fn on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        hold(&bytes);
    }

    #[test]
    fn on_pieces(pieces in proptest::collection::vec(piece(), 0..60)) {
        hold(pieces.concat().as_bytes());
    }

    /// A good castle with something cut out and something put in.
    #[test]
    fn on_a_castle_that_was_edited(at in 0..GOOD.len(), cut in 0..60usize, put in proptest::collection::vec(piece(), 0..4)) {
        let boundary = |mut at: usize| { while !GOOD.is_char_boundary(at) { at -= 1; } at };
        let (start, end) = (boundary(at), boundary((at + cut).min(GOOD.len())));
        hold(format!("{}{}{}", &GOOD[..start], put.concat(), &GOOD[end..]).as_bytes());
    }
}

#[test]
fn every_code_is_listed_once() {
    let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.text()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
