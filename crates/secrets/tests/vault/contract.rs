//! The steps: what every step must hold, and what these alone must.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use castle_datacenter::blueprint::{Approvals, Placed, Right};
use castle_datacenter::{Asked, Reply, VaultAsked, VaultReply, Witness};
use castle_engine::{
    CastleId, Decision, Fault, Graph, GraphBuilder, Impact, Layer, Operation, Place, Step, StepId, lineage,
};
use castle_seams::{BoxFuture, Clock};
use castle_secrets::vault::keep::{Files, RemoveFiles, SaveFiles, Shelf};
use castle_testbed::contract::{self, Outside, Subject};
use castle_testbed::{Call, ModelDisk, Pulse, in_virtual_time};

use crate::room::{CLIENT_ID, HOST, PATH, PROJECT, Room, secrets};

/// Counts requests, makes one of them end badly, and lets a process die at an effect. Logging in is no effect.
struct Fate {
    pulse: Pulse,
    calls: Mutex<u64>,
    failing: Mutex<Option<(u64, Call)>>,
}

impl Witness for Fate {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn vault(&self, asked: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        let number = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls - 1
        };
        let failing = self.failing.lock().unwrap().filter(|(which, _)| *which == number);
        let is_effect = asked.is_change && !asked.target.contains("/auth/");
        let mut handle = || if is_effect { self.pulse.effect(&mut *handle) } else { Some(handle()) };
        match failing.map(|(_, how)| how) {
            None => handle(),
            Some(Call::Refused) => Some(VaultReply::failure(429, "RateLimitExceeded", "Please try again in 3 seconds")),
            Some(Call::Busy) => Some(VaultReply::failure(503, "", "Service Unavailable")),
            Some(Call::LostBefore) => None,
            Some(Call::LostAfter) => {
                handle();
                None
            }
            Some(Call::Never) => {
                Some(VaultReply::failure(403, "PermissionDenied", "You are not allowed to edit on secrets"))
            }
        }
    }
}

/// Gives the files that another step would.
struct Give;

impl Step for Give {
    type Needs = ();
    type Observed = ();
    type Action = ();
    type Output = Files;

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn decide(&self, (): &(), (): &()) -> Decision {
        Decision::Nothing
    }

    fn act<'a>(&'a self, (): &'a (), (): &'a (), (): &'a (), _: &'a Operation) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn output(&self, (): &(), (): &()) -> Files {
        files()
    }
}

fn files() -> Files {
    Files(secrets(&[
        ("KUBECONFIG", " apiVersion: v1\nkind: Config\n\n"),
        ("TALOSCONFIG", "context: blue\n"),
        ("TALOS_BUNDLE", "-----BEGIN AGE ENCRYPTED FILE-----\nplanted\n-----END AGE ENCRYPTED FILE-----\n"),
    ]))
}

fn castle() -> CastleId {
    CastleId { name: "blue".into(), lineage: "abc123".into(), generation: 1 }
}

fn shelf(room: &Room, path: &str) -> Shelf {
    Shelf { vault: Arc::new(room.client()), path: path.to_owned(), castle: castle() }
}

fn saving(shelf: Shelf) -> Graph {
    let (mut graph, layer) = (GraphBuilder::new(), Layer::new("secrets"));
    let files = graph.step(StepId::new(&layer, "files", "blue"), Place::default(), (), Give);
    graph.step(StepId::new(&layer, "saved", "blue"), Place::default(), (files,), SaveFiles::new(shelf));
    graph.build().unwrap()
}

fn removing(shelf: Shelf) -> Graph {
    let mut graph = GraphBuilder::new();
    let id = StepId::new(&Layer::new("secrets"), "removed", "blue");
    graph.step(id, Place::default(), (), RemoveFiles::new(shelf));
    graph.build().unwrap()
}

/// The castle's folder is new in `/castle/new`.
struct Saving;

struct Watched {
    room: Room,
    fate: Arc<Fate>,
}

impl Watched {
    fn new(room: Room, pulse: &Pulse) -> Self {
        let fate = Arc::new(Fate { pulse: pulse.clone(), calls: Mutex::default(), failing: Mutex::default() });
        room.datacenter.unwatch();
        room.datacenter.watch(fate.clone());
        Self { room, fate }
    }
}

