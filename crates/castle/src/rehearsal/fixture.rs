//! Castles and worlds for tests.

use std::path::Path;
use std::sync::Arc;

use castle_kubernetes::client::Api;
use castle_rehearsal::{ModelDisk, Pulse, in_virtual_time};

use super::{Life, Props, Script, Told};
use crate::commands::owners::connect;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Stand;

/// A small castle that has one of everything, on two hosts, with references of every kind.
pub(crate) const SMALL: &str = "castle: green
platform:
  proxmox:
    endpoint: https://pve.lan:8006
    fingerprint: \"AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99\"
    token: sops:secrets.enc.yaml#proxmox.token
    nodes: [pve1, pve2]
    storage: {disks: tank, images: local}
    bridge: vmbr1
    pool: castles
    vmids: 421-432
talos:
  version: v1.13.9
  serviceAccountKey: p256
  mirrors: {docker.io: {endpoints: ['https://mirror.lan'], credential: 'file:registry.txt'}}
kubernetes: {version: v1.36.3}
network: {cidr: 192.168.1.0/24, gateway: 192.168.1.1, nameservers: [192.168.1.1], vip: 192.168.1.210}
nodes:
  controlPlanes: {count: 1, firstAddress: 192.168.1.211, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 192.168.1.214, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
secrets:
  infisical: {region: eu, project: lab, environment: prod, path: /castles/green, identity: 'sops:secrets.enc.yaml#infisical'}
gitops:
  repository: ssh://git@git.lan/me/green.git
  credential: vault:GIT_TOKEN
  ageKey: env:AGE_KEY
  critical: {apps: 10m}
state: {recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]}
";

/// A castle in the embedded datacenter, with so many workers and this storage.
pub(crate) fn blue(workers: u32, storage: &str) -> String {
    format!(
        "castle: blue
platform: embedded
talos: {{version: v1.13.9, serviceAccountKey: p256}}
kubernetes: {{version: v1.36.3}}
network: {{cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}}
nodes:
  controlPlanes: {{count: 1, firstAddress: 127.42.0.11, cores: 4, memory: 4GiB, disk: 32GiB}}
  workers: {{count: {workers}, firstAddress: 127.42.0.21, cores: 4, memory: 8GiB, disk: 32GiB, dataDisk: 100GiB}}
storage: {storage}
"
    )
}

/// Holds that a verb ended so, and said all this.
#[track_caller]
pub(crate) fn hold(told: &Told, exit: Exit, words: &[&str]) {
    let text = &told.printed.text;
    let is_telling = |line: &&str| !line.contains(" s  ");
    let end: Vec<&str> = text.lines().filter(is_telling).collect();
    assert_eq!(told.exit, Some(exit), "{end:#?}");
    for word in words {
        assert!(text.contains(word), "{word:?}: {end:#?}");
    }
}

/// The script of the castle that this path means.
pub(crate) fn script(path: &Path) -> Arc<Script> {
    read(&Doors::system(), path)
}

/// Where a castle.yaml is that was written for a test.
pub(crate) const HOME: &str = "/castle";

/// The script of a castle.yaml, with a folder beside it that Flux can follow.
pub(crate) fn written(text: &str) -> Arc<Script> {
    read(&Doors { disk: Arc::new(folder(text)), ..Doors::system() }, Path::new(HOME))
}

fn folder(text: &str) -> ModelDisk {
    let disk = ModelDisk::default();
    disk.tamper(&Path::new(HOME).join("castle.yaml"), text.as_bytes().to_vec());
    let word = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: word, namespace: default}\ndata: {a: b}\n";
    disk.tamper(&Path::new(HOME).join("gitops/clusters/blue/word.yaml"), word.as_bytes().to_vec());
    disk
}

/// The same, with one more file beside it.
pub(crate) fn written_with(text: &str, file: &str, content: &str) -> Arc<Script> {
    let disk = folder(text);
    disk.tamper(&Path::new(HOME).join(file), content.as_bytes().to_vec());
    read(&Doors { disk: Arc::new(disk), ..Doors::system() }, Path::new(HOME))
}

fn read(doors: &Doors, path: &Path) -> Arc<Script> {
    read_with(doors, path, Props::default())
}

/// The script of the castle that this path means, with what a rehearsal is given beside it.
pub(crate) fn read_with(doors: &Doors, path: &Path, props: Props<'_>) -> Arc<Script> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Arc::new(runtime.block_on(Script::of(doors, path, props)).unwrap())
}

/// Runs `work` in a world of this seed, on a thread that has room for it.
pub(crate) fn in_a_world<T: Send>(script: &Arc<Script>, seed: u64, work: impl AsyncFnOnce(&Life) -> T + Send) -> T {
    std::thread::scope(|scope| {
        let world = || in_virtual_time(async |clock| work(&Life::begin(script, seed, clock)).await).unwrap();
        std::thread::Builder::new().stack_size(8 << 20).spawn_scoped(scope, world).unwrap().join().unwrap()
    })
}

/// Somebody who works in the cluster, and lives on when castle is killed.
pub(crate) async fn person(life: &Life) -> Api {
    life.tally.begin(&Pulse::new(), None);
    connect(&stand(life).await.kept).await.unwrap()
}

/// Where a verb would stand.
pub(crate) async fn stand(life: &Life) -> Stand {
    let folder = life.script.file.parent().unwrap_or(Path::new("/"));
    Stand::open(&life.doors(), folder, &mut Printer::into_memory()).await.unwrap()
}
