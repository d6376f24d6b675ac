use castle_spec::model::ComponentOwner;

use super::*;
use crate::pins::pin;

fn lock() -> Lock {
    let entries = ComponentName::ALL.map(|name| (name, pin(name, &name.newest()).unwrap().entry(&name.newest())));
    Lock { entries: entries.into_iter().collect() }
}

fn wanted(name: ComponentName) -> WantedComponent {
    WantedComponent { name, version: name.newest(), owner: ComponentOwner::Castle, patches: Vec::new(), source: None }
}

#[test]
fn what_is_written_is_read_again() {
    insta::assert_snapshot!(lock().write(), @r"
    # Which manifests castle installs in this castle's cluster, and what their bytes must be.
    # Written by `castle lock`. Keep it in git: castle uses nothing that differs from it.
    schema: 1
    components:
      external-secrets:
        version: v2.9.0
        source: mirror:external-secrets-v2.9.0.yaml
        sha256: 138c45c68f1b06ef20b8a61d217f882ea05f12589436f2b393552b433fad6881
      metallb:
        version: v0.16.1
        source: https://raw.githubusercontent.com/metallb/metallb/v0.16.1/config/manifests/metallb-native.yaml
        sha256: bf25feebb7582ca7df845efd52ffbc2960d6cbf4cfc972f47fded9f788b67f0b
      longhorn:
        version: v1.12.1
        source: https://raw.githubusercontent.com/longhorn/longhorn/v1.12.1/deploy/longhorn.yaml
        sha256: 41648963af867ac1d0c85755fb53cf61cacd57c9bb22e1942e3fb0439eeb04fd
      flux:
        version: v2.9.0
        source: mirror:flux-v2.9.0-components.yaml
        sha256: a1dc029bb89dc6f55fc1a5370674adefce990b4d58d1913d7ea5a6a45edc39bf
    ");
    assert_eq!(Lock::read(&lock().write()).unwrap(), lock());
    assert_eq!(Lock::read(&Lock::default().write()).unwrap(), Lock::default());
    let mut odd = lock();
    odd.entries.get_mut(&ComponentName::Flux).unwrap().source = Source::File("a: b # c.yaml".to_owned());
    assert_eq!(Lock::read(&odd.write()).unwrap(), odd, "whatever a file is called");
}

#[test]
fn a_mistake_is_told_with_its_line() {
    let told = |from: &str, to: &str| {
        let text = lock().write();
        assert!(text.contains(from), "{from}");
        Lock::read(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let all = [
        told("schema: 1", "schema: 2"),
        told("schema: 1\n", ""),
        told("schema: 1", "schema: 1\nextra: 1"),
        told("  metallb:", "  metalb:"),
        told("version: v0.16.1", "version: 0.16"),
        told("    version: v1.12.1\n", ""),
        told("source: https://raw", "source: http://raw"),
        told("sha256: 41648963", "sha256: 4164896X"),
        told("sha256: 41648963", "sha257: 41648963"),
        told("components:", "components: ["),
        Lock::read("- a\n").unwrap_err().to_string(),
        Lock::read("schema: 1\n---\nschema: 1\n").unwrap_err().to_string(),
        Lock::read("schema: 1\ncomponents: 5\n").unwrap_err().to_string(),
        Lock::read("schema: 1\ncomponents:\n  flux: 5\n").unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

/// The file as castles have it.
const RECORDED: &str = "\
schema: 1
components:
  flux:
    version: v2.9.0
    source: mirror:flux-v2.9.0-components.yaml
    sha256: a1dc029bb89dc6f55fc1a5370674adefce990b4d58d1913d7ea5a6a45edc39bf
";

/// What a newer castle wrote is called that, whatever else is in it.
#[test]
fn the_recorded_file_is_read_and_a_newer_one_is_named() {
    let mut one = lock();
    one.entries.retain(|name, _| *name == ComponentName::Flux);
    assert_eq!(Lock::read(RECORDED), Ok(one));
    for also in ["", "signature: x\n"] {
        let newer = format!("{also}{}", RECORDED.replace("schema: 1", "schema: 2"));
        let told = Lock::read(&newer).unwrap_err().to_string();
        assert!(told.ends_with("castle reads `schema: 1` alone; a newer castle may read this"), "{told}");
    }
}

#[test]
fn what_is_stale_is_told() {
    let all: Vec<WantedComponent> = ComponentName::ALL.into_iter().map(wanted).collect();
    assert_eq!(lock().stale(&all), []);
    let mut changed = all.clone();
    changed[0].owner = ComponentOwner::Flux;
    changed[1].version = "v0.15.3".parse().unwrap();
    changed[2].source = Some("longhorn.yaml".to_owned());
    let mut fewer = lock();
    fewer.entries.remove(&ComponentName::Flux);
    let told: Vec<String> = fewer.stale(&changed).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "castle.yaml wants metallb v0.15.3, castle.lock pins v0.16.1",
            "castle.yaml has longhorn from file:longhorn.yaml, castle.lock from \
             https://raw.githubusercontent.com/longhorn/longhorn/v1.12.1/deploy/longhorn.yaml",
            "flux is not in castle.lock",
            "castle.lock pins external-secrets, which castle does not install here",
        ]
    );
}
