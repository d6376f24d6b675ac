//! The manifests that castle keeps once it has had them: a castle on Proxmox, which has its own from a mirror.

use castle_components::lock::{self, Lock};
use castle_components::mirror::{Listed, write_index};
use castle_components::source::{Entry, Source};
use castle_components::{digest, standin};
use castle_rehearsal::ModelDisk;
use castle_spec::ComponentName;

use super::super::super::fixture::{HOME, read_with};
use super::super::super::script::{Props, Script};
use super::*;
use crate::doors::Doors;

const CASTLE: &str = "castle: green
platform:
  proxmox:
    endpoint: https://pve.lan:8006
    fingerprint: \"AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99\"
    token: sops:secrets.enc.yaml#proxmox.token
    nodes: [pve]
    storage: {disks: tank, images: local}
    vmids: 421-432
talos: {version: v1.13.9, serviceAccountKey: p256}
kubernetes: {version: v1.36.3}
network: {cidr: 192.168.1.0/24, gateway: 192.168.1.1, nameservers: [192.168.1.1], vip: 192.168.1.210, loadBalancers: 192.168.1.240-192.168.1.250}
nodes:
  controlPlanes: {count: 1, firstAddress: 192.168.1.211, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 192.168.1.214, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
";
/// The verbs that look at what is in the cluster, or at where it comes from.
const LOOKING: [Verb; 4] = [&["plan"], &["status"], &["drift"], &["doctor"]];
const MIRROR: &str = "/mirror";

/// A castle with MetalLB, pinned to what a mirror has.
fn script() -> Arc<Script> {
    let disk = ModelDisk::default();
    let (component, mirror) = (ComponentName::Metallb, Path::new(MIRROR));
    let (file, text) = (format!("{component}.yaml"), standin::text(component));
    let (version, sha256) = (component.newest(), digest(text.as_bytes()));
    let entry = Entry { version: version.clone(), source: Source::Mirror(file.clone()), sha256: sha256.clone() };
    let locked = Lock { entries: [(component, entry)].into() };
    let listed = Listed { component, version, file: file.clone(), sha256, upstream: String::new(), images: Vec::new() };
    disk.tamper(&mirror.join(file), text.into_bytes());
    disk.tamper(&mirror.join("index.yaml"), write_index(&[listed]).into_bytes());
    disk.tamper(&Path::new(HOME).join("castle.yaml"), CASTLE.as_bytes().to_vec());
    disk.tamper(&Path::new(HOME).join(lock::FILE), locked.write().into_bytes());
    let doors = Doors { disk: Arc::new(disk), ..Doors::system() };
    read_with(&doors, Path::new(HOME), Props { mirror: Some(mirror), ..Props::default() })
}

/// Holds that whoever only looks writes nothing at all.
async fn look_alone(life: &Life) {
    let before = life.disk().contents();
    for verb in LOOKING {
        let told = life.run(verb).await;
        assert!(told.exit.is_some(), "{verb:?}");
        assert_eq!(life.disk().contents(), before, "{verb:?}: {}", told.printed.text);
    }
}

/// Goal: whoever only looks keeps nothing, not even what it had to fetch. Method: before anything stands, once it does, and with what is kept lost, damaged, and a
/// folder in its place; the next `up` keeps it again.
#[test]
fn whoever_only_looks_keeps_no_manifest() {
    in_worlds(&script(), &SEEDS[..1], async |life| {
        look_alone(&life).await;
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let whole = kept(&life);
        let manifests: Files = whole.clone().into_iter().filter(|(file, _)| is_manifest(file)).collect();
        assert_eq!(manifests.len(), 1, "{:?}", whole.keys());
        for (file, damage) in damaged(&manifests) {
            damage.befall(&life, file, &whole[file]);
            look_alone(&life).await;
            for verb in [&["status"][..], &["plan"], &["drift"], &["up"]] {
                hold(&life.run(verb).await, Exit::Done, &[]);
            }
            let is_kept = life.disk().contents().get(file) == Some(&whole[file]);
            assert!(is_kept || damage == Damage::Supplanted, "{damage:?}");
            restore(&life, &whole);
        }
    });
}

fn is_manifest(file: &Path) -> bool {
    file.parent().is_some_and(|folder| folder.ends_with(".manifests"))
}
