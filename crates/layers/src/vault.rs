//! What a castle keeps in its vault: the client files of its cluster, and its bundle, sealed.
//!
//! It is there before the first machine is: whoever loses the state, and has the vault and a key to the seal, has lost nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use castle_engine::{Class, Fault, Gate, GraphBuilder, Handle, Place, Seal, SealError, StepId, Verdict};
use castle_seams::BoxFuture;
use castle_secrets::Secret;
use castle_secrets::validate::{self, Kind, Origin};
use castle_secrets::vault::keep::{Files, RemoveFiles, SaveFiles, Shelf};
use castle_spec::{Castle, Node, Role};
use castle_talos::model::clients;
use castle_talos::model::pki::YEAR;
use castle_talos::steps::{Keys, Quorum};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::cluster::api_address;
use crate::platform;
use crate::secrets::{Beginning, Saved, Strongroom, layer};

/// The name of the kubeconfig in the vault.
pub const KUBECONFIG: &str = "KUBECONFIG";
/// The name of the talosconfig in the vault.
pub const TALOSCONFIG: &str = "TALOSCONFIG";
/// The name of the sealed bundle in the vault.
pub const BUNDLE: &str = "TALOS_BUNDLE";

/// The format of the sealed bundle. What is written here is found again by castles to come.
const FORMAT: u64 = 1;

/// What is good for less than that is issued anew.
const LEAST: Duration = Duration::from_hours(30 * 24);

/// Where files go, and what they are made of.
#[derive(Clone)]
pub struct Keeping {
    /// The castle's folder in the vault.
    pub shelf: Shelf,
    /// What the bundle is sealed with; nothing for whoever only looks and has no key.
    pub seal: Option<Arc<Seal>>,
    /// Where keys come from.
    pub room: Arc<Strongroom>,
    /// The file.
    pub castle: Arc<Castle>,
    /// Its nodes.
    pub nodes: Arc<Vec<Node>>,
}

/// Gives the files of a castle: those of the vault that are still good, and new ones for the rest.
struct ClientFiles(Keeping);

impl ClientFiles {
    async fn files(&self, keys: &Keys) -> Result<Files, Fault> {
        let Keeping { shelf, seal, room, castle, nodes } = &self.0;
        let mut there = shelf.load().await?.0;
        let (name, now) = (castle.castle.as_str(), room.clock.wall());
        let wrong = |what: &str, why: String| Fault::new(Class::Final, what, why);
        let mut files = BTreeMap::new();
        let bundle = keys.bundle.save();
        // What cannot be opened may be the last copy of what somebody stands on: it is not written over.
        let known = match seal.as_ref().zip(there.get(BUNDLE)) {
            Some((seal, sealed)) => Some(opened(seal, sealed).map_err(|why| why.in_the_way_of(shelf))?),
            None => None,
        };
        let known = known.filter(|saved| saved.generation == room.generation);
        // One life has one bundle, and the first that was kept is it.
        if known.as_ref().is_some_and(|saved| saved.bundle.expose() != bundle.expose()) {
            return Err(self.other_secrets());
        }

        let server = api_address(castle, nodes);
        let encoded = |pem: &str| STANDARD.encode(pem);
        let kubeconfig = match there.remove(KUBECONFIG) {
            Some(text) if is_good_kubeconfig(&text, &[&server, &encoded(&keys.bundle.kubernetes.certificate)], now) => {
                text
            }
            _ => clients::kubeconfig(&keys.bundle, name, &server, YEAR, room.doors())
                .await
                .map_err(|error| wrong(KUBECONFIG, error.to_string()))?,
        };
        files.insert(KUBECONFIG.to_owned(), kubeconfig);

        let addresses = |keep: fn(&&Node) -> bool| -> Vec<String> {
            nodes.iter().filter(keep).map(|node| node.address.value.to_string()).collect()
        };
        let (endpoints, all) = (addresses(|node| node.role == Role::ControlPlane), addresses(|_| true));
        let mut marks: Vec<String> = all.iter().map(|address| format!("- {address}\n")).collect();
        marks.push(encoded(&keys.bundle.talos.certificate));
        let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
        let talosconfig = match there.remove(TALOSCONFIG) {
            Some(text) if is_good_talosconfig(&text, &marks, now) => text,
            _ => clients::talosconfig(&keys.bundle, name, &endpoints, &all, YEAR, room.doors())
                .await
                .map_err(|error| wrong(TALOSCONFIG, error.to_string()))?,
        };
        files.insert(TALOSCONFIG.to_owned(), talosconfig);

        match (seal, there.remove(BUNDLE)) {
            // It is kept already; and whoever has no key leaves it as it is.
            (seal, Some(sealed)) if seal.is_none() || known.is_some() => {
                files.insert(BUNDLE.to_owned(), sealed);
            }
            (Some(seal), _) => {
                let beginning = room.beginning().await?.unwrap_or_else(|| room.to_begin());
                let sealed = sealed(seal, room.generation, &bundle, &beginning).map_err(|why| wrong(BUNDLE, why))?;
                files.insert(BUNDLE.to_owned(), sealed);
            }
            (None, _) => {}
        }
        Ok(Files(files))
    }

