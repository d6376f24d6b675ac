use std::time::{Duration, SystemTime};

use super::*;
use crate::model::pki::fixture::{NOW, Still};
use crate::model::pki::{CertificateError, Flaw, KeyError, Moment, PemError};

mod import;

const TEN_YEARS: Duration = Duration::from_hours(87_600);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + NOW
}

async fn new(contract: Contract) -> Bundle {
    let options = Options { contract, service_account: ServiceAccountKey::EcdsaP256 };
    Bundle::generate(options, Still::at(NOW).doors()).await.unwrap()
}

fn value(bundle: &Bundle) -> Value {
    yaml::parse(bundle.save().expose()).unwrap().remove(0)
}

fn problems(value: &Value) -> Vec<(&'static str, ProblemKind)> {
    let error = Bundle::load(&yaml::emit(value), now()).unwrap_err();
    error.problems().iter().map(|problem| (problem.field, problem.kind)).collect()
}

fn armoured(text: &str) -> Value {
    STANDARD.encode(text).into()
}

#[tokio::test]
async fn a_new_bundle_is_whole_and_comes_back() {
    for contract in [Contract::V1_12, Contract::V1_13, Contract::V1_14] {
        let bundle = new(contract).await;
        bundle.validate(now()).unwrap();
        let text = bundle.save();
        let loaded = Bundle::load(text.expose(), now()).unwrap();
        assert_eq!(loaded.bundle.save().expose(), text.expose());
        assert_eq!(loaded.notes, []);
        assert_eq!(Bundle::import(text.expose(), now()).unwrap().bundle.save().expose(), text.expose());
    }
}

