//! Secrets and certificates held against what nobody here wrote: Talos' own regression data, `openssl` and `talosctl`.
//!
//! The data is not part of the project. CI has it, and `openssl`; `talosctl` is looked for under `$TALOSCTL` and on the path.
#![allow(clippy::disallowed_methods, reason = "the vendor's data is on disk, and programs read files")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on should say so and stop")]

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_seams::{
    BoxFuture, Clock, Entropy, EntropyError, KeyKind, KeyMint, MintError, PrivateKey, SystemClock, SystemEntropy,
    SystemKeyMint,
};
use castle_talos::model::bundle::{Bundle, BundleError};
use castle_talos::model::pki::{Authority, Credential, Doors, new_authority, to_pkcs8};
use castle_yaml as yaml;

mod openssl;
mod talosctl;

/// When the authorities of the vendor's data were made.
const VENDORS_DAY: Duration = Duration::from_secs(1_697_107_569);

fn day() -> SystemTime {
    SystemTime::UNIX_EPOCH + VENDORS_DAY
}

/// A file of the vendor's.
fn vendor(name: &str) -> Option<String> {
    castle_testbed::oracle_text(&format!("data/talos/{name}"))
}

fn run(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let output = Command::new(program.as_ref()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn is_there(program: &Path, argument: &[&str]) -> bool {
    Command::new(program).args(argument).output().is_ok_and(|output| output.status.success())
}

/// Doors that give what they are told.
struct Told {
    now: SystemTime,
    bytes: Mutex<Vec<u8>>,
    key: Vec<u8>,
}

impl Clock for Told {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> SystemTime {
        self.now
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Entropy for Told {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        let mut left = self.bytes.lock().unwrap();
        bytes.copy_from_slice(&left[..bytes.len()]);
        left.drain(..bytes.len());
        Ok(())
    }
}

impl KeyMint for Told {
    fn mint(&self, kind: KeyKind) -> BoxFuture<'_, Result<PrivateKey, MintError>> {
        Box::pin(async move { Ok(PrivateKey::from_pkcs8_der(kind, self.key.clone().into())) })
    }
}

fn system_doors(clock: &SystemClock) -> Doors<'_> {
    Doors { mint: &SystemKeyMint, entropy: &SystemEntropy, clock }
}

fn der(pem: &str) -> Vec<u8> {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).unwrap()
}

/// What stands behind a mark.
fn behind<'d>(der: &'d [u8], mark: &[u8]) -> &'d [u8] {
    let place = der.windows(mark.len()).position(|window| window == mark).unwrap();
    &der[place + mark.len()..]
}

#[test]
fn configurations_of_talos_are_the_same_after_reading_and_writing() {
    for contract in ["v1.12", "v1.13", "v1.14"] {
        for role in ["controlplane", "worker"] {
            let Some(text) = vendor(&format!("golden/{contract}/base-{role}.yaml")) else { return };
            assert_eq!(yaml::emit_all(&yaml::parse(&text).unwrap()), text, "{contract} {role}");
        }
    }
}

#[test]
fn the_vendors_bundle_is_saved_as_it_was() {
    let Some(text) = vendor("secrets.yaml") else { return };
    let without_comment = text.split_once('\n').unwrap().1;
    let loaded = Bundle::load(&text, day()).unwrap();
    assert_eq!(loaded.notes, []);
    assert_eq!(loaded.bundle.save().expose(), without_comment);
}

#[test]
fn the_vendors_configurations_give_the_vendors_bundle() {
    let Some(text) = vendor("secrets.yaml") else { return };
    let bundle = Bundle::load(&text, day()).unwrap().bundle;
    for contract in ["v1.12", "v1.13", "v1.14"] {
        let control_plane = vendor(&format!("golden/{contract}/base-controlplane.yaml")).unwrap();
        let imported = Bundle::import(&control_plane, day()).unwrap();
        assert_eq!(imported.bundle.save().expose(), bundle.save().expose(), "{contract}");
        assert_eq!(imported.notes, []);
        let worker = vendor(&format!("golden/{contract}/base-worker.yaml")).unwrap();
        assert_eq!(Bundle::import(&worker, day()).unwrap_err(), BundleError::Worker, "{contract}");
    }
}

/// Goal: an authority is written as Talos writes it, to the byte. Method: the vendor's own are made again from their keys,
/// serials, key ids and time. Ed25519 signs alike; of ECDSA all but the signature must be the same.
#[tokio::test]
async fn the_vendors_authorities_can_be_made_again() {
    let Some(text) = vendor("secrets.yaml") else { return };
    let bundle = Bundle::load(&text, day()).unwrap().bundle;
    let check = async |authority: Authority, original: &Credential| {
        let original_der = der(&original.certificate);
        let serial = behind(&original_der, &[0xa0, 3, 2, 1, 2, 2]);
        let serial = &serial[1..][..serial[0].into()];
        let serial =
            [vec![0; 16_usize.saturating_sub(serial.len())], serial[serial.len().saturating_sub(16)..].to_vec()];
        let key_id = &behind(&original_der, &[6, 3, 0x55, 0x1d, 14, 4, 22, 4, 20])[..20];
        let told = Told {
            now: day(),
            bytes: Mutex::new([serial.concat().as_slice(), key_id].concat()),
            key: to_pkcs8(&original.key).unwrap().to_vec(),
        };
        let made = new_authority(authority, Doors { mint: &told, entropy: &told, clock: &told }).await.unwrap();
        assert_eq!(made.key.expose(), original.key.expose());
        if authority == Authority::Talos {
            assert_eq!(made.certificate, original.certificate);
        }
        // The signed part: from behind the outermost header to the end of its own length.
        let signed = |der: &[u8]| {
            let length = 4 + usize::from(der[6]) * 256 + usize::from(der[7]);
            der[4..][..if der[5] == 0x82 { length } else { 3 + usize::from(der[6]) }].to_vec()
        };
        assert_eq!(signed(&der(&made.certificate)), signed(&original_der), "{authority:?}");
    };
    check(Authority::Talos, &bundle.talos).await;
    check(Authority::Etcd, &bundle.etcd).await;
    check(Authority::Kubernetes, &bundle.kubernetes).await;
    check(Authority::Aggregator, &bundle.aggregator).await;
}
