//! Whatever the bytes: as age identities, as private keys of SSH, as a sealed identity file, as a sealed record of the state, and as the words
//! of a command, they are read or refused, and nothing panics.
#![no_main]

use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use castle_engine::Seal;
use castle_seams::{SystemDisk, SystemEntropy};
use castle_secrets::Secret;
use castle_secrets::sops::{Format, Keyring, Opened, Policy, Sealed, Surroundings, command_words};

/// A file for two that nobody here is: whoever opens it tries all that they have.
static SEALED: LazyLock<Sealed> = LazyLock::new(|| {
    let ssh = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHQtUokxLDwt8zWh6YDMpmi99cDipLADBM2H/+7G/R5k";
    let age = "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg";
    let policy = Policy::for_recipients([ssh, age].map(str::to_owned).to_vec());
    let mut fresh = Opened::fresh("fuzzed", Format::Yaml, b"a: 1\n", &policy, &SystemEntropy).unwrap();
    Sealed::read("fuzzed", Format::Yaml, &fresh.seal(UNIX_EPOCH, &SystemEntropy).unwrap()).unwrap()
});
static SEAL: LazyLock<Seal> = LazyLock::new(|| Seal::own(&[Seal::mint_identity(&SystemEntropy).unwrap()]).unwrap());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = SEAL.open(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = command_words(text);
    let variables = [
        ("SOPS_AGE_KEY", text),
        ("SOPS_AGE_KEY_CMD", "prints them"),
        ("SOPS_AGE_SSH_PRIVATE_KEY_CMD", "prints them"),
    ];
    let around = Surroundings {
        variables: variables.map(|(name, value)| (name.to_owned(), Secret::from(value.to_owned()))).into(),
        disk: &SystemDisk,
        run: &|_| Ok(Secret::from(text.to_owned())),
        passphrase: &|_| None,
    };
    let mut keyring = Keyring::gather(&around);
    let Err(problem) = SEALED.clone().open(&mut keyring) else { return };
    let problem = problem.to_string();
    // Whatever is wrong with an identity, it is not repeated; and much that is wrong is said in few words.
    assert!(!problem.contains("AGE-SECRET-KEY"), "{problem}");
    assert!(problem.len() < 16_384, "{} bytes", problem.len());
});
