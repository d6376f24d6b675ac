//! Keys of SSH as OpenSSH writes them.

use aes::cipher::{KeyIvInit, StreamCipher};
use aws_lc_rs::encoding::AsBigEndian;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const KIND: &[u8] = b"ssh-ed25519";
const SALT: &[u8; 16] = b"salt of this key";
const ROUNDS: u32 = 1;

fn text(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes(), bytes].concat()
}

/// The public half, the key, and the key locked by the passphrase `castle`.
pub(super) fn key() -> [String; 3] {
    let pair = Ed25519KeyPair::generate().unwrap();
    let seed = pair.seed().unwrap().as_be_bytes().unwrap();
    let public = pair.public_key().as_ref();
    let blob = [text(KIND), text(public)].concat();
    let both = [seed.as_ref(), public].concat();
    // Twice the same number tells that it was unlocked; then the key, its comment, and counted padding.
    let mut inside = [vec![7; 8], text(KIND), text(public), text(&both), text(b"test")].concat();
    inside.extend((1..).take(inside.len().next_multiple_of(16) - inside.len()));
    let around = |cipher: &[u8], derivation: &[u8], options: &[u8], inside: &[u8]| {
        let one = 1u32.to_be_bytes().to_vec();
        let parts = [
            b"openssh-key-v1\0".to_vec(),
            text(cipher),
            text(derivation),
            text(options),
            one,
            text(&blob),
            text(inside),
        ];
        let encoded = STANDARD.encode(parts.concat());
        let lines: Vec<&str> = encoded.as_bytes().chunks(70).map(|line| str::from_utf8(line).unwrap()).collect();
        let label = "OPENSSH PRIVATE KEY";
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    };
    let open = around(b"none", b"none", b"", &inside);
    let mut derived = [0; 48];
    bcrypt_pbkdf::bcrypt_pbkdf("castle", SALT, ROUNDS, &mut derived).unwrap();
    let (secret, start) = derived.split_at(32);
    ctr::Ctr128BE::<aes::Aes256>::new_from_slices(secret, start).unwrap().apply_keystream(&mut inside);
    let options = [text(SALT), ROUNDS.to_be_bytes().to_vec()].concat();
    let locked = around(b"aes256-ctr", b"bcrypt", &options, &inside);
    [format!("ssh-ed25519 {} test\n", STANDARD.encode(&blob)), open, locked]
}
