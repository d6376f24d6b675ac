use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use castle_testbed::in_virtual_time;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
};

use super::*;

/// What the clock of tests says, or so.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000)
}

const SOURCE: &str = "sops:secrets.enc.yaml#x";

fn told(kind: Kind, text: &str) -> String {
    let origin = Origin::new("some.field", SOURCE);
    match check(kind, &Secret::from(text.to_owned()), &origin, now()) {
        Ok(()) => "valid".to_owned(),
        Err(invalid) => {
            let text = text.trim();
            let shown = format!("{invalid} {invalid:?}");
            assert!(text.len() < 8 || !shown.contains(text), "{shown}");
            assert!(shown.starts_with(&format!("some.field ({SOURCE}): ")), "{shown}");
            invalid.why
        }
    }
}

fn pair(kind: &'static rcgen::SignatureAlgorithm, is_authority: bool) -> (String, String) {
    let key = KeyPair::generate_for(kind).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    if is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn relabelled(pem: &str, label: &str) -> String {
    pem.replace(["PRIVATE", " KEY"].concat().as_str(), label)
}

#[test]
fn tokens_of_proxmox() {
    let uuid = "0a1b2c3d-0000-4000-8000-0123456789ab";
    assert_eq!(told(Kind::ProxmoxToken, &format!("castle@pve!up={uuid}\n")), "valid");
    assert_eq!(told(Kind::ProxmoxToken, &format!("PVEAPIToken=a@b@pam!up={uuid}")), "valid");
    for (text, why) in [
        (format!("castle@pve!up {uuid}"), "it has no `=`"),
        (format!("castle@pve={uuid}"), "it has no `!`"),
        (format!("castle!up={uuid}"), "it has no `@`"),
        (format!("castle@!up={uuid}"), "its user, realm or name"),
        ("castle@pve!up=secret".to_owned(), "what follows its `=`"),
        (format!("castle@pve!up={uuid}\nmore"), "it has several lines"),
        (format!(" castle@pve!up={uuid}"), "it begins or ends with blanks"),
        (" \n".to_owned(), "it is empty"),
        ("******".to_owned(), "it is the mark of a secret that was left out"),
    ] {
        assert!(told(Kind::ProxmoxToken, &text).starts_with(why), "{text:?}: {}", told(Kind::ProxmoxToken, &text));
    }
}

#[test]
fn identities_of_infisical_and_tokens_of_github() {
    assert_eq!(told(Kind::InfisicalClientId, "0a1b2c3d-0000-4000-8000-0123456789ab"), "valid");
    assert!(told(Kind::InfisicalClientId, "0a1b2c3d").contains("UUID"));
    assert_eq!(told(Kind::InfisicalClientSecret, &"0f".repeat(32)), "valid");
    assert!(told(Kind::InfisicalClientSecret, &"0f".repeat(20)).contains("64 hexadecimal"));
    assert!(told(Kind::InfisicalClientSecret, &["st", ".a.b.c"].concat()).contains("service token"));
    let classic = ["gh", "p_"].concat() + &"aB3".repeat(12);
    assert_eq!(told(Kind::GitHubToken, &classic), "valid");
    assert_eq!(told(Kind::GitHubToken, &(["github", "_pat_"].concat() + &"aB_3".repeat(20))), "valid");
    assert_eq!(told(Kind::GitHubToken, &"0123456789".repeat(4)), "valid");
    for text in [&classic[..20], "hello", "xyz_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        assert!(told(Kind::GitHubToken, text).contains("shape of a token of GitHub"), "{text}");
    }
    assert_eq!(told(Kind::Line, "any password: with blanks"), "valid");
}

fn openssh(cipher: &str) -> String {
    let length = u32::try_from(cipher.len()).unwrap().to_be_bytes();
    let content = [b"openssh-key-v1\0".as_slice(), &length, cipher.as_bytes(), &[0; 40]].concat();
    let label = ["OPENSSH PRIVATE", " KEY"].concat();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(content))
}