impl Outside for Watched {
    /// Folders are not told: one that castle made is left to whoever uses it since.
    fn snapshot(&self) -> String {
        format!("{:#?}", self.room.datacenter.vault(HOST).secrets)
    }

    fn effects(&self) -> BTreeMap<String, u32> {
        self.room.datacenter.effects()
    }

    fn calls(&self) -> u64 {
        *self.fate.calls.lock().unwrap()
    }

    fn fail_call(&self, number: u64, how: Call) {
        *self.fate.failing.lock().unwrap() = Some((number, how));
    }
}

impl Subject for Saving {
    type World = Watched;

    fn world(&self, pulse: &Pulse, clock: Arc<dyn Clock>) -> Watched {
        Watched::new(Room::new(clock), pulse)
    }

    fn met_again(&self, world: &Watched, pulse: &Pulse, _: Arc<dyn Clock>) -> Watched {
        Watched::new(world.room.again(), pulse)
    }

    fn graph(&self, world: &Watched) -> Graph {
        saving(shelf(&world.room, "/castle/new"))
    }

    fn undo(&self, world: &Watched) -> Graph {
        removing(shelf(&world.room, "/castle/new"))
    }
}

#[test]
fn run_twice_and_undone_twice() {
    contract::hold_when_repeated(&Saving);
}

#[test]
fn failed_at_every_call_in_every_way() {
    assert!(contract::hold_when_failed(&Saving) >= 35);
}

#[test]
fn killed_at_every_effect() {
    assert!(contract::hold_when_killed(&Saving) >= 60);
}

async fn outcome(graph: &Graph, clock: &castle_testbed::VirtualClock) -> Vec<String> {
    let pulse = Pulse::new();
    let report = contract::converge(graph, &ModelDisk::new(&pulse), &pulse, clock, 0).await.unwrap();
    report.ended(|outcome| !outcome.is_done()).map(|failed| format!("{failed:?}")).collect()
}

#[test]
fn what_is_saved_is_found_on_another_machine() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        assert_eq!(outcome(&saving(shelf(&room, PATH)), clock).await, Vec::<String>::new());
        let found = shelf(&room, PATH).load().await.unwrap();
        assert_eq!(found.0.keys().collect::<Vec<_>>(), files().0.keys().collect::<Vec<_>>(), "nothing of others");
        assert_eq!(found.0["KUBECONFIG"].expose(), "apiVersion: v1\nkind: Config\n");
        let notes = room.datacenter.vault(HOST).comments;
        let note = &notes["tazlab prod:/castle/blue/proxmox/KUBECONFIG"];
        assert_eq!(note, "kept by castle, note 1: blue, lineage abc123, life 1", "for people to read");
        let owners = Shelf::owners(&room.client(), PATH).await.unwrap();
        assert_eq!(owners, [castle()].into());
        let stranger = Shelf { castle: CastleId { lineage: "other".into(), ..castle() }, ..shelf(&room, PATH) };
        assert!(stranger.load().await.unwrap().0.is_empty());
        assert!(shelf(&room, "/nowhere").load().await.unwrap().0.is_empty());
    });
}

#[test]
fn what_is_not_castles_is_neither_changed_nor_removed() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.place_secret(HOST, PROJECT, Placed::new("prod", PATH, "KUBECONFIG", "somebody's"));
        let before = room.datacenter.vault(HOST);
        let failed = outcome(&saving(shelf(&room, PATH)), clock).await;
        assert!(failed.len() == 1 && failed[0].contains("castle did not write it"), "{failed:?}");
        assert_eq!(outcome(&removing(shelf(&room, PATH)), clock).await, Vec::<String>::new());
        assert_eq!(room.datacenter.vault(HOST), before);

        let green = CastleId { name: "green".into(), lineage: "other".into(), ..castle() };
        let shelf_of_green = Shelf { castle: green, ..shelf(&room, "/castle/shared") };
        assert_eq!(outcome(&saving(shelf_of_green), clock).await, Vec::<String>::new());
        let failed = outcome(&saving(shelf(&room, "/castle/shared")), clock).await;
        assert!(failed.len() == 1 && failed[0].contains("kept by another castle of the name green"), "{failed:?}");
    });
}

