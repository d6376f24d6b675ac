use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use castle_seams::{SystemDisk, SystemEntropy};
use proptest::prelude::*;

use super::*;
use crate::sops::{Item, Keyring, Rule, Sealed, Surroundings};

/// Two identities, made for this run.
static IDENTITY: LazyLock<Zeroizing<String>> =
    LazyLock::new(|| castle_engine::Seal::mint_identity(&SystemEntropy).unwrap());
static OTHER: LazyLock<Zeroizing<String>> =
    LazyLock::new(|| castle_engine::Seal::mint_identity(&SystemEntropy).unwrap());

fn public(identity: &str) -> String {
    identity.parse::<age::x25519::Identity>().unwrap().to_public().to_string()
}

fn with_identity<T>(identity: &str, then: impl FnOnce(&mut Keyring<'_>) -> T) -> T {
    let around = Surroundings {
        variables: BTreeMap::from([("SOPS_AGE_KEY".to_owned(), Secret::from(identity.to_owned()))]),
        more: Vec::new(),
        disk: &SystemDisk,
        run: &|_| Err("nothing is run here".to_owned()),
        passphrase: &|_| None,
    };
    then(&mut Keyring::gather(&around))
}

fn open(format: Format, bytes: &[u8]) -> Result<Opened, SopsError> {
    let sealed = Sealed::read("s", format, bytes)?;
    with_identity(&IDENTITY, |keyring| sealed.open(keyring))
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_763_000_000)
}

fn policy() -> Policy {
    Policy::for_recipients(vec![public(&IDENTITY)])
}

fn sealed(format: Format, clear: &str) -> Vec<u8> {
    let mut fresh = Opened::fresh("s", format, clear.as_bytes(), &policy(), &SystemEntropy).unwrap();
    fresh.seal(now(), &SystemEntropy).unwrap()
}

fn shown(result: Result<Opened, SopsError>) -> String {
    result.err().expect("it opened").to_string()
}

const CLEAR: &str = "# top\nproxmox:\n    token: hunter2\n    port: 8006\n    tls: true\n    since: 2024-01-02T00:00:00Z\n    rate: 1.5\nlist:\n    # first\n    - a: x\n      b_unencrypted: clear\n    - \"\"\nnothing: null\n---\nsecond: two\n";

#[test]
fn what_is_encrypted_opens_again() {
    for (format, clear) in [
        (Format::Yaml, CLEAR),
        (
            Format::Json,
            "{\n\t\"a\": {\n\t\t\"b\": \"hunter2\",\n\t\t\"n\": [\n\t\t\t1,\n\t\t\t1.5,\n\t\t\tfalse,\n\t\t\tnull\n\t\t]\n\t}\n}\n",
        ),
        (Format::Dotenv, "#top\nTOKEN=hunter2\nexport B=one\\ntwo\nC=\n"),
        (Format::Binary, "\u{0}hunter2\n"),
    ] {
        let bytes = sealed(format, clear);
        let text = String::from_utf8(bytes.clone()).unwrap();
        // Three letters alone may be anywhere in base64; a `#` is nowhere in it.
        assert!(!text.contains("hunter2") && !text.contains("# top") && !text.contains("#top"), "{text}");
        let opened = open(format, &bytes).unwrap();
        assert_eq!(String::from_utf8(opened.clear(format).unwrap().to_vec()).unwrap(), clear);
    }
}

#[test]
fn values_are_found_by_their_path() {
    let opened = open(Format::Yaml, &sealed(Format::Yaml, CLEAR)).unwrap();
    let get = |path: &str| opened.get(&path.parse().unwrap()).map(|secret| secret.expose().to_owned());
    assert_eq!(get("proxmox.token").unwrap(), "hunter2");
    assert_eq!(get("[\"proxmox\"][\"tls\"]").unwrap(), "true");
    assert_eq!(get("list[0].b_unencrypted").unwrap(), "clear");
    assert_eq!(get("second").unwrap(), "two");
    assert_eq!(
        get("proxmox.tokn").unwrap_err().to_string(),
        "s: it has no `proxmox.tokn`; did you mean `proxmox.token`?"
    );
    let far = get("infisical").unwrap_err().to_string();
    assert!(far.starts_with("s: it has no `infisical`; it has `proxmox.token`, "), "{far}");
    assert_eq!(
        get("list").unwrap_err().to_string(),
        "s: `list` is not a single value, but holds list[0].a, list[0].b_unencrypted, list[1]"
    );
}

