//! Every line of a recording, asked again.

use castle_testbed::in_virtual_time;
use regex::Regex;

use crate::differences::{DIFFERENCES, Difference};
use crate::probes::ask;
use crate::wire::Node;
use crate::{AS_CONTROL_PLANE, IN_MAINTENANCE, base};

/// The name of what was asked in a line.
fn name(line: &str) -> &str {
    let marks = [" GET ", " LIST ", " ERR ", " ok ", " {\"", ": "];
    let end = marks.iter().filter_map(|mark| line.find(mark)).min().unwrap_or(line.len());
    line[..end].trim()
}

/// The probes of a recording: what was asked, and the lines that were answered.
fn probes(text: &str) -> Vec<(String, Vec<String>)> {
    let mut probes: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("tls:")) {
        if line.starts_with("    first:") {
            probes.last_mut().unwrap().1.push(line.to_owned());
            continue;
        }
        let name = name(line);
        let answer = line[line.find(name).unwrap() + name.len()..].trim_start_matches(':').trim().to_owned();
        match probes.last_mut().filter(|(last, _)| last == name) {
            Some((_, answers)) => answers.push(answer),
            None => probes.push((name.to_owned(), vec![answer])),
        }
    }
    probes
}

/// An answer without what differs from one machine to the next and means nothing: numbers of members and processes, sizes of what
/// is streamed; and where the recording was cut, as far as it goes.
fn normal(name: &str, lines: &[String]) -> String {
    let patterns = [
        (r"\d{17,20}", "<id>"),
        (r"memberID: [0-9a-f]{16}", "memberID: <id>"),
        (r"nodeId: \w{40,46}", "nodeId: <id>"),
        (r"PID \d+", "PID <n>"),
        (r#""pid":\d+"#, r#""pid":<n>"#),
        (r"ok \d+ bytes", "ok <n> bytes"),
    ];
    let mut text = lines.join("\n");
    for (pattern, stands) in patterns {
        text = Regex::new(pattern).unwrap().replace_all(&text, stands).into_owned();
    }
    let is_long = ["MachineConfigs.", "OSRootSecrets.", "EtcdSecrets."].iter().any(|kind| name.contains(kind));
    if is_long {
        // Presence is what counts: keys and texts are each node's own.
        text = Regex::new(r#"proto=\d+ yaml="(?s:.{0,12}).*"#)
            .unwrap()
            .replace_all(&text, "proto=<n> yaml=<text>")
            .into_owned();
    }
    if name == "ServiceList" {
        // The recording was cut within the third event of containerd.
        let start = text.find("\"id\":\"containerd\"").unwrap_or(text.len());
        let mut events = text[start..].match_indices("\"ts\":\"<X>\"}");
        if let Some((at, last)) = events.nth(1) {
            text.truncate(start + at + last.len());
        }
    }
    text
}

/// Asks everything of a node and holds it against the recording. Tells what differs and is not in the list, and what is in the list
/// and does not differ.
async fn hold(state: &str, text: &str, node: &Node) -> Vec<String> {
    let mut problems = Vec::new();
    let mut known: Vec<&Difference> = DIFFERENCES.iter().filter(|it| it.state == state).collect();
    let mut count = 0;
    for (name, recorded) in probes(text) {
        let answered = ask(node, &name, recorded.len()).await;
        let (recorded, answered) = (normal(&name, &recorded), normal(&name, &answered));
        count += 1;
        let found = known.iter().position(|it| it.probe == name);
        match (recorded == answered, found) {
            (true, None) => {}
            (true, Some(_)) => problems.push(format!("{state}: {name}: the same again: take it from the list")),
            (false, Some(at)) => {
                let difference = known.remove(at);
                // The rest is as recorded.
                let foretold = difference.parts.iter().fold(recorded.clone(), |text, (theirs, ours)| {
                    if text.matches(theirs).count() != 1 {
                        problems.push(format!("{state}: {name}: {theirs:?} is not once in the recording"));
                    }
                    text.replace(theirs, ours)
                });
                if answered != foretold {
                    problems.push(format!(
                        "{state}: {name}: not as the list says:\n  real {recorded}\n  list {foretold}\n  ours {answered}"
                    ));
                }
            }
            (false, None) => {
                problems.push(format!("{state}: {name}\n  real {recorded}\n  ours {answered}"));
            }
        }
    }
    assert!(count > 60, "{count} probes");
    problems.extend(known.iter().map(|it| format!("{state}: {}: was not asked, or is the same again", it.probe)));
    problems
}

#[test]
fn a_node_in_maintenance_answers_as_recorded() {
    in_virtual_time(async |clock| {
        let nodes = base::machine(clock).await;
        let problems = hold("maintenance", IN_MAINTENANCE, &nodes.stranger(0)).await;
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
}

#[test]
fn a_control_plane_answers_as_recorded() {
    in_virtual_time(async |clock| {
        let nodes = base::control_plane(clock).await;
        let problems = hold("control plane", AS_CONTROL_PLANE, &nodes.admin(0)).await;
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
}

#[test]
fn every_difference_has_its_reason() {
    for difference in DIFFERENCES {
        assert!(difference.why.len() > 10 && !difference.parts.is_empty(), "{}", difference.probe);
    }
}