#[test]
fn keys_of_ssh_and_age() {
    assert_eq!(told(Kind::SshKey, &openssh("none")), "valid");
    assert!(told(Kind::SshKey, &openssh("aes256-ctr")).contains("passphrase"));
    assert_eq!(told(Kind::SshKey, &pair(&PKCS_ECDSA_P256_SHA256, false).1), "valid");
    assert!(told(Kind::SshKey, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAA me@here").contains("public half"));

    let identity = {
        use age::secrecy::ExposeSecret;
        age::x25519::Identity::generate().to_string().expose_secret().to_owned()
    };
    let file = format!("# created: today\n# public key: age1...\n{identity}\n");
    assert_eq!(told(Kind::AgeIdentity, &file), "valid");
    let (cut, damaged) =
        (&identity[..60], identity.replace(&identity[30..31], if &identity[30..31] == "Q" { "P" } else { "Q" }));
    assert!(told(Kind::AgeIdentity, cut).starts_with("its line 1"));
    assert!(told(Kind::AgeIdentity, &damaged).starts_with("its line 1"), "the checksum is looked at");
    assert!(told(Kind::AgeIdentity, "# nothing").contains("only comments"));
    assert!(
        told(Kind::AgeIdentity, "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p")
            .contains("public half")
    );
}

/// Goal: base64 that went through folded YAML is read, and nothing else is forgiven.
#[test]
fn base64_loses_blanks_and_nothing_else() {
    let (certificate, _) = pair(&PKCS_ED25519, true);
    let encoded = STANDARD.encode(&certificate);
    let folded: String =
        encoded.as_bytes().chunks(64).map(|line| format!("{} ", std::str::from_utf8(line).unwrap())).collect();
    for text in [&certificate, &encoded, &folded, &folded.replace(' ', "\r\n\t"), &certificate.replace('\n', "\r\n")] {
        assert_eq!(told(Kind::CertificateAuthority, text), "valid", "{text}");
    }
    for (text, why) in [
        (encoded[..encoded.len() - 3].to_owned(), "it is no base64"),
        (encoded.replace('=', ""), if encoded.ends_with('=') { "it is no base64" } else { "valid" }),
        (format!("{encoded}\u{a0}"), "it is no base64"),
        (URL_SAFE.encode([0xfb; 90]), "it is base64 of the alphabet for addresses"),
        (STANDARD.encode(&encoded), "it is base64 of base64"),
        (STANDARD.encode("hello"), "it is no certificate"),
        (format!("{certificate}{certificate}"), "it has more than one PEM block"),
        (certificate.replace("-----END CERTIFICATE-----", ""), "its PEM block does not end"),
        (certificate.replace("END CERTIFICATE", "END CERT"), "its PEM block ends as another began"),
        (certificate.replacen('M', "!", 1), "its PEM block is damaged"),
        (certificate.replace("CERTIFICATE", "PUBLIC KEY"), "its PEM block is something else"),
    ] {
        let told = told(Kind::CertificateAuthority, &text);
        assert!(told.starts_with(why), "{told}, not {why}");
    }
}

#[test]
fn certificates_have_dates_and_a_flag() {
    let (leaf, key) = pair(&PKCS_ECDSA_P256_SHA256, false);
    assert_eq!(told(Kind::Certificate, &leaf), "valid");
    assert_eq!(told(Kind::CertificateAuthority, &leaf), "it is a certificate, but not that of an authority");
    assert_eq!(told(Kind::Certificate, &key), "it is a key, not a certificate");
    let at = |days: i64| {
        let seconds = u64::try_from(1_798_761_600 + days * 86_400).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let checked = check(Kind::Certificate, &Secret::from(leaf.clone()), &Origin::new("f", "s"), time);
        checked.map_err(|invalid| invalid.why)
    };
    assert_eq!(at(-1), Ok(()));
    assert_eq!(at(3), Err("it expired 3 days ago".to_owned()));
    assert_eq!(at(-400), Err("it is not valid yet, for 35 more days: is the clock right?".to_owned()));
    let der = STANDARD.encode(pem::block(&leaf).unwrap().content.as_slice());
    assert_eq!(told(Kind::Certificate, &der), "valid", "DER in base64");
}

#[test]
fn a_key_belongs_to_its_certificate_whatever_its_label() {
    let origins = [Origin::new("tls.crt", "vault:CRT"), Origin::new("tls.key", "vault:KEY")];
    let checked = |certificate: &str, key: &str| {
        let [certificate, key] = [certificate, key].map(|text| Secret::from(text.to_owned()));
        check_pair((&certificate, &origins[0]), (&key, &origins[1]), true, now()).map_err(|invalid| invalid.to_string())
    };
    let other = pair(&PKCS_ED25519, true).1;
    for kind in [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let (certificate, key) = pair(kind, true);
        assert_eq!(checked(&certificate, &key), Ok(()));
        assert_eq!(checked(&STANDARD.encode(&certificate), &STANDARD.encode(&key)), Ok(()));
        let no_pair = "tls.key (vault:KEY): it is not the key of the certificate in tls.crt";
        assert_eq!(checked(&certificate, &other), Err(no_pair.to_owned()));
        assert!(
            checked(&certificate, &certificate).unwrap_err().starts_with("tls.key (vault:KEY): it is a certificate")
        );
    }
    let (certificate, key) = pair(&PKCS_ED25519, true);
    assert_eq!(
        checked(&certificate, &relabelled(&key, &["ED25519 PRIVATE", " KEY"].concat())),
        Ok(()),
        "as Talos labels it"
    );
    let locked = relabelled(&key, &["ENCRYPTED PRIVATE", " KEY"].concat());
    assert!(checked(&certificate, &locked).unwrap_err().contains("passphrase"));
}

fn kubeconfig(authority: &str, certificate: &str, key: &str) -> String {
    let [authority, certificate, key] = [authority, certificate, key].map(|text| STANDARD.encode(text));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: blue\n  cluster:\n    server: https://192.0.2.1:6443\n    \
         certificate-authority-data: {authority}\nusers:\n- name: other\n  user: {{token: x}}\n- name: admin\n  user:\n    \
         client-certificate-data: {certificate}\n    client-key-data: {key}\ncontexts:\n- name: admin@blue\n  context:\n    \
         cluster: blue\n    user: admin\ncurrent-context: admin@blue\n"
    )
}

#[test]
fn kubeconfigs_open_a_cluster_by_themselves() {
    let (authority, _) = pair(&PKCS_ECDSA_P256_SHA256, true);
    let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256, false);
    let good = kubeconfig(&authority, &certificate, &key);
    assert_eq!(told(Kind::Kubeconfig, &good), "valid");
    assert_eq!(told(Kind::Kubeconfig, &good.replace("    user: admin\n", "    user: other\n")), "valid");
    let stranger = kubeconfig(&authority, &certificate, &pair(&PKCS_ED25519, false).1);
    for (text, why) in [
        (stranger, "its client-key-data is not the key"),
        (kubeconfig(&certificate, &certificate, &key), "its certificate-authority-data: it is a certificate, but not"),
        (kubeconfig(&authority, "hello", &key), "its client-certificate-data: it is no certificate"),
        (good.replace("kind: Config", "kind: Secret"), "it is no kubeconfig"),
        (good.replace("current-context: admin@blue", ""), "it has no current-context"),
        (good.replace("current-context: admin", "current-context: nobody"), "its current-context is not among"),
        (good.replace("cluster: blue", "cluster: red"), "the cluster of its current context"),
        (good.replace("    user: admin\n", "    user: nobody\n"), "the user of its current context"),
        (good.replace("https://", "http://"), "the server of its cluster"),
        (good.replace("client-key-data", "client-key"), "its user has neither"),
        (format!("{good}---\n{good}"), "it has several documents"),
        (format!("{good}extra: *nobody\n"), "it is no YAML"),
        ("\t- {".to_owned(), "it is no YAML"),
    ] {
        let told = told(Kind::Kubeconfig, &text);
        assert!(told.starts_with(why), "{told}, not {why}");
    }
}

#[test]
fn the_gate_tells_all_that_is_wrong_at_once() {
    in_virtual_time(async |clock| {
        let (certificate, key) = pair(&PKCS_ED25519, false);
        let one = |field: &str, text: &str| {
            Check::One(Kind::ProxmoxToken, Secret::from(text.to_owned()), Origin::new(field, SOURCE))
        };
        let wrong = Check::Pair {
            certificate: (Secret::from(certificate.clone()), Origin::new("crt", SOURCE)),
            key: (Secret::from(key), Origin::new("key", SOURCE)),
            is_authority: true,
        };
        let gate = |checks| SecretsValid { checks, clock: Arc::new(*clock) };
        let fault = gate(vec![one("token", "planted"), wrong]).check(&()).await.unwrap_err();
        assert!(
            fault.is_final() && fault.evidence.contains("token (") && fault.evidence.contains("; crt ("),
            "{fault}"
        );
        assert!(!format!("{fault:?}").contains("planted"));
        let right = Check::One(Kind::Certificate, Secret::from(certificate), Origin::new("crt", SOURCE));
        assert_eq!(gate(vec![right]).check(&()).await, Ok(Verdict::Open(())));
    });
}
