//! Privileges: what the printed commands grant is enough, and none of it is too much.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use castle_datacenter::blueprint::{AclEntry, GIB, Storage, StorageKind, Token as TokenOf, User};
use castle_datacenter::{Blueprint, Version};
use castle_engine::{Alone, Deaf, Graph, GraphBuilder, Journal, Tools, Wanted, run};
use castle_layers::cluster::Rolling;
use castle_layers::doctor::{Finding, Verdict, needs};
use castle_layers::platform::{self, Design, Whose};
use castle_layers::{Site, place, survey};
use castle_proxmox::model::{Release, pveum, requirements};
use castle_proxmox::steps::{Ground, Reach};
use castle_seams::Disk;
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};

use super::practice::{POOL, Practice, TWO, embedded, file, ill};

/// What the commands of [`pveum`] make, read from the commands.
#[derive(Clone, Debug, Default)]
struct Granted {
    roles: BTreeMap<String, Vec<String>>,
    acl: Vec<(String, String, bool)>,
    pools: Vec<String>,
}

impl Granted {
    fn read(lines: &[String]) -> Self {
        let mut granted = Self::default();
        for line in lines.iter().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["pveum", "pool", "add", pool] => granted.pools.push((*pool).to_owned()),
                ["pveum", "role", "add", role] => drop(granted.roles.insert((*role).to_owned(), Vec::new())),
                ["pveum", "role", "modify", role, "--privs", ..] => {
                    let privileges = line.split('\'').nth(1).unwrap().split(' ').map(str::to_owned).collect();
                    assert!(granted.roles.insert((*role).to_owned(), privileges).is_some(), "{role} is not there yet");
                }
                ["pveum", "user", "add", "castle@pve"]
                | ["pveum", "user", "token", "add", "castle@pve", "blue", "--privsep", "1"] => {}
                [
                    "pveum",
                    "acl",
                    "modify",
                    path,
                    "--users",
                    "castle@pve",
                    "--tokens",
                    "'castle@pve!blue'",
                    "--roles",
                    role,
                    "--propagate",
                    below,
                ] => {
                    assert!(granted.roles.contains_key(*role), "{role} is not there yet");
                    granted.acl.push(((*path).to_owned(), (*role).to_owned(), *below == "1"));
                }
                _ => panic!("what is `{line}`?"),
            }
        }
        granted
    }

    fn of(practice_file: &str, version: Version) -> Self {
        let castle = castle_spec::read(practice_file.as_bytes()).castle.unwrap();
        let site = Site::of(&castle);
        Self::read(&pveum(&needs(&site), release(version), "castle@pve", "blue"))
    }

    /// A datacenter in which nothing else is granted.
    fn blueprint(&self, version: Version) -> Blueprint {
        let mut blueprint = embedded(&["pve1", "pve2"]);
        blueprint.version = version;
        blueprint.storages.push(Storage::new("all", StorageKind::Dir, &["images", "import"], 500 * GIB));
        let token = TokenOf { name: "blue".into(), secret: "secret".into(), privsep: true };
        blueprint.users = vec![User { id: "castle@pve".into(), password: None, tokens: vec![token] }];
        blueprint.roles = self.roles.clone();
        blueprint.pools = self.pools.clone();
        let entry = |who: &str| {
            let who = who.to_owned();
            move |(path, role, propagate): &(String, String, bool)| AclEntry {
                path: path.clone(),
                who: who.clone(),
                role: role.clone(),
                propagate: *propagate,
            }
        };
        blueprint.acl =
            self.acl.iter().map(entry("castle@pve")).chain(self.acl.iter().map(entry("castle@pve!blue"))).collect();
        blueprint
    }

    fn practice(&self, version: Version, text: &str, clock: &VirtualClock) -> Practice {
        let practice = Practice::new(self.blueprint(version), text, clock);
        Practice { token: "castle@pve!blue=secret".into(), ..practice }
    }

    fn examine(&self, version: Version, text: &str) -> Vec<Finding> {
        in_virtual_time(async |clock| self.practice(version, text, clock).examine().await)
    }
}

fn release(version: Version) -> Release {
    match version {
        Version::Eight => Release { major: 8, minor: 4 },
        Version::Nine => Release { major: 9, minor: 2 },
    }
}

/// Castles that differ in what they need, on both generations.
fn kinds(keys: &[&[&str]]) -> Vec<(Version, String)> {
    let files: Vec<String> = keys.iter().map(|keys| file(2, keys)).collect();
    let on = |version: Version| files.iter().map(move |file| (version, file.clone()));
    on(Version::Eight).chain(on(Version::Nine)).collect()
}

