use castle_seams::{BoxFuture, PrivateKey, SystemKeyMint};
use zeroize::Zeroizing;

use super::fixture::{NOW, Still};
use super::*;

/// Gives the same key whenever it is asked.
struct One(KeyKind, Vec<u8>);

impl KeyMint for One {
    fn mint(&self, kind: KeyKind) -> BoxFuture<'_, Result<PrivateKey, MintError>> {
        let key = if kind == self.0 { Ok(self.1.clone()) } else { Err(MintError::Failed { kind }) };
        Box::pin(async move { Ok(PrivateKey::from_pkcs8_der(kind, Zeroizing::new(key?))) })
    }
}

async fn key(kind: KeyKind) -> One {
    One(kind, SystemKeyMint.mint(kind).await.unwrap().pkcs8_der().to_vec())
}

fn now() -> Moment {
    Moment::of(std::time::SystemTime::UNIX_EPOCH + NOW)
}

fn check(credential: &Credential, now: Moment) -> Vec<Flaw> {
    flaws(Some(&credential.certificate), Some(&credential.key), now)
}

#[tokio::test]
async fn keys_go_through_talos_labels_and_back() {
    for (kind, label) in [
        (KeyKind::Ed25519, "ED25519 PRIVATE KEY"),
        (KeyKind::EcdsaP256, "EC PRIVATE KEY"),
        (KeyKind::Rsa4096, "RSA PRIVATE KEY"),
    ] {
        let key = SystemKeyMint.mint(kind).await.unwrap();
        let text = to_pem(&key).unwrap();
        assert!(text.expose().starts_with(&format!("-----BEGIN {label}-----\n")));
        assert!(text.expose().ends_with(&format!("\n-----END {label}-----\n")));
        assert_eq!(to_pkcs8(&text).unwrap().as_slice(), key.pkcs8_der());
        let any = Secret::from(pem::encode("PRIVATE KEY", key.pkcs8_der()));
        assert_eq!(to_pkcs8(&any).unwrap().as_slice(), key.pkcs8_der());
    }
}

#[test]
fn what_is_no_key_is_refused() {
    let text = |label: &str, content: &[u8]| Secret::from(pem::encode(label, content));
    assert_eq!(check_key(&Secret::from(String::new())), Err(KeyError::Pem(PemError::Missing)));
    assert_eq!(check_key(&text("CERTIFICATE", b"x")), Err(KeyError::Label));
    assert_eq!(check_key(&text("PUBLIC KEY", b"x")), Err(KeyError::Label));
    for label in ["ED25519 PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "PRIVATE KEY"] {
        assert_eq!(check_key(&text(label, b"planted")), Err(KeyError::Content), "{label}");
    }
    let broken = PrivateKey::from_pkcs8_der(KeyKind::Rsa4096, Zeroizing::new(b"planted".to_vec()));
    assert_eq!(to_pem(&broken).unwrap_err(), KeyError::Content);
}

#[tokio::test]
async fn the_same_doors_give_the_same_authority() {
    let mint = key(KeyKind::Ed25519).await;
    let one = new_authority(Authority::Talos, Still::at(NOW).with(&mint)).await.unwrap();
    let two = new_authority(Authority::Talos, Still::at(NOW).with(&mint)).await.unwrap();
    assert_eq!(one.certificate, two.certificate);
    assert_eq!(one.key.expose(), two.key.expose());
}

#[tokio::test]
async fn an_authority_is_one_and_is_called_what_talos_calls_it() {
    for (authority, organization) in [
        (Authority::Talos, Some("talos")),
        (Authority::Etcd, Some("etcd")),
        (Authority::Kubernetes, Some("kubernetes")),
        (Authority::Aggregator, None),
    ] {
        let made = new_authority(authority, Still::at(NOW).doors()).await.unwrap();
        assert_eq!(check(&made, now()), []);
        let read = Certificate::from_pem(&made.certificate).unwrap();
        assert_eq!(read.subject, certificate::name(organization, None));
        // The serial is drawn first, then the key id.
        assert_eq!(read.subject_key_id, Some((16..36).collect()));
        assert_eq!(read.not_before, now());
        assert_eq!(Some(read.not_after), now().after(Duration::from_hours(24 * 3650)));
    }
    assert_eq!(certificate::name(None, None), [0x30, 0]);
}

#[tokio::test]
async fn clients_are_valid_as_long_as_asked() {
    let still = Still::at(NOW);
    let talos = new_authority(Authority::Talos, still.doors()).await.unwrap();
    let kubernetes = new_authority(Authority::Kubernetes, still.doors()).await.unwrap();
    let hour = Duration::from_hours(1);

    let admin = new_talos_admin(&talos, hour, still.doors()).await.unwrap();
    let read = Certificate::from_pem(&admin.certificate).unwrap();
    assert_eq!(read.subject, certificate::name(Some("os:admin"), None));
    assert_eq!((read.not_before, Some(read.not_after)), (now().before(Duration::from_hours(1)), now().after(hour)));
    assert_eq!(check(&admin, now()), [Flaw::NoAuthority]);

    let admin = new_kubernetes_admin(&kubernetes, hour, still.doors()).await.unwrap();
    let read = Certificate::from_pem(&admin.certificate).unwrap();
    assert_eq!(read.subject, certificate::name(Some("system:masters"), Some("admin")));
    assert_eq!((read.not_before, Some(read.not_after)), (now().before(Duration::from_secs(10)), now().after(hour)));
    assert_eq!((read.is_authority, read.subject_key_id), (false, None));

    for lifetime in [Duration::ZERO, Duration::MAX] {
        let refused = new_talos_admin(&talos, lifetime, still.doors()).await;
        assert_eq!(refused.unwrap_err(), PkiError::Lifetime, "{lifetime:?}");
    }
    let refused = new_kubernetes_admin(&kubernetes, Duration::MAX, still.doors()).await;
    assert_eq!(refused.unwrap_err(), PkiError::Lifetime);
}