    fn other_secrets(&self) -> Fault {
        let Keeping { shelf, room, .. } = &self.0;
        let evidence = format!(
            "holds other secrets of life {} than the state here: somebody else has begun this life from elsewhere",
            room.generation
        );
        Fault::guard(format!("{BUNDLE} in {} of the vault", shelf.path), evidence).next(
            "let both use one state (state.store, docs/state.md); if those in the vault are the castle's, move the state here away and run castle adopt; if those \
             here are, remove the others from the vault",
        )
    }
}

impl Gate for ClientFiles {
    type Needs = (Arc<Keys>,);
    type Output = Files;

    fn check<'a>(&'a self, (keys,): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Files>, Fault>> {
        Box::pin(async move { Ok(Verdict::Open(self.files(keys).await?)) })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(300)
    }
}

fn has_all(text: &Secret, marks: &[&str]) -> bool {
    marks.iter().all(|mark| text.expose().contains(mark))
}

fn is_good_kubeconfig(text: &Secret, marks: &[&str], now: SystemTime) -> bool {
    let origin = Origin::new(KUBECONFIG, "the vault");
    has_all(text, marks) && validate::check(Kind::Kubeconfig, text, &origin, now + LEAST).is_ok()
}

fn is_good_talosconfig(text: &Secret, marks: &[&str], now: SystemTime) -> bool {
    let certificate = text.expose().lines().find_map(|line| line.trim().strip_prefix("crt: "));
    let pem = certificate.and_then(|encoded| String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok());
    let origin = Origin::new(TALOSCONFIG, "the vault");
    let is_fresh = |pem: String| validate::check(Kind::Certificate, &Secret::from(pem), &origin, now + LEAST).is_ok();
    has_all(text, marks) && pem.is_some_and(is_fresh)
}

/// Gives the sealed bundle with the word that the etcd of its life has begun, once that was seen.
struct BegunFile(Keeping);

/// Writes into the vault that the etcd of this life is to begin once more. For whoever has seen that none of its machines is left.
///
/// # Errors
///
/// If the vault cannot be read or written.
pub async fn note_unbegun(shelf: &Shelf, seal: &Seal, room: &Strongroom) -> Result<(), Fault> {
    let Some(there) = shelf.load().await?.0.remove(BUNDLE) else { return Ok(()) };
    let wrong = |why: String| Fault::new(Class::Final, BUNDLE, why);
    let saved = opened(seal, &there).map_err(|why| why.in_the_way_of(shelf))?;
    if saved.generation != room.generation || !saved.beginning.is_some_and(|known| known.has_begun) {
        return Ok(());
    }
    let text = sealed(seal, room.generation, &saved.bundle, &room.to_begin()).map_err(wrong)?;
    Ok(shelf.save(&Files([(BUNDLE.to_owned(), text)].into())).await?)
}

impl BegunFile {
    async fn files(&self, keys: &Keys) -> Result<Files, Fault> {
        let Keeping { shelf, seal, room, .. } = &self.0;
        let (Some(seal), Some(there)) = (seal, shelf.load().await?.0.remove(BUNDLE)) else {
            return Ok(Files::default());
        };
        let wrong = |why: String| Fault::new(Class::Final, BUNDLE, why);
        let saved = opened(seal, &there).map_err(|why| why.in_the_way_of(shelf))?;
        let known = saved.beginning.unwrap_or_else(|| room.to_begin());
        let text = if known.has_begun {
            there
        } else {
            let begun = Beginning { has_begun: true, ..known };
            sealed(seal, room.generation, &keys.bundle.save(), &begun).map_err(wrong)?
        };
        Ok(Files([(BUNDLE.to_owned(), text)].into()))
    }
}

impl Gate for BegunFile {
    type Needs = (Arc<Keys>, Arc<Quorum>);
    type Output = Files;

    fn check<'a>(&'a self, (keys, quorum): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Files>, Fault>> {
        Box::pin(async move {
            let files = if quorum.is_seen() { self.files(keys).await? } else { Files::default() };
            Ok(Verdict::Open(files))
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(300)
    }
}

fn sealed(seal: &Seal, generation: u64, bundle: &Secret, beginning: &Beginning) -> Result<Secret, String> {
    let plain =
        json!({"format": FORMAT, "generation": generation, "bundle": bundle.expose(), "etcd": beginning.json()});
    let plain = Zeroizing::new(plain.to_string());
    let sealed = seal.seal(plain.as_bytes(), &[]).map_err(|error| error.to_string())?;
    Ok(Secret::from(STANDARD.encode(sealed)))
}

/// Why the bundle in the vault cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    /// It is sealed for others than whoever runs castle.
    #[error("is sealed for others: {0}")]
    ForOthers(SealError),
    /// A newer castle wrote it.
    #[error("a newer castle wrote it (format {0}; this one knows {FORMAT})")]
    Newer(u64),
    /// It is from before bundles had a format.
    #[error("an early castle wrote it, without a format")]
    Unversioned,
    /// Nobody can open it.
    #[error("{0}")]
    Damaged(String),
}

impl Unopened {
    /// What to do about it.
    fn next(&self) -> &'static str {
        match self {
            Self::ForOthers(_) => {
                "give castle a key that opens it (docs/state.md, \"Who can read it\"); or, if the state here has the secrets of what stands, remove it \
                 from the vault: castle up seals it anew for whoever can read the state now"
            }
            Self::Newer(_) => "use that castle",
            Self::Unversioned => "take the castle down with the one that raised it",
            Self::Damaged(_) => {
                "bring it back from a backup of the vault; or, if the state here has the secrets of what stands, remove it from the vault: castle up seals it anew"
            }
        }
    }