#[test]
fn what_is_unchanged_keeps_its_ciphertext() {
    let before = String::from_utf8(sealed(Format::Yaml, CLEAR)).unwrap();
    let mut opened = open(Format::Yaml, before.as_bytes()).unwrap();
    let edited = CLEAR.replace("hunter2", "hunter3");
    opened.replace(edited.as_bytes()).unwrap();
    let after = opened.seal(now() + Duration::from_secs(60), &SystemEntropy).unwrap();
    let after = String::from_utf8(after).unwrap();
    let changed: Vec<&str> =
        before.lines().zip(after.lines()).filter(|(old, new)| old != new).map(|(old, _)| old.trim_start()).collect();
    let keys: Vec<&str> = changed.iter().filter_map(|line| line.split_once(':')).map(|(key, _)| key).collect();
    assert_eq!(keys, ["token", "lastmodified", "mac", "lastmodified", "mac"]);
    let again = open(Format::Yaml, after.as_bytes()).unwrap();
    assert_eq!(*again.clear(Format::Yaml).unwrap(), edited.into_bytes());
}

#[test]
fn one_value_is_set() {
    let mut opened = open(Format::Yaml, &sealed(Format::Yaml, CLEAR)).unwrap();
    let path = |text: &str| text.parse::<KeyPath>().unwrap();
    for place in ["proxmox.token", "new.deep[0].key", "list[2]", "second"] {
        opened.set(&path(place), Value::text("planted")).unwrap();
    }
    for refused in ["proxmox.token.x", "list[9]", "sops.mac", "list.x", "proxmox[0]"] {
        let refusal = opened.set(&path(refused), Value::text("planted")).unwrap_err().to_string();
        assert_eq!(refusal, format!("s: there is no place for `{refused}`: something else is on the way there"));
    }
    let bytes = opened.seal(now(), &SystemEntropy).unwrap();
    let again = open(Format::Yaml, &bytes).unwrap();
    for place in ["proxmox.token", "new.deep[0].key", "list[2]", "second"] {
        assert_eq!(again.get(&path(place)).unwrap().expose(), "planted", "{place}");
    }
}

#[test]
fn a_wrong_key_is_told_with_public_keys_alone() {
    let bytes = sealed(Format::Yaml, CLEAR);
    let sealed = Sealed::read("s.yaml", Format::Yaml, &bytes).unwrap();
    let error = with_identity(&OTHER, |keyring| sealed.clone().open(keyring)).err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "s.yaml: no identity at hand opens it. It is encrypted for {}. Tried: SOPS_AGE_KEY: {}. Looked at in vain: not set: \
             SOPS_AGE_SSH_PRIVATE_KEY_FILE, SOPS_AGE_KEY_FILE, SOPS_AGE_SSH_PRIVATE_KEY_CMD, SOPS_AGE_KEY_CMD",
            public(&IDENTITY),
            public(&OTHER)
        )
    );
    let none = with_identity("# nothing\nnonsense", |keyring| sealed.open(keyring)).err().unwrap().to_string();
    assert!(none.contains("Also: SOPS_AGE_KEY: line 2 holds no age identity. "), "{none}");
}