#[test]
fn what_pveum_grants_is_enough_for_the_doctor_and_nothing_of_it_can_be_left_out() {
    for (version, text) in kinds(&[&[TWO], &[TWO, POOL], &[TWO, "storage: {disks: all, images: all}"]]) {
        let granted = Granted::of(&text, version);
        assert_eq!(ill(&granted.examine(version, &text)), [""; 0], "{text}");
        for (role, privileges) in &granted.roles {
            for privilege in privileges {
                let mut less = granted.clone();
                less.roles.get_mut(role).unwrap().retain(|it| it != privilege);
                let paths: BTreeSet<&str> =
                    granted.acl.iter().filter(|(_, of, _)| of == role).map(|(path, ..)| path.as_str()).collect();
                assert_named(&less.examine(version, &text), privilege, &paths);
            }
        }
        for index in 0..granted.acl.len() {
            let mut less = granted.clone();
            let (path, role, _) = less.acl.remove(index);
            let findings = less.examine(version, &text);
            let named: BTreeSet<&str> = lacking(&findings).map(|it| it.subject.as_str()).collect();
            assert_eq!(named, BTreeSet::from([path.as_str()]), "without {role} on {path}: {findings:?}");
        }
    }
}

fn lacking(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|it| it.check == "privileges" && it.verdict != Verdict::Well)
}

/// Holds that this privilege is named at these places, and that nothing else is said to be wrong.
fn assert_named(findings: &[Finding], privilege: &str, paths: &BTreeSet<&str>) {
    let named: BTreeSet<&str> = lacking(findings).map(|it| it.subject.as_str()).collect();
    assert_eq!(&named, paths, "without {privilege}: {findings:?}");
    for finding in lacking(findings) {
        assert!(finding.evidence.starts_with(&format!("{privilege} is missing: ")), "{finding:?}");
    }
    let others = findings.iter().filter(|it| it.check != "privileges");
    for finding in others {
        assert!([Verdict::Well, Verdict::Unknown].contains(&finding.verdict), "without {privilege}: {finding:?}");
    }
}

#[test]
fn each_privilege_that_is_revoked_is_named_and_nothing_else() {
    let text = file(2, &[TWO, POOL]);
    let granted = Granted::of(&text, Version::Nine);
    let site = Site::of(&castle_spec::read(text.as_bytes()).castle.unwrap());
    let all = requirements(&needs(&site));
    for privilege in all.iter().map(|it| it.privilege).collect::<BTreeSet<_>>() {
        let paths = all.iter().filter(|it| it.privilege == privilege).map(|it| it.path.as_str()).collect();
        let findings = in_virtual_time(async |clock| {
            let practice = granted.practice(Version::Nine, &text, clock);
            practice.datacenter.revoke("castle@pve!blue", privilege);
            practice.examine().await
        });
        assert_named(&findings, privilege, &paths);
    }
}

async fn execute(practice: &Practice, graph: &Graph) {
    let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
    let journal = Mutex::new(Journal::open(&disk, Path::new("/journal"), &practice.id).unwrap().0);
    let (clock, fence) = (practice.clock.as_ref(), Alone { epoch: 1 });
    let entropy = &Chance::new(1);
    let tools = Tools { clock, entropy, fence: &fence, listener: &Deaf, signals: None, journal: Some(&journal) };
    let report = run(graph, tools, &Wanted::all(practice.id.clone())).await;
    let undone: Vec<_> = report.ended(|outcome| !outcome.is_done()).collect();
    assert!(undone.is_empty(), "{undone:#?}");
}

/// Not only the doctor: castle itself raises, removes and raises again with these rights alone.
#[test]
fn what_pveum_grants_is_enough_to_raise_a_castle_and_to_raise_it_again() {
    for (version, text) in kinds(&[&[TWO], &[TWO, POOL], &[TWO, POOL, "vlan: 30"]]) {
        let granted = Granted::of(&text, version);
        in_virtual_time(async |clock| {
            let practice = granted.practice(version, &text, clock);
            practice.datacenter.unwatch();
            let (site, castle, nodes) = (&practice.site, &practice.castle, practice.nodes.as_slice());
            for life in 0..2 {
                let ground = || {
                    Arc::new(Ground::new(Arc::new(practice.client()), practice.id.clone(), site.vmids.clone(), false))
                };
                let at_work = ground();
                let survey = survey(&at_work, site).await.unwrap();
                let placed = place(site, &survey, nodes).unwrap();
                let mut graph = GraphBuilder::new();
                platform::raise(
                    &mut graph,
                    &at_work,
                    Design {
                        castle,
                        nodes,
                        placed: &placed,
                        site,
                        survey: &survey,
                        after: None,
                        checked: None,
                        rolling: &Rolling::at_once(),
                    },
                );
                execute(&practice, &graph.build().unwrap()).await;
                assert_eq!(ill(&practice.examine().await), [""; 0], "life {life}");
                let at_work = ground();
                let mut doomed = platform::found(&at_work).await.unwrap();
                assert!(doomed.iter().all(|guest| guest.whose == Whose::Ours) && doomed.len() > nodes.len());
                let mut graph = GraphBuilder::new();
                doomed.sort_by_key(|guest| guest.vmid);
                let downloads = platform::downloads(&at_work, site).await.unwrap();
                assert_eq!(downloads.unseen, []);
                platform::raze(&mut graph, &at_work, site, &doomed, Reach::Marked, &downloads.places);
                execute(&practice, &graph.build().unwrap()).await;
            }
        });
    }
}
