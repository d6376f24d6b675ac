//! `castle rehearse`, from the binary: a file is tried, and nothing is written or read that is nobody's business.

use serde_json::Value;

use crate::room::BLUE;
use crate::world::World;

#[test]
fn a_file_is_rehearsed_and_nothing_is_written() {
    let world = World::with_castle(&BLUE.replace("{version: v1.13.9}", "{version: v1.13.9, serviceAccountKey: p256}"));
    let ran = world.castle(&["rehearse", "--worlds", "1", "--seed", "5", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [told, result] = lines.as_slice() else { panic!("{}", ran.transcript()) };
    assert_eq!((&told["event"], &told["seed"], &told["result"]), (&"world".into(), &5.into(), &"held".into()));
    let (verb, held) = (&result["verb"], &result["result"]);
    assert_eq!((verb, held, &result["worlds"]), (&"rehearse".into(), &"held".into(), &1.into()));
    assert_eq!(result["times"]["whole"]["p50"], told["seconds"]);
    assert_eq!(result["times"]["api"]["worlds"], 1);
    assert!(result["kills"].as_u64() >= Some(1), "{result}");
    assert!(result["not_rehearsed"].as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(world.files(), ["castle.yaml"]);
}

#[test]
fn secrets_that_are_not_there_are_not_missed() {
    let text = include_str!("../../../../templates/proxmox.yaml").replace("PROJECT", "green");
    let small = text
        .replace("talos: {version: v1.13.9}", "storage: none\ntalos: {version: v1.13.9, serviceAccountKey: p256}")
        .replace("count: 3", "count: 1")
        .replace("count: 2", "count: 1")
        .replace(", dataDisk: 100GiB", "");
    let world = World::with_castle(&small);
    let ran = world.castle(&["rehearse", "--worlds", "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    for expected in ["the API answers", "castle kept its promises in 1 of them", "your secrets: each has a stand-in"] {
        assert!(ran.stdout.contains(expected), "{}", ran.transcript());
    }
    assert_eq!(world.files(), ["castle.yaml"]);
}

#[test]
fn what_cannot_be_rehearsed_is_said() {
    let world = World::with_castle(&BLUE.replace("storage: none", "storage: none\ngitops: {repository: embedded}"));
    let ran = world.castle(&["rehearse", "--worlds", "1"]);
    assert_eq!(ran.code, Some(4), "{}", ran.transcript());
    assert!(ran.stderr.contains("is gone"), "the folder that Flux follows: {}", ran.transcript());
    assert_eq!(world.castle(&["rehearse", "nowhere"]).code, Some(4));
    assert_eq!(world.castle(&["rehearse", "--worlds", "0"]).code, Some(4));
}

#[test]
fn a_file_that_up_would_refuse_is_told_as_that() {
    let world = World::with_castle(&BLUE.replace("storage: none", "storage: none\ngitops: {repository: embedded}"));
    let bad = "apiVersion: nobody.example.com/v1\nkind: Unheard\nmetadata: {name: of}\n";
    world.write("gitops/clusters/blue/bad.yaml", bad);
    let before = world.files();
    let ran = world.castle(&["rehearse", "--seed", "7"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{}", ran.transcript());
    let words = [
        "nobody.example.com",
        "castle up would refuse blue like this (exit code 3), and change nothing: there is nothing to rehearse.",
        "next: mend that, then castle rehearse . --seed 7 --worlds 1 -v",
    ];
    assert!(words.iter().all(|words| ran.stderr.contains(words)), "{}", ran.transcript());
    let ran = world.castle(&["rehearse", "--seed", "7", "--json"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(3), 1), "{}", ran.transcript());
    let result = ran.result();
    assert_eq!((&result["verb"], &result["castle"]), (&"rehearse".into(), &"blue".into()));
    assert_eq!(
        (&result["result"], &result["worlds"], &result["first_seed"]),
        (&"refused".into(), &0.into(), &7.into())
    );
    let problems = result["problems"].as_array().unwrap();
    let [problem] = problems.as_slice() else { panic!("{result}") };
    assert!(problem["summary"].as_str().is_some_and(|why| why.contains("nobody.example.com")), "{result}");
    assert_eq!(world.files(), before);
}