#[test]
fn tampering_is_found() {
    let text = String::from_utf8(sealed(Format::Yaml, CLEAR)).unwrap();
    let line = |key: &str| text.lines().find(|line| line.trim_start().starts_with(key)).unwrap().to_owned();
    let token = line("token:");
    let flipped = token.replacen("data:", "data:AAAA", 1);
    assert_eq!(
        shown(open(Format::Yaml, text.replace(&token, &flipped).as_bytes())),
        "s: `proxmox.token` (line 3, column 5) does not decrypt: it was changed, moved from another key, or damaged; restore it from \
         version control"
    );
    // Swapped with a neighbour: each is whole, neither is in its place.
    let (port, tls) = (line("port:"), line("tls:"));
    let value = |line: &str| line.split_once(": ").unwrap().1.to_owned();
    let swapped =
        text.replace(&value(&port), "SWAP").replace(&value(&tls), &value(&port)).replace("SWAP", &value(&tls));
    assert!(shown(open(Format::Yaml, swapped.as_bytes())).contains("`proxmox.port`"));
    // Removed, and changed in clear.
    for broken in [text.replace(&format!("{port}\n"), ""), text.replace("b_unencrypted: clear", "b_unencrypted: other")]
    {
        assert!(shown(open(Format::Yaml, broken.as_bytes())).contains("its MAC does not match"));
    }
    let dropped = text.split("\n---\n").next().unwrap();
    assert!(shown(open(Format::Yaml, dropped.as_bytes())).contains("its MAC does not match"));
    let stamp = text.replace("2025-", "2026-");
    assert!(shown(open(Format::Yaml, stamp.as_bytes())).contains("its MAC does not match"));
}

#[test]
fn clear_text_where_ciphertext_is_due_is_refused() {
    let text = String::from_utf8(sealed(Format::Yaml, CLEAR)).unwrap();
    let token = text.lines().find(|line| line.trim_start().starts_with("token:")).unwrap();
    for planted in ["    token: planted", "    token: 1", "    token: true"] {
        let error = shown(open(Format::Yaml, text.replace(token, planted).as_bytes()));
        assert!(error.starts_with("s: `proxmox.token` (line 3, column 5) is in clear"), "{error}");
        assert!(!error.contains("planted"), "{error}");
    }
}

#[test]
fn files_that_are_no_sops_files_are_told_apart() {
    let text = String::from_utf8(sealed(Format::Yaml, "a: b\n")).unwrap();
    assert!(shown(open(Format::Yaml, b"a: b\n")).starts_with("s: it is not encrypted"));
    assert!(shown(open(Format::Binary, b"planted")).starts_with("s: it is not encrypted"));
    let no_version = text.replace("    version: 3.11.0\n", "");
    assert!(shown(open(Format::Yaml, no_version.as_bytes())).contains("has no `version`"));
    assert!(shown(open(Format::Yaml, b"a: b\nsops: [\n")).starts_with("s: it is not YAML (line "));
    assert!(shown(open(Format::Yaml, b"sops: {version: 3.11.0}\n")).contains("it names nobody"));
    let both = text.replace("    version:", "    encrypted_regex: x\n    version:");
    assert!(shown(open(Format::Yaml, both.as_bytes())).contains("at most one rule is allowed"));
    let encrypted_twice = Opened::fresh("s", Format::Yaml, text.as_bytes(), &policy(), &SystemEntropy);
    assert!(shown(encrypted_twice).starts_with("s: it is encrypted already"));
}

#[test]
fn line_ends_of_windows_do_no_harm() {
    for (format, clear) in [
        (Format::Yaml, "a: b\nc_unencrypted: d\n"),
        (Format::Dotenv, "A=b\nB_unencrypted=c\n"),
        (Format::Json, "{\"a\": \"b\"}"),
    ] {
        let text = String::from_utf8(sealed(format, clear)).unwrap().replace('\n', "\r\n");
        assert!(open(format, text.as_bytes()).is_ok(), "{format:?}");
    }
}

