//! Whatever the bytes: reading a SOPS file, a file in clear or a configuration never panics; and what can be read in clear is the same
//! once it was encrypted and opened again.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use castle_secrets::Secret;
use castle_secrets::sops::{Config, Format, KeyPath, Keyring, Opened, Policy, Sealed, Surroundings};
use castle_seams::{SystemDisk, SystemEntropy};

/// One for the whole run: that which seeds were encrypted for, or a new one.
static IDENTITY: LazyLock<Secret> = LazyLock::new(|| match std::env::var("SOPS_AGE_KEY") {
    Ok(given) => Secret::from(given),
    Err(_) => Secret::from(castle_engine::Seal::mint_identity(&SystemEntropy).unwrap()),
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let around = Surroundings {
        variables: BTreeMap::from([("SOPS_AGE_KEY".to_owned(), IDENTITY.clone())]),
        disk: &SystemDisk,
        run: &|_| Err(String::new()),
        passphrase: &|_| None,
    };
    let mut keyring = Keyring::gather(&around);
    let policy = Policy::for_recipients(keyring.publics());
    for format in [Format::Yaml, Format::Json, Format::Dotenv, Format::Binary] {
        if let Ok(sealed) = Sealed::read("fuzzed", format, bytes) {
            assert!(!sealed.recipients().is_empty());
            let opened = sealed.open(&mut keyring).ok();
            // What can be shown can be written again, and is the same.
            if let Some((mut opened, clear)) = opened.and_then(|opened| opened.clear(format).ok().map(|clear| (opened, clear))) {
                let again = opened.seal(UNIX_EPOCH, &SystemEntropy).unwrap();
                let again = Sealed::read("fuzzed", format, &again).unwrap().open(&mut keyring).unwrap();
                assert_eq!(again.clear(format).unwrap(), clear);
            }
        }
        let Ok(mut fresh) = Opened::fresh("fuzzed", format, bytes, &policy, &SystemEntropy) else { continue };
        let Ok(sealed) = fresh.seal(UNIX_EPOCH, &SystemEntropy) else { continue };
        let again = Sealed::read("fuzzed", format, &sealed).unwrap().open(&mut keyring).unwrap();
        assert_eq!(again.clear(format).unwrap(), fresh.clear(format).unwrap());
    }
    if let Ok(config) = Config::read(Path::new("/fuzzed/.sops.yaml"), bytes) {
        let _ = config.policy(Path::new("/fuzzed/secrets.yaml"));
    }
    if let Some(path) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<KeyPath>().ok()) {
        assert_eq!(path.to_string().parse(), Ok(path));
    }
});
