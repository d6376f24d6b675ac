//! Wrapping for those who may read.

use std::io::Write;
use std::str::FromStr;

use age::armor::{ArmoredWriter, Format};

use super::error::Problem;

/// `bytes` for one recipient, as an armored age file.
pub(super) fn wrap(recipient: &str, bytes: &[u8]) -> Result<String, Problem> {
    let refuse = |why: &str| Problem::Recipient { recipient: shown(recipient), why: why.to_owned() };
    let key = parse(recipient).map_err(refuse)?;
    let failed = |_| refuse("age could not wrap for it");
    let encryptor =
        age::Encryptor::with_recipients(std::iter::once(key.as_ref())).map_err(|_| refuse("age refuses it"))?;
    let armor = ArmoredWriter::wrap_output(Vec::new(), Format::AsciiArmor).map_err(failed)?;
    let mut writer = encryptor.wrap_output(armor).map_err(failed)?;
    writer.write_all(bytes).map_err(failed)?;
    let armored = writer.finish().and_then(ArmoredWriter::finish).map_err(failed)?;
    let mut text = String::from_utf8(armored).map_err(|_| refuse("age wrote no text"))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Whether a recipient can be wrapped for; if not, why.
pub(super) fn parse(recipient: &str) -> Result<Box<dyn age::Recipient>, &'static str> {
    if recipient.starts_with("AGE-SECRET-KEY-") {
        return Err("this is a private identity: give its public key, and replace it, for it has been shown");
    }
    if recipient.starts_with("age1pq1") {
        return Err("castle cannot wrap for post-quantum keys yet: use sops 3.12 or newer");
    }
    if recipient.starts_with("ssh-") {
        let key = age::ssh::Recipient::from_str(recipient);
        return key
            .map(|key| Box::new(key) as _)
            .map_err(|_| "it is not a public key of ssh-ed25519 or ssh-rsa (2048 bits or more)");
    }
    match age::x25519::Recipient::from_str(recipient) {
        Ok(key) => Ok(Box::new(key)),
        Err(_) if recipient.starts_with("age1") && recipient.matches('1').count() > 1 => {
            Err("it belongs to a plugin of age, which castle does not run: use sops itself")
        }
        Err(_) => Err("it is not a public key of age (age1...) or SSH"),
    }
}

/// What a recipient is called in an error: never more of a private identity than that it is one.
fn shown(recipient: &str) -> String {
    if recipient.starts_with("AGE-SECRET-KEY-") { "AGE-SECRET-KEY-...".to_owned() } else { recipient.to_owned() }
}