#[test]
fn keys_are_changed_and_rotated() {
    let before = sealed(Format::Yaml, CLEAR);
    let mut opened = open(Format::Yaml, &before).unwrap();
    assert!(opened.update_keys(&policy(), &SystemEntropy).unwrap().is_none());
    let both = Policy::for_recipients(vec![public(&IDENTITY), public(&OTHER)]);
    let (change, after) = opened.update_keys(&both, &SystemEntropy).unwrap().unwrap();
    assert_eq!(change, KeyChange { added: vec![public(&OTHER)], removed: vec![] });
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let values = |bytes: &[u8]| {
        text(bytes)
            .lines()
            .filter(|line| line.contains("ENC[") || line.contains("lastmodified"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(values(&before), values(&after), "the data key is the same");
    let sealed = Sealed::read("s", Format::Yaml, &after).unwrap();
    with_identity(&OTHER, |keyring| sealed.open(keyring)).unwrap();
    let mut opened = open(Format::Yaml, &after).unwrap();
    opened.rotate(&SystemEntropy).unwrap();
    let rotated = opened.seal(now(), &SystemEntropy).unwrap();
    assert!(values(&rotated).iter().all(|line| line.contains("lastmodified") || !values(&after).contains(line)));
    assert_eq!(*open(Format::Yaml, &rotated).unwrap().clear(Format::Yaml).unwrap(), CLEAR.as_bytes());
}

#[test]
fn key_groups_take_as_many_as_they_say() {
    let groups = vec![vec![public(&IDENTITY)], vec![public(&OTHER)], vec![public(&OTHER), public(&IDENTITY)]];
    for (threshold, alone_suffices) in [(2, true), (3, false), (0, false)] {
        let policy = Policy { groups: groups.clone(), shamir_threshold: threshold, ..Policy::default() };
        let mut fresh = Opened::fresh("s", Format::Json, b"{\"a\": 1}", &policy, &SystemEntropy).unwrap();
        let bytes = fresh.seal(now(), &SystemEntropy).unwrap();
        assert_eq!(open(Format::Json, &bytes).is_ok(), alone_suffices, "{threshold}");
        let sealed = Sealed::read("s", Format::Json, &bytes).unwrap();
        with_identity(&format!("{} {}", **IDENTITY, **OTHER), |keyring| sealed.open(keyring)).unwrap();
    }
    let impossible = Policy { groups, shamir_threshold: 4, ..Policy::default() };
    assert!(Opened::fresh("s", Format::Json, b"{}", &impossible, &SystemEntropy).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_text_comes_back(texts in proptest::collection::vec(any::<String>(), 1..6), only in any::<bool>()) {
        let items = texts.iter().enumerate().map(|(number, text)| Item::text(&format!("k{number}_x"), text));
        let document = Node::Map(items.collect());
        let clear = json::write(&document, None).unwrap();
        let rule = Some(Rule::new("encrypted_regex", "^k[02]").unwrap());
        let policy = Policy { rule, mac_only_encrypted: only, ..policy() };
        let mut fresh = Opened::fresh("s", Format::Json, &clear, &policy, &SystemEntropy).unwrap();
        let bytes = fresh.seal(now(), &SystemEntropy).unwrap();
        let opened = open(Format::Json, &bytes).unwrap();
        prop_assert_eq!(&*opened.clear(Format::Json).unwrap(), &*clear);
        prop_assert!(opened.clear(Format::Yaml).is_ok());
    }
}

/// Found by fuzzing: the metadata is written into every document, so none may have a key of that name.
#[test]
fn the_reserved_key_is_refused_in_every_document() {
    let policy = with_identity(&IDENTITY, |keyring| Policy::for_recipients(keyring.publics()));
    for (format, clear) in [
        (Format::Yaml, "sops: 1\n"),
        (Format::Yaml, "a: 1\n---\nsops:\n  b: 1\n"),
        (Format::Json, "{\"a\": 1, \"sops\": {}}"),
        (Format::Dotenv, "A=1\nsops_x=2\n"),
    ] {
        let fresh = Opened::fresh("s", format, clear.as_bytes(), &policy, &SystemEntropy);
        assert!(matches!(fresh.err().unwrap().problem, Problem::AlreadyEncrypted), "{clear}");
    }
}
