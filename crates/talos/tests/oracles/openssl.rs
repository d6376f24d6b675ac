//! Certificates and keys, read by openssl.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use castle_seams::{KeyKind, KeyMint, SystemClock, SystemKeyMint};
use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::config::Contract;
use castle_talos::model::pki::{Authority, Credential, Doors, new_authority, new_kubernetes_admin, new_talos_admin};

use crate::{Told, VENDORS_DAY, day, is_there, run, system_doors};

pub(crate) fn has_openssl() -> bool {
    let found = is_there(Path::new("openssl"), &["version"]);
    if !found {
        castle_testbed::skipped("there is no openssl to compare with");
    }
    found
}

/// What openssl reads in a certificate, field by field.
pub(crate) fn read_by_openssl(folder: &Path, certificate: &str) -> String {
    let file = folder.join("certificate.pem");
    std::fs::write(&file, certificate).unwrap();
    let file = file.to_str().unwrap();
    let x509 = |arguments: &[&str]| run("openssl", &[&["x509", "-noout", "-in", file], arguments].concat());
    let fields = x509(&["-serial", "-subject", "-issuer", "-dates", "-nameopt", "RFC2253"]);
    let text =
        x509(&["-text", "-certopt", "no_pubkey,no_sigdump,no_header,no_serial,no_validity,no_subject,no_issuer"]);
    let text: String =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect();
    fields + &text
}

/// The public half of a key, if openssl can read the key as Talos keeps it.
fn public_by_openssl(folder: &Path, credential: &Credential) -> [String; 2] {
    let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
    // Nobody but Talos knows this label; the content is what everybody writes.
    std::fs::write(&key, credential.key.expose().replace(" ED25519 PRIVATE", " PRIVATE")).unwrap();
    std::fs::write(&certificate, &credential.certificate).unwrap();
    [
        run("openssl", &["pkey", "-check", "-pubout", "-in", key.to_str().unwrap()]).replace("Key is valid\n", ""),
        run("openssl", &["x509", "-noout", "-pubkey", "-in", certificate.to_str().unwrap()]),
    ]
}

#[tokio::test]
async fn openssl_reads_in_certificates_what_talos_would_have_written() {
    if !has_openssl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let authority = async |authority, kind, name: &str, algorithm: &str| {
        let key = SystemKeyMint.mint(kind).await.unwrap().pkcs8_der().to_vec();
        let told = Told { now: day(), bytes: Mutex::new((0xa0..0xc4).collect()), key };
        let made = new_authority(authority, Doors { mint: &told, entropy: &told, clock: &told }).await.unwrap();
        let expected = format!(
            "serial=A0A1A2A3A4A5A6A7A8A9AAABACADAEAF
subject={name}
issuer={name}
notBefore=Oct 12 10:46:09 2023 GMT
notAfter=Oct  9 10:46:09 2033 GMT
Version: 3 (0x2)
Signature Algorithm: {algorithm}
X509v3 extensions:
X509v3 Key Usage: critical
Digital Signature, Certificate Sign
X509v3 Extended Key Usage:
TLS Web Server Authentication, TLS Web Client Authentication
X509v3 Basic Constraints: critical
CA:TRUE
X509v3 Subject Key Identifier:
B0:B1:B2:B3:B4:B5:B6:B7:B8:B9:BA:BB:BC:BD:BE:BF:C0:C1:C2:C3
"
        );
        assert_eq!(read_by_openssl(folder, &made.certificate), expected);
        let [key, certificate] = public_by_openssl(folder, &made);
        assert_eq!(key, certificate);
        made
    };
    let talos = authority(Authority::Talos, KeyKind::Ed25519, "O=talos", "ED25519").await;
    let kubernetes = authority(Authority::Kubernetes, KeyKind::EcdsaP256, "O=kubernetes", "ecdsa-with-SHA256").await;
    authority(Authority::Etcd, KeyKind::EcdsaP256, "O=etcd", "ecdsa-with-SHA256").await;
    authority(Authority::Aggregator, KeyKind::EcdsaP256, "", "ecdsa-with-SHA256").await;

    let client = async |authority: &Credential, kind, told: &str| {
        let key = SystemKeyMint.mint(kind).await.unwrap().pkcs8_der().to_vec();
        let doors = Told { now: day(), bytes: Mutex::new((0..16).collect()), key };
        let doors = Doors { mint: &doors, entropy: &doors, clock: &doors };
        let hour = Duration::from_hours(1);
        let made = match kind {
            KeyKind::Ed25519 => new_talos_admin(authority, hour, doors).await,
            _ => new_kubernetes_admin(authority, hour, doors).await,
        };
        let made = made.unwrap();
        assert_eq!(read_by_openssl(folder, &made.certificate), told);
        let [key, certificate] = public_by_openssl(folder, &made);
        assert_eq!(key, certificate);
        let file = folder.join("authority.pem");
        std::fs::write(&file, &authority.certificate).unwrap();
        let (at, leaf) = (VENDORS_DAY.as_secs().to_string(), folder.join("certificate.pem"));
        let trusted = ["verify", "-attime", &at, "-purpose", "sslclient", "-CAfile", file.to_str().unwrap()];
        run("openssl", &[&trusted[..], &[leaf.to_str().unwrap()]].concat());
    };
    let told = "serial=0102030405060708090A0B0C0D0E0F
subject=O=os:admin
issuer=O=talos
notBefore=Oct 12 09:46:09 2023 GMT
notAfter=Oct 12 11:46:09 2023 GMT
Version: 3 (0x2)
Signature Algorithm: ED25519
X509v3 extensions:
X509v3 Key Usage: critical
Digital Signature
X509v3 Extended Key Usage:
TLS Web Client Authentication
X509v3 Authority Key Identifier:
B0:B1:B2:B3:B4:B5:B6:B7:B8:B9:BA:BB:BC:BD:BE:BF:C0:C1:C2:C3
";
    client(&talos, KeyKind::Ed25519, told).await;
    let told = told
        .replace("subject=O=os:admin", "subject=CN=admin,O=system:masters")
        .replace("issuer=O=talos", "issuer=O=kubernetes")
        .replace("notBefore=Oct 12 09:46:09", "notBefore=Oct 12 10:45:59")
        .replace("ED25519", "ecdsa-with-SHA256")
        .replace("Digital Signature\n", "Digital Signature, Key Encipherment\n");
    client(&kubernetes, KeyKind::EcdsaP256, &told).await;
}

#[tokio::test]
async fn openssl_reads_the_service_account_key() {
    if !has_openssl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clock = SystemClock::new();
    let options = Options { contract: Contract::V1_14, service_account: ServiceAccountKey::Rsa4096 };
    let bundle = Bundle::generate(options, system_doors(&clock)).await.unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, bundle.service_account.expose()).unwrap();
    let told = run("openssl", &["rsa", "-check", "-noout", "-text", "-in", file.to_str().unwrap()]);
    assert!(told.contains("RSA key ok") && told.contains("(4096 bit"), "{}", told.lines().next().unwrap());
}