    /// The same as a fault: castle writes nothing over it.
    #[must_use]
    pub fn in_the_way_of(&self, shelf: &Shelf) -> Fault {
        Fault::guard(format!("{BUNDLE} in {} of the vault", shelf.path), self.to_string()).next(self.next())
    }
}

/// The bundle that was sealed for the vault, with which life of the castle it is of.
///
/// # Errors
///
/// Why it cannot be opened.
pub fn opened(seal: &Seal, sealed: &Secret) -> Result<Saved, Unopened> {
    let bytes = STANDARD.decode(sealed.expose().trim());
    let bytes = bytes.map_err(|_| Unopened::Damaged("it is no base64".to_owned()))?;
    match seal.open(&bytes) {
        Ok(opened) => read(&opened.plain),
        Err(error @ SealError::WrongKey { .. }) => Err(Unopened::ForOthers(error)),
        Err(error) => Err(Unopened::Damaged(error.to_string())),
    }
}

/// What is inside of the seal.
fn read(plain: &[u8]) -> Result<Saved, Unopened> {
    let no_bundle = || Unopened::Damaged("what is in it is no bundle".to_owned());
    let mut plain: Value = serde_json::from_slice(plain).map_err(|_| no_bundle())?;
    match plain["format"].as_u64() {
        Some(FORMAT) => {}
        Some(format) if format > FORMAT => return Err(Unopened::Newer(format)),
        None if plain["bundle"].is_string() => return Err(Unopened::Unversioned),
        _ => return Err(no_bundle()),
    }
    let beginning = Beginning::read(&plain["etcd"]);
    match (plain["generation"].as_u64(), plain["bundle"].take()) {
        (Some(generation), Value::String(bundle)) => Ok(Saved { generation, bundle: Secret::from(bundle), beginning }),
        _ => Err(no_bundle()),
    }
}

fn id(kind: &str, castle: &Castle) -> StepId {
    StepId::new(&layer(), kind, castle.castle.as_str())
}

/// Adds the steps that keep the files in the vault; returns what machines come after.
pub fn keep(graph: &mut GraphBuilder, keeping: Keeping, keys: &Handle<Keys>) -> StepId {
    let (step, shelf) = (id("vault", &keeping.castle), keeping.shelf.clone());
    let files = graph.gate(id("files", &keeping.castle), Place::default(), (keys.clone(),), ClientFiles(keeping));
    graph.step(step.clone(), Place::default(), (files,), SaveFiles::new(shelf));
    step
}

/// Adds the steps that write into the vault that the etcd of this life has begun.
pub fn note_begun(graph: &mut GraphBuilder, keeping: Keeping, keys: &Handle<Keys>, quorum: &Handle<Quorum>) {
    let (castle, shelf) = (keeping.castle.clone(), keeping.shelf.clone());
    let needs = (keys.clone(), quorum.clone());
    // Whoever raises the machines alone makes etcd begin.
    let id = |kind: &str| StepId::new(&platform::layer(), kind, castle.castle.as_str());
    let files = graph.gate(id("begun-files"), Place::default(), needs, BegunFile(keeping));
    graph.step(id("begun-vault"), Place::default(), (files,), SaveFiles::new(shelf));
}

/// Adds the step that takes out of the vault what the castle has put there; returns it.
pub fn clear(graph: &mut GraphBuilder, shelf: Shelf, castle: &Castle) -> StepId {
    let step = id("vault", castle);
    graph.step(step.clone(), Place::default(), (), RemoveFiles::new(shelf));
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As they were written, without the seal.
    #[test]
    fn recorded_bundles_are_read() {
        let recorded =
            br#"{"bundle":"cluster: {}\n","etcd":{"begun":true,"first":"blue-cp-1"},"format":1,"generation":3}"#;
        let Saved { generation, bundle, beginning } = read(recorded).unwrap();
        assert_eq!(beginning, Some(Beginning { first: "blue-cp-1".to_owned(), has_begun: true }));
        assert_eq!((generation, bundle.expose()), (3, "cluster: {}\n"));
        let refused = |plain: &str| read(plain.as_bytes()).unwrap_err().to_string();
        assert!(refused(r#"{"bundle":"cluster: {}\n","generation":3}"#).contains("an early castle wrote it"));
        assert!(refused(r#"{"bundle":{},"format":2}"#).contains("a newer castle wrote it (format 2"));
        assert_eq!(refused("{}"), "what is in it is no bundle");
        assert_eq!(refused("planted"), "what is in it is no bundle");
    }
}
