//! Whatever the bytes: no panic; what is in clear is the same once it was encrypted and opened again; and a sealed file of which something
//! was changed opens to the same, or not at all.
//!
//! The same is fuzzed (`cargo fuzz run sops`, `cargo fuzz run identities`); what fuzzing found interesting is replayed here.
#![allow(clippy::disallowed_methods, reason = "the corpus is on disk")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use castle_engine::Seal;
use castle_seams::{SystemDisk, SystemEntropy};
use castle_secrets::Secret;
use castle_secrets::sops::{Config, Format, KeyPath, Keyring, Opened, Policy, Sealed, Surroundings};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const FORMATS: [Format; 4] = [Format::Yaml, Format::Json, Format::Dotenv, Format::Binary];

static IDENTITY: LazyLock<Secret> = LazyLock::new(|| Secret::from(Seal::mint_identity(&SystemEntropy).unwrap()));

fn with_keyring<T>(then: impl FnOnce(&mut Keyring<'_>) -> T) -> T {
    let around = Surroundings {
        variables: BTreeMap::from([("SOPS_AGE_KEY".to_owned(), IDENTITY.clone())]),
        more: Vec::new(),
        disk: &SystemDisk,
        run: &|_| Err(String::new()),
        passphrase: &|_| None,
    };
    then(&mut Keyring::gather(&around))
}

/// The file in clear as a sealed one, if it is one of this format.
fn sealed(format: Format, clear: &[u8]) -> Option<(Opened, Vec<u8>)> {
    let policy = with_keyring(|keyring| Policy::for_recipients(keyring.publics()));
    let mut fresh = Opened::fresh("s", format, clear, &policy, &SystemEntropy).ok()?;
    let sealed = fresh.seal(UNIX_EPOCH, &SystemEntropy).ok()?;
    Some((fresh, sealed))
}

/// What a sealed file holds, if it opens.
fn opened(format: Format, bytes: &[u8]) -> Option<Vec<u8>> {
    let sealed = Sealed::read("s", format, bytes).ok()?;
    assert!(!sealed.recipients().is_empty());
    let opened = with_keyring(|keyring| sealed.open(keyring)).ok()?;
    opened.clear(format).ok().map(|clear| clear.to_vec())
}

fn hold(bytes: &[u8]) {
    for format in FORMATS {
        opened(format, bytes);
        if let Some((fresh, sealed)) = sealed(format, bytes) {
            assert_eq!(opened(format, &sealed).unwrap(), fresh.clear(format).unwrap().to_vec(), "{format:?}");
        }
    }
    if let Ok(config) = Config::read(Path::new("/fuzzed/.sops.yaml"), bytes) {
        let _ = config.policy(Path::new("/fuzzed/secrets.yaml"));
    }
    if let Some(path) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<KeyPath>().ok()) {
        assert_eq!(path.to_string().parse(), Ok(path));
    }
}

#[test]
fn on_the_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/sops");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        hold(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 50, "the corpus has only {count} files");
}

/// Files of which everything is encrypted and nothing is nothing: all of it is held by the MAC and by the places of the values.
const WHOLE: [(Format, &str); 4] = [
    (Format::Yaml, "db:\n    password: hunter2\n    port: 5432\nready: true\nratio: 1.5\n"),
    (Format::Json, "{\"db\": {\"password\": \"hunter2\", \"port\": 5432}, \"ready\": true}"),
    (Format::Dotenv, "PASSWORD=hunter2\nPORT=5432\n"),
    (Format::Binary, "hunter2\n"),
];
/// A format, a sealed file, and what it holds.
type Whole = (Format, Vec<u8>, Vec<u8>);
static SEALED: LazyLock<Vec<Whole>> = LazyLock::new(|| {
    let seal = |(format, clear): &(Format, &str)| {
        let (fresh, sealed) = sealed(*format, clear.as_bytes()).unwrap();
        (*format, sealed, fresh.clear(*format).unwrap().to_vec())
    };
    WHOLE.iter().map(seal).collect()
});

/// Pieces that YAML, JSON, dotenv and SOPS give a meaning to.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        ":",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a ",
        "*a",
        "<<: *a",
        "!!binary ",
        "|\n",
        ">\n",
        "\"",
        "'",
        "#",
        "# c\n",
        "---\n",
        "...\n",
        "%",
        "\t",
        "~",
        "null",
        "true",
        "0777",
        "1e3",
        ".inf",
        "2024-01-02",
        "a",
        "b: 1\n",
        "sops",
        "sops:\n",
        "sops_version=1\n",
        "ENC[AES256_GCM,data:",
        ",iv:",
        ",tag:",
        ",type:str]",
        "A=1\n",
        "=",
        "\\n",
        "export ",
        "_unencrypted",
        "mac",
        "age",
        "\u{feff}",
        "\r\n",
        "ü",
        "\u{2028}",
        "\u{0}",
        "creation_rules:\n",
        "path_regex: (\n",
    ];
    prop_oneof![4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    #[test]
    fn on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        hold(&bytes);
    }

    #[test]
    fn on_pieces(pieces in proptest::collection::vec(piece(), 0..40)) {
        hold(pieces.concat().as_bytes());
    }

    #[test]
    fn what_was_changed_opens_to_the_same_or_not_at_all(
        which in 0..WHOLE.len(), at in any::<prop::sample::Index>(), cut in 0..40usize, put in prop_oneof![Just(String::new()), piece()],
    ) {
        let (format, bytes, clear) = &SEALED[which];
        let start = at.index(bytes.len());
        let changed = [&bytes[..start], put.as_bytes(), &bytes[(start + cut).min(bytes.len())..]].concat();
        if let Some(now) = opened(*format, &changed) {
            prop_assert_eq!(String::from_utf8_lossy(&now), String::from_utf8_lossy(clear));
        }
    }

    /// Whatever identities are said to be, they are used or refused, and never repeated.
    #[test]
    fn identities_are_never_repeated(text in "[A-Za-z0-9+/=-]{41,80}") {
        let variables = ["SOPS_AGE_KEY", "SOPS_AGE_KEY_CMD", "SOPS_AGE_SSH_PRIVATE_KEY_CMD"];
        let around = Surroundings {
            variables: variables.map(|name| (name.to_owned(), Secret::from(text.clone()))).into(),
            more: Vec::new(),
            disk: &SystemDisk,
            run: &|_| Ok(Secret::from(text.clone())),
            passphrase: &|_| None,
        };
        let (format, bytes, _) = &SEALED[0];
        let refused = Sealed::read("s", *format, bytes).unwrap().open(&mut Keyring::gather(&around)).err().unwrap();
        prop_assert!(!refused.to_string().contains(&text), "{}", refused);
    }
}