#[tokio::test]
async fn what_is_drawn_is_written_as_the_contract_says() {
    // The randomness counts from 0. No byte of the first 32 tells the alphabets apart; these do.
    let bundle = new(Contract::V1_13).await;
    assert_eq!(bundle.cluster_id, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    assert_eq!(bundle.cluster_secret.expose(), "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=");
    let EncryptionSecret::Secretbox(secret) = &bundle.encryption else { panic!("not what Talos makes") };
    assert_eq!(secret.expose(), "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=");
    assert_eq!(bundle.bootstrap_token.expose(), "opqrst.uvwxyz0123456789");
    assert_eq!(bundle.trustd_token.expose(), "abcdef.ghijklmnopqrstuv");

    let url_safe = "4OHi4-Tl5ufo6err7O3u7_Dx8vP09fb3-Pn6-_z9_v8=";
    let standard = "4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8=";
    for (contract, id) in [(Contract::V1_12, url_safe), (Contract::V1_13, url_safe), (Contract::V1_14, standard)] {
        let still = Still::at(NOW);
        still.skip(224);
        let options = Options { contract, service_account: ServiceAccountKey::EcdsaP256 };
        let bundle = Bundle::generate(options, still.doors()).await.unwrap();
        assert_eq!(bundle.cluster_id, id, "{contract:?}");
    }
}

#[tokio::test]
async fn tokens_are_drawn_fairly() {
    let still = Still::at(NOW);
    still.skip(250);
    // 250 and 251 are characters, 252 to 255 are not, and 0 is again.
    assert_eq!(token(still.doors()).unwrap().expose(), "yz0123.456789abcdefghij");
}

#[tokio::test]
async fn the_service_account_key_is_rsa_unless_asked_otherwise() {
    let options = Options { contract: Contract::V1_14, service_account: ServiceAccountKey::default() };
    let bundle = Bundle::generate(options, Still::at(NOW).doors()).await.unwrap();
    assert!(bundle.service_account.expose().starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
    bundle.validate(now()).unwrap();
    let bundle = new(Contract::V1_14).await;
    assert!(bundle.service_account.expose().starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
}

#[tokio::test]
async fn the_legacy_encryption_secret_is_kept() {
    let mut bundle = new(Contract::V1_13).await;
    let EncryptionSecret::Secretbox(secret) = bundle.encryption else { panic!("not what Talos makes") };
    bundle.encryption = EncryptionSecret::AesCbc(secret);
    let text = bundle.save();
    assert!(text.expose().contains("\n    aescbcencryptionsecret: "));
    let loaded = Bundle::load(text.expose(), now()).unwrap();
    assert_eq!(loaded.bundle.save().expose(), text.expose());
}

#[tokio::test]
async fn stray_whitespace_in_base64_is_left_out_and_told() {
    let bundle = new(Contract::V1_13).await;
    let mut value = value(&bundle);
    let mangled = |value: &mut Value, pointer: &str, change: &dyn Fn(&str) -> String| {
        let field = value.pointer_mut(pointer).unwrap();
        *field = change(field.as_str().unwrap()).into();
    };
    mangled(&mut value, "/cluster/id", &|text| format!("{text}\n"));
    mangled(&mut value, "/cluster/secret", &|text| format!(" {text}"));
    mangled(&mut value, "/secrets/secretboxencryptionsecret", &|text| format!("{text}\r\n"));
    mangled(&mut value, "/certs/os/crt", &|text| format!("{}\n {}\n", &text[..76], &text[76..]));
    mangled(&mut value, "/certs/k8s/key", &|text| text.replace("LS0tLS1F", "LS0t\tLS1F"));
    mangled(&mut value, "/trustdinfo/token", &|text| format!("{text}\n"));
    let loaded = Bundle::load(&yaml::emit(&value), now()).unwrap();
    assert_eq!(loaded.bundle.save().expose(), bundle.save().expose());
    let notes: Vec<_> = loaded.notes.iter().map(|note| (note.field, note.kind)).collect();
    assert_eq!(
        notes,
        [
            ("cluster.id", NoteKind::Whitespace),
            ("cluster.secret", NoteKind::Whitespace),
            ("secrets.secretboxencryptionsecret", NoteKind::Whitespace),
            ("trustdinfo.token", NoteKind::FinalNewline),
            ("certs.k8s.key", NoteKind::Whitespace),
            ("certs.os.crt", NoteKind::Whitespace),
        ]
    );
}

#[tokio::test]
async fn folded_base64_is_read() {
    let bundle = new(Contract::V1_13).await;
    let text = bundle.save();
    let crt = value(&bundle)["certs"]["os"]["crt"].as_str().unwrap().to_owned();
    let folded = format!(">\n            {}\n            {}", &crt[..40], &crt[40..]);
    let loaded = Bundle::load(&text.expose().replace(&crt, &folded), now()).unwrap();
    assert_eq!(loaded.bundle.talos.certificate, bundle.talos.certificate);
}

/// One thing after another is broken; each is told by its field, and all at once.
#[tokio::test]
async fn every_problem_is_told_at_once() {
    let bundle = new(Contract::V1_13).await;
    let other = new(Contract::V1_13).await;
    let mut broken = value(&bundle);
    let pem = |text: &str| armoured(text);
    broken["cluster"]["id"] = "".into();
    broken["cluster"]["secret"] = STANDARD.encode([7; 31]).into();
    broken["secrets"]["bootstraptoken"] = "ABCDEF.0123456789abcdef".into();
    broken["secrets"]["secretboxencryptionsecret"] = "ENC[AES256_GCM,data:x,type:str]".into();
    broken["trustdinfo"]["token"] = 5.into();
    broken["certs"]["etcd"]["key"] = pem(other.etcd.key.expose());
    broken["certs"]["k8s"]["crt"] = pem(STANDARD.encode(&bundle.kubernetes.certificate).as_str());
    broken["certs"]["k8s"]["key"] = "******".into();
    broken["certs"]["k8saggregator"]["crt"] = "a_b-".into();
    broken["certs"]["k8saggregator"]["key"] = pem("-----BEGIN EC PRIVATE KEY-----\naGk=\n");
    broken["certs"]["k8sserviceaccount"]["key"] = pem(&bundle.etcd.certificate);
    broken["certs"]["os"]["crt"] = pem(&bundle.talos.certificate.repeat(2));
    broken["certs"]["os"].as_object_mut().unwrap().remove("key");
    assert_eq!(
        problems(&broken),
        [
            ("cluster.id", ProblemKind::Missing),
            ("cluster.secret", ProblemKind::Length),
            ("secrets.bootstraptoken", ProblemKind::Token),
            ("secrets.secretboxencryptionsecret", ProblemKind::Sealed),
            ("trustdinfo.token", ProblemKind::NotText),
            ("certs.etcd.key", ProblemKind::Flaw(Flaw::Mismatch)),
            ("certs.k8s.crt", ProblemKind::EncodedTwice),
            ("certs.k8s.key", ProblemKind::Redacted),
            ("certs.k8saggregator.crt", ProblemKind::Base64),
            ("certs.k8saggregator.key", ProblemKind::Flaw(Flaw::Key(KeyError::Pem(PemError::Damaged)))),
            ("certs.k8sserviceaccount.key", ProblemKind::Key(KeyError::Label)),
            ("certs.os.key", ProblemKind::Missing),
            ("certs.os.crt", ProblemKind::Flaw(Flaw::Certificate(CertificateError::Pem(PemError::NotAlone)))),
        ]
    );
}

#[tokio::test]
async fn authorities_are_held_against_the_time() {
    let bundle = new(Contract::V1_13).await;
    let fields = ["certs.etcd.crt", "certs.k8s.crt", "certs.k8saggregator.crt", "certs.os.crt"];
    let told = |at: SystemTime| bundle.validate(at).unwrap_err().problems().to_vec();
    let all = |flaw: Flaw| fields.map(|field| Problem { field, kind: ProblemKind::Flaw(flaw) });
    let second = Duration::from_secs(1);
    assert_eq!(told(now() + TEN_YEARS + second), all(Flaw::Expired(Moment::of(now() + TEN_YEARS))));
    assert_eq!(told(now() - second), all(Flaw::NotYetValid(Moment::of(now()))));
    bundle.validate(now() + TEN_YEARS).unwrap();
}

#[tokio::test]
async fn a_certificate_that_is_no_authority_is_refused() {
    let mut bundle = new(Contract::V1_13).await;
    bundle.talos = pki::new_talos_admin(&bundle.talos, pki::YEAR, Still::at(NOW).doors()).await.unwrap();
    let error = bundle.validate(now()).unwrap_err();
    assert_eq!(error.to_string(), "the secrets cannot be used: certs.os.crt is not the certificate of an authority");
}

#[tokio::test]
async fn tokens_have_a_shape_and_are_never_cleaned() {
    let bundle = new(Contract::V1_13).await;
    for token in [
        "abcdef.0123456789abcde",
        "abcdef0123456789abcdef",
        "abcdef.0123456789abcdeF",
        " abcdef.0123456789abcdef",
        "abcdef.0123456789abcdef\n\n",
        "abcdef.0123456789 abcdef",
    ] {
        let mut broken = value(&bundle);
        broken["secrets"]["bootstraptoken"] = token.into();
        assert_eq!(problems(&broken), [("secrets.bootstraptoken", ProblemKind::Token)], "{token:?}");
    }
}

#[tokio::test]
async fn two_encryption_secrets_or_none_are_refused() {
    let mut broken = value(&new(Contract::V1_13).await);
    broken["secrets"]["aescbcencryptionsecret"] = broken["secrets"]["secretboxencryptionsecret"].clone();
    assert_eq!(problems(&broken), [("secrets.aescbcencryptionsecret", ProblemKind::Exclusive)]);
    for key in ["aescbcencryptionsecret", "secretboxencryptionsecret"] {
        broken["secrets"].as_object_mut().unwrap().remove(key);
    }
    assert_eq!(problems(&broken), [("secrets.secretboxencryptionsecret", ProblemKind::Missing)]);
}

#[tokio::test]
async fn another_shape_is_refused() {
    let bundle = new(Contract::V1_13).await;
    let mut broken = value(&bundle);
    broken["planted"] = 1.into();
    broken["cluster"] = "planted".into();
    broken["certs"]["etcd"]["planted"] = "x".into();
    assert_eq!(
        problems(&broken),
        [
            ("the bundle", ProblemKind::UnknownKey),
            ("cluster", ProblemKind::NotMapping),
            ("certs.etcd", ProblemKind::UnknownKey),
        ]
    );
    let text = bundle.save();
    for (text, error) in [
        ("", BundleError::Unknown),
        ("a: 1\n", BundleError::Unknown),
        ("- certs\n", BundleError::Unknown),
        ("machine: {type: worker}\n", BundleError::Worker),
        ("certs: {}\nsops: {mac: x}\n", BundleError::Sealed),
        ("machine: {type: gardener}\n", BundleError::Unknown),
        (&format!("{0}---\n{0}", text.expose()), BundleError::Several),
    ] {
        assert_eq!(Bundle::import(text, now()).unwrap_err(), error);
    }
    assert!(matches!(Bundle::import("a: [", now()), Err(BundleError::Yaml(_))));
    // Something else beside it does not matter.
    let beside = format!("a: 1\n---\n{}", text.expose());
    assert_eq!(Bundle::import(&beside, now()).unwrap().bundle.save().expose(), text.expose());
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let bundle = new(Contract::V1_13).await;
    let mut shown = format!("{bundle:?} {:?}", Bundle::load(bundle.save().expose(), now()).unwrap());
    for pointer in [
        "/cluster/secret",
        "/secrets/bootstraptoken",
        "/secrets/secretboxencryptionsecret",
        "/trustdinfo/token",
        "/certs/os/key",
        "/certs/k8sserviceaccount/key",
    ] {
        let mut broken = value(&bundle);
        let field = broken.pointer_mut(pointer).unwrap();
        *field = format!("{}?", field.as_str().unwrap()).into();
        let error = Bundle::load(&yaml::emit(&broken), now()).unwrap_err();
        shown.push_str(&format!("{error} {error:?}"));
    }
    let saved = value(&bundle);
    for pointer in ["/cluster/secret", "/secrets/bootstraptoken", "/trustdinfo/token", "/certs/os/key"] {
        assert!(!shown.contains(saved.pointer(pointer).unwrap().as_str().unwrap()), "{pointer}");
    }
    assert!(!shown.contains("PRIVATE KEY"));
}
