//! The same seed gives the same run, here and in another process.

use std::process::Command;

use crate::scheduling::{fixed_plan, run_plan};

fn digests() -> Vec<String> {
    (0..20).map(|seed| run_plan(&fixed_plan(seed), None, true).1.digest()).collect()
}

#[test]
fn the_same_seed_gives_the_same_trace_in_two_processes() {
    if std::env::var_os("CASTLE_PRINT_DIGESTS").is_some() {
        println!("digests: {}", digests().join(" "));
        return;
    }
    let here = digests().join(" ");
    let this = std::env::current_exe().unwrap();
    let test = "seeds::the_same_seed_gives_the_same_trace_in_two_processes";
    let there =
        Command::new(this).args(["--exact", test, "--nocapture"]).env("CASTLE_PRINT_DIGESTS", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&there.stderr).into_owned() + &String::from_utf8_lossy(&there.stdout);
    assert!(printed.contains(&here), "{here}\nand there\n{printed}");
    assert!(digests().windows(2).any(|pair| pair[0] != pair[1]), "other seeds give other traces");
}