#[tokio::test]
async fn an_rsa_authority_of_another_program_can_issue() {
    let still = Still::at(NOW);
    let mint = key(KeyKind::Rsa4096).await;
    let key = to_pem(&mint.mint(KeyKind::Rsa4096).await.unwrap()).unwrap();
    let signing = SigningKey::from_pem(key.expose()).unwrap();
    let name = certificate::name(Some("elsewhere"), None);
    let draft = Draft {
        serial: [1; 16],
        issuer: &name,
        subject: &name,
        not_before: now(),
        not_after: now().after(YEAR).unwrap(),
        public: &signing.public().unwrap(),
        extensions: vec![certificate::is_authority()],
    };
    let authority = Credential { certificate: draft.sign(&signing).unwrap(), key };
    assert_eq!(check(&authority, now()), []);
    let admin = new_kubernetes_admin(&authority, YEAR, still.doors()).await.unwrap();
    assert_eq!(check(&admin, now()), [Flaw::NoAuthority]);
}

#[tokio::test]
async fn every_flaw_is_found_and_told() {
    let made = new_authority(Authority::Etcd, Still::at(NOW).doors()).await.unwrap();
    let other = new_authority(Authority::Etcd, Still::at(NOW).doors()).await.unwrap();
    let second = Duration::from_secs(1);
    let end = now().after(AUTHORITY_LIFETIME).unwrap();
    assert_eq!(check(&made, end), [], "the last second counts");
    assert_eq!(check(&made, end.after(second).unwrap()), [Flaw::Expired(end)]);
    assert_eq!(check(&made, now().before(second)), [Flaw::NotYetValid(now())]);
    assert_eq!(Flaw::Expired(end).to_string(), "expired on 2036-09-18 14:13:20 UTC");

    let mixed = Credential { key: other.key.clone(), ..made.clone() };
    assert_eq!(check(&mixed, end.after(second).unwrap()), [Flaw::Mismatch, Flaw::Expired(end)]);

    let swapped = Credential { certificate: made.key.expose().to_owned(), key: made.certificate.clone().into() };
    assert_eq!(check(&swapped, now()), [Flaw::Certificate(CertificateError::Label), Flaw::Key(KeyError::Label)]);

    assert_eq!(flaws(Some(&made.certificate), None, now()), []);
    assert_eq!(flaws(None, Some(&made.key), now()), []);
    let unusable = new_talos_admin(&swapped, YEAR, Still::at(NOW).doors()).await.unwrap_err();
    assert_eq!(unusable, PkiError::AuthorityCertificate(CertificateError::Label));
    let unusable = Credential { key: made.certificate.clone().into(), ..made.clone() };
    let unusable = new_talos_admin(&unusable, YEAR, Still::at(NOW).doors()).await.unwrap_err();
    assert_eq!(unusable.to_string(), "the key of the authority is not a private key");
}

/// Goal: damaged certificates are refused, and nothing worse. Method: each byte of one changed in turn, and each beginning of it.
#[tokio::test]
async fn damaged_certificates_are_read_or_refused() {
    let made = new_authority(Authority::Etcd, Still::at(NOW).doors()).await.unwrap();
    let (_, der) = pem::decode(&made.certificate).unwrap();
    let read = |der: &[u8]| Certificate::from_pem(&pem::encode("CERTIFICATE", der));
    for length in 0..der.len() {
        assert_eq!(read(&der[..length]).unwrap_err(), CertificateError::Content);
    }
    let mut refused = 0;
    for place in 0..der.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut damaged = der.to_vec();
            damaged[place] ^= change;
            refused += u32::from(read(&damaged).is_err());
        }
    }
    assert!(refused > 100, "only {refused} were noticed");
    assert!(read(&[der.as_slice(), &[0]].concat()).is_err());
}

#[tokio::test]
async fn a_failing_door_is_an_error() {
    let still = Still::at(NOW);
    let mint = One(KeyKind::Rsa4096, Vec::new());
    let failed = new_authority(Authority::Etcd, still.with(&mint)).await.unwrap_err();
    assert_eq!(failed, PkiError::Mint(MintError::Failed { kind: KeyKind::EcdsaP256 }));
}

#[tokio::test]
async fn nothing_shows_a_key() {
    let still = Still::at(NOW);
    let made = new_authority(Authority::Talos, still.doors()).await.unwrap();
    let shown = format!("{made:?} {:?}", still.doors());
    assert!(!shown.contains("PRIVATE"));
}
