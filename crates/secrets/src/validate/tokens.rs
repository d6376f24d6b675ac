//! Shapes of tokens and keys that are text.

use super::{Why, pem, x509};

/// Text on one line; one newline at its end is overlooked.
pub(super) fn line(text: &str) -> Result<&str, Why> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.chars().any(char::is_control) {
        return Err("it has several lines or letters that cannot be seen".to_owned());
    }
    if text.trim() != text {
        return Err("it begins or ends with blanks".to_owned());
    }
    Ok(text)
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

pub(super) fn proxmox(text: &str) -> Result<(), Why> {
    let text = line(text)?;
    let text = text.strip_prefix("PVEAPIToken=").unwrap_or(text);
    let wrong = |why: &str| Err(format!("{why}: a token of Proxmox is written USER@REALM!NAME=SECRET"));
    let Some((name, secret)) = text.split_once('=') else { return wrong("it has no `=` before its secret") };
    let Some((user, token)) = name.split_once('!') else { return wrong("it has no `!` before its name") };
    let Some((user, realm)) = user.rsplit_once('@') else { return wrong("it has no `@` before its realm") };
    if [user, realm, token].iter().any(|part| part.is_empty() || part.contains(char::is_whitespace)) {
        return wrong("its user, realm or name is missing");
    }
    // A header has no others.
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong("its user, realm or name has letters that castle cannot send");
    }
    if !is_uuid(secret) {
        return wrong("what follows its `=` is not a secret that Proxmox makes (a UUID)");
    }
    Ok(())
}

pub(super) fn client_id(text: &str) -> Result<(), Why> {
    let is_right = is_uuid(line(text)?);
    if is_right { Ok(()) } else { Err("it is no client id of Infisical, which is a UUID".to_owned()) }
}

pub(super) fn client_secret(text: &str) -> Result<(), Why> {
    let text = line(text)?;
    if text.starts_with("st.") {
        return Err("it is a service token of Infisical, not the client secret of a machine identity".to_owned());
    }
    let is_right = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_right {
        Ok(())
    } else {
        Err("it is no client secret of Infisical, which has 64 hexadecimal digits".to_owned())
    }
}

pub(super) fn github(text: &str) -> Result<(), Why> {
    let text = line(text)?;
    let is_rest = |rest: &str, least: usize| {
        rest.len() >= least && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let classic = ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let is_right = match (classic, text.strip_prefix("github_pat_")) {
        (Some(rest), _) => is_rest(rest, 36),
        (None, Some(rest)) => is_rest(rest, 59),
        // As they were before they had prefixes.
        (None, None) => text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
    };
    if is_right { Ok(()) } else { Err("it has not the shape of a token of GitHub, or was cut".to_owned()) }
}

/// The beginning of what OpenSSH writes into its files.
const OPENSSH: &[u8] = b"openssh-key-v1\0";

pub(super) fn ssh(text: &str) -> Result<(), Why> {
    let first = text.trim_start().split(' ').next().unwrap_or_default();
    if first.starts_with("ssh-") || first.starts_with("ecdsa-") {
        return Err("it is the public half of an SSH key".to_owned());
    }
    let block = pem::block(text)?;
    if block.label != "OPENSSH PRIVATE KEY" {
        return x509::public_half(text).map(|_| ());
    }
    let rest = block.content.strip_prefix(OPENSSH).ok_or("it is no key of OpenSSH")?;
    // The name of the cipher comes first, after its length.
    let (length, rest) = rest.split_first_chunk().ok_or("it is no key of OpenSSH")?;
    let cipher = rest.get(..u32::from_be_bytes(*length) as usize).ok_or("it is no key of OpenSSH")?;
    if cipher == b"none" { Ok(()) } else { Err("it has a passphrase, which castle cannot ask for".to_owned()) }
}

pub(super) fn age(text: &str) -> Result<(), Why> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    for line in lines {
        count += 1;
        let is_known = line.starts_with("AGE-SECRET-KEY-PQ-1") || line.starts_with("AGE-PLUGIN-");
        let is_identity = is_known || line.parse::<age::x25519::Identity>().is_ok();
        if line.starts_with("age1") {
            return Err("it is a recipient of age, the public half".to_owned());
        }
        if !is_identity {
            return Err(format!("its line {count} without comments is no identity of age (AGE-SECRET-KEY-1...)"));
        }
    }
    if count == 0 { Err("it has no identity of age, only comments".to_owned()) } else { Ok(()) }
}