/// What a castle of another version kept is named, and left as it is.
#[test]
fn what_an_unversioned_castle_kept_is_named_and_left_alone() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let (vault, kept) = (shelf(&room, PATH).vault, [("KUBECONFIG".to_owned(), "theirs".to_owned().into())].into());
        vault.ensure_folder(PATH).await.unwrap();
        vault.upsert(PATH, &kept, "kept by castle blue, lineage abc123").await.unwrap();
        let before = room.datacenter.vault(HOST);
        let error = shelf(&room, PATH).load().await.unwrap_err();
        assert!(
            error.to_string().contains("of another version") && error.next.contains("take the castle down"),
            "{error}"
        );
        let failed = outcome(&saving(shelf(&room, PATH)), clock).await;
        assert!(failed.len() == 1 && failed[0].contains("of another version"), "{failed:?}");
        assert_eq!(outcome(&removing(shelf(&room, PATH)), clock).await, Vec::<String>::new());
        assert_eq!(room.datacenter.vault(HOST), before);
    });
}

/// Goal: what a later life has kept is neither written over nor removed by whoever remembers an earlier one. Method: a shelf of life 2 saves, then one of life 1 saves
/// and removes; the other way about, the later one takes over.
#[test]
fn what_a_later_life_kept_is_left_to_it() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let of_life = |generation| Shelf { castle: CastleId { generation, ..castle() }, ..shelf(&room, PATH) };
        assert_eq!(outcome(&saving(of_life(2)), clock).await, Vec::<String>::new());
        let before = room.datacenter.vault(HOST);
        for graph in [saving(of_life(1)), removing(of_life(1))] {
            let failed = outcome(&graph, clock).await;
            let words = "is of life 2 of this castle, and what is remembered here ends with life 1: the state is older than the castle";
            assert!(
                failed.len() == 1 && failed[0].contains(words) && failed[0].contains(lineage::OUTDATED),
                "{failed:?}"
            );
            assert!(failed[0].contains("guarded: true"), "{failed:?}");
            assert_eq!(room.datacenter.vault(HOST), before);
        }
        assert_eq!(outcome(&saving(of_life(3)), clock).await, Vec::<String>::new());
        let owners = Shelf::owners(&room.client(), PATH).await.unwrap();
        assert_eq!(owners.into_iter().map(|castle| castle.generation).collect::<Vec<_>>(), [3]);
        assert_eq!(outcome(&removing(of_life(3)), clock).await, Vec::<String>::new());
        assert!(of_life(3).load().await.unwrap().0.is_empty());
    });
}

#[test]
fn drift_is_made_good_and_told_without_values() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        outcome(&saving(shelf(&room, PATH)), clock).await;
        room.datacenter.remove_secret(HOST, PROJECT, "prod", PATH, "TALOSCONFIG");
        let mut changed = files();
        changed.0.extend(secrets(&[("KUBECONFIG", "planted-new-kubeconfig")]));
        let (step, needs) = (SaveFiles::new(shelf(&room, PATH)), (Arc::new(changed),));
        let observed = step.observe(&needs).await.unwrap();
        let Decision::Act(_, change) = step.decide(&needs, &observed) else { panic!("there is drift") };
        assert_eq!((change.verb.as_str(), change.impact), ("save", Impact::InPlace));
        let told: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["KUBECONFIG: outdated -> saved", "TALOSCONFIG: saved"]);
        assert!(!format!("{observed:?} {change:?}").contains("planted"));
    });
}

#[test]
fn approvals_and_hidden_values_fail_the_step() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.set_approvals(HOST, PROJECT, Approvals::Everybody);
        let failed = outcome(&saving(shelf(&room, PATH)), clock).await;
        assert!(failed.len() == 1 && failed[0].contains("waits for approval"), "{failed:?}");
        room.datacenter.set_approvals(HOST, PROJECT, Approvals::People);
        assert_eq!(outcome(&saving(shelf(&room, PATH)), clock).await, Vec::<String>::new());
        room.datacenter.revoke_vault_right(HOST, CLIENT_ID, PROJECT, Right::ReadValue);
        let failed = outcome(&saving(shelf(&room, PATH)), clock).await;
        assert!(failed.len() == 1 && failed[0].contains("hidden from castle's identity"), "{failed:?}");
    });
}
