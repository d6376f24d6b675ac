//! The file that announces a castle's repository to the embedded datacenter, and others of a castle that has one.

use super::super::super::fixture::HOME;
use super::super::super::script::Script;
use super::verbs::{FOLLOWING, HANDING};
use super::*;

/// Every so many cases are lived through.
const FOLLOWED: usize = 2;

/// The castle with a repository that Flux follows: a folder beside its file.
fn text() -> String {
    let gitops = "gitops: {repository: embedded, path: clusters/blue}\n";
    furnished() + gitops
}

/// The same, once metallb is Flux's by the file.
fn handed_over() -> String {
    text() + "components: {metallb: {owner: flux}}\n"
}

fn script() -> Arc<Script> {
    written(&text())
}

/// Runs a verb, with castle.yaml as that verb wants it.
async fn run_with_file(life: &Life, verb: Verb) -> Told {
    let yaml = &life.script.file;
    if verb[0] == "handover" {
        life.disk().tamper(yaml, handed_over().into_bytes());
    }
    let told = life.run(verb).await;
    life.disk().tamper(yaml, text().into_bytes());
    told
}

/// Goal: whoever follows a folder is told if it cannot be, and the next `up` announces it again. Method: what announces it is damaged in each way, and so are two
/// files that every verb needs.
#[test]
fn what_announces_a_repository_is_made_anew() {
    in_worlds(&script(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        // Where people are when they name no folder.
        for (file, bytes) in life.disk().contents().into_iter().filter(|(file, _)| file.starts_with(HOME)) {
            life.disk().tamper(file.strip_prefix(HOME).unwrap(), bytes);
        }
        let (whole, mut wrong) = (kept(&life), Wrong::default());
        let is_announcement = |file: &Path| file.ends_with("repositories/blue-embedded");
        assert!(whole.keys().any(|file| is_announcement(file)), "{:?}", whole.keys());
        for verb in FOLLOWING {
            let told = run_with_file(&life, verb).await;
            assert!(!is_ill(&told), "{verb:?}: {}", told.printed.text);
        }
        let (before, secrets) = (bundle(&life), minted(&life).await);
        let newest = whole.keys().rfind(|file| file.to_string_lossy().contains("/state/secrets/")).unwrap();
        let is_meant = |file: &Path| is_announcement(file) || file.ends_with("castle") || file == newest;
        let cases = damaged(&whole).filter(|(file, _)| is_meant(file)).enumerate();
        for (_, (file, damage)) in
            cases.filter(|(number, (file, _))| is_announcement(file) || is_drawn(*number, FOLLOWED))
        {
            let name = format!("{} {damage:?}", file.display());
            damage.befall(&life, file, &whole[file]);
            life.tally.changes();
            for verb in FOLLOWING {
                look(&life, verb, &format!("{name}: {}", verb.join(" ")), (file, damage), &mut wrong).await;
            }
            for verb in HANDING {
                let told = run_with_file(&life, verb).await;
                wrong.unless_named(&told, &format!("{name}: {}", verb.join(" ")), (file, damage));
                wrong.unless(bundle(&life) == before, &name, "it is another castle", &told);
                wrong.unless(minted(&life).await.is_none_or(|now| Some(now) == secrets), &name, "other secrets", &told);
                restore(&life, &whole);
                damage.befall(&life, file, &whole[file]);
            }
            let mut up = life.run(&["up"]).await;
            wrong.unless_named(&up, &format!("{name}: up"), (file, damage));
            if is_announcement(file) {
                if damage == Damage::Supplanted {
                    wrong.unless(up.printed.text.contains("move it away"), &name, "up", &up);
                    life.disk().lose(file);
                    up = life.run(&["up"]).await;
                }
                wrong.unless(up.exit == Some(Exit::Done), &name, "up", &up);
                let is_anew = life.disk().contents().get(file) == Some(&whole[file]);
                wrong.unless(is_anew, &name, "is not announced anew", &up);
            }
            restore(&life, &whole);
        }
        wrong.hold();
    });
}
