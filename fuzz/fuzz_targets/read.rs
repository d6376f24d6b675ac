//! Whatever the bytes of a castle.yaml: no panic, problems inside of the text, and a castle only without errors.
#![no_main]

use castle_spec::{Lines, Look, Severity};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let reading = castle_spec::read(bytes);
    let lines = Lines::new(&reading.shown);
    for problem in &reading.problems {
        for label in &problem.labels {
            assert!(label.span.start <= label.span.end && label.span.end <= reading.shown.len(), "{label:?}");
            let _ = lines.position(label.span.start);
        }
    }
    let refused = reading.problems.iter().any(|problem| problem.code.severity() == Severity::Error);
    assert_eq!(refused, reading.castle.is_none());
    if let Some(castle) = &reading.castle {
        let _ = castle.resolved();
    }
    // The same bytes as a file that a reference leads to.
    castle_spec::references(&reading.references, &mut |_| Look::File { bytes: bytes.to_vec(), shared: false, tracked: false });
});
