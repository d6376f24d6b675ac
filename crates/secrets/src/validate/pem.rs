//! PEM and base64, as they come out of YAML files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::Why;

/// What a PEM block holds.
pub(super) struct Block {
    pub(super) label: String,
    pub(super) content: Zeroizing<Vec<u8>>,
}

const BEGIN: &str = "-----BEGIN ";

/// What base64 says. Loses only what folded YAML puts in between; all else is an error.
pub(super) fn base64(text: &str) -> Result<Zeroizing<Vec<u8>>, Why> {
    let bare: Zeroizing<String> = Zeroizing::new(text.chars().filter(|letter| !" \t\r\n".contains(*letter)).collect());
    match STANDARD.decode(bare.as_bytes()) {
        Ok(bytes) => Ok(Zeroizing::new(bytes)),
        Err(_) if bare.contains(['-', '_']) => Err("it is base64 of the alphabet for addresses".to_owned()),
        Err(_) => Err("it is no base64: other letters, or its end is missing".to_owned()),
    }
}

/// The one block of a text that is PEM, or base64 of PEM as Talos keeps it; of base64 of something else, what that is.
pub(super) fn unwrapped(text: &str) -> Result<Result<Block, Zeroizing<Vec<u8>>>, Why> {
    if text.trim_start().starts_with(BEGIN) {
        return block(text).map(Ok);
    }
    let bytes = base64(text)?;
    match std::str::from_utf8(&bytes) {
        Ok(inner) if inner.trim_start().starts_with(BEGIN) => block(inner).map(Ok),
        Ok(inner) if inner.trim_start().starts_with("LS0tLS1CRUdJTi") => Err("it is base64 of base64".to_owned()),
        _ => Ok(Err(bytes)),
    }
}

/// The one block of a PEM text.
pub(super) fn block(text: &str) -> Result<Block, Why> {
    let mut lines = text.lines().map(str::trim_end).skip_while(|line| line.is_empty());
    let begin = lines.next().unwrap_or_default();
    let label = begin.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-----"));
    let label = label.ok_or("it does not begin with a PEM block")?.to_owned();
    let mut body = Zeroizing::new(String::with_capacity(text.len()));
    loop {
        let line = lines.next().ok_or("its PEM block does not end")?;
        match line.strip_prefix("-----END ") {
            Some(end) if end.strip_suffix("-----") == Some(&label) => break,
            Some(_) => return Err("its PEM block ends as another began".to_owned()),
            // Keys of old have headers, which say that they are locked.
            None if line.contains(':') => return Err("its PEM block has headers: it has a passphrase".to_owned()),
            None => body.push_str(line),
        }
    }
    if lines.any(|line| !line.is_empty()) {
        return Err("it has more than one PEM block, or something after it".to_owned());
    }
    let content = STANDARD.decode(body.as_bytes()).map_err(|_| "its PEM block is damaged")?;
    Ok(Block { label, content: Zeroizing::new(content) })
}
