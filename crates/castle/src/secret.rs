//! What secret references refer to, as far as it can be had without SOPS and the vault.

use std::path::Path;

use castle_seams::Disk;
use castle_secrets::Secret;
use castle_spec::values::SecretReference;
use zeroize::Zeroizing;

/// No secret is longer.
const MAX_SECRET_BYTES: u64 = 1 << 20;

/// What a reference in `castle_file` refers to. No error repeats any of it.
pub(crate) fn secret(reference: &SecretReference, castle_file: &Path, disk: &dyn Disk) -> Result<Secret, String> {
    let text = match reference {
        SecretReference::Env(name) => {
            std::env::var(name).map(Secret::from).map_err(|_| format!("the environment has no {name}"))?
        }
        SecretReference::File(path) => {
            let file = castle_file.parent().unwrap_or(Path::new("")).join(path);
            let bytes = disk.read(&file, MAX_SECRET_BYTES).map_err(|error| error.to_string())?;
            let bytes = Zeroizing::new(bytes);
            let text = std::str::from_utf8(&bytes).map_err(|_| format!("{} is not text", file.display()))?;
            Secret::from(text.trim_end_matches('\n').to_owned())
        }
        SecretReference::Sops { .. } | SecretReference::Vault(_) => {
            return Err(format!("{reference} cannot be opened by this castle yet: use env:NAME or file:PATH"));
        }
    };
    if text.is_empty() { Err(format!("{reference} is empty")) } else { Ok(text) }
}
