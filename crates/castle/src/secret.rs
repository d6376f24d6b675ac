//! What secret references refer to, but for the vault; and the identities that open SOPS files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use castle_secrets::Secret;
use castle_secrets::sops::{Command, Found, KeyPath, Keyring, Opened, Sealed, Surroundings, VARIABLES};
use castle_spec::values::SecretReference;
use zeroize::Zeroizing;

use crate::doors::Doors;
use crate::{project, terminal, trap};

/// No secret is longer.
const MAX_SECRET_BYTES: u64 = 1 << 20;
/// The identity for castles in a simulation, made for who has no other, beside what castle remembers.
pub(crate) const EMBEDDED_IDENTITY: &str = "embedded.agekey";
/// The one variable that holds identities themselves: no child gets it.
pub(crate) const IDENTITY_VARIABLE: &str = "SOPS_AGE_KEY";

/// What a reference in `castle_file` refers to. No error repeats any of it.
pub(crate) fn secret(reference: &SecretReference, castle_file: &Path, doors: &Doors) -> Result<Secret, String> {
    let folder = castle_file.parent().unwrap_or(Path::new(""));
    let text = match reference {
        SecretReference::Env(name) => {
            doors.variables.text(name).map(Secret::from).ok_or_else(|| format!("the environment has no {name}"))?
        }
        SecretReference::File(path) => {
            let file = folder.join(path);
            let bytes = doors.disk.read(&file, MAX_SECRET_BYTES).map_err(|error| error.to_string())?;
            let bytes = Zeroizing::new(bytes);
            let text = std::str::from_utf8(&bytes).map_err(|_| format!("{} is not text", file.display()))?;
            Secret::from(text.trim_end_matches('\n').to_owned())
        }
        SecretReference::Sops { file, path } => {
            let opened = open(&folder.join(file), doors)?;
            if path.is_empty() {
                let all = opened.clear(opened.format()).map_err(|error| error.to_string())?;
                let text = std::str::from_utf8(&all).map_err(|_| format!("{file} is not text"))?;
                Secret::from(text.to_owned())
            } else {
                let path: KeyPath = path.parse().map_err(|error| format!("{reference}: {error}"))?;
                opened.get(&path).map_err(|error| error.to_string())?
            }
        }
        SecretReference::Vault(_) => {
            return Err(format!(
                "{reference} is needed before the vault is: use sops:FILE#path, env:NAME or file:PATH"
            ));
        }
    };
    trap::spring("reference", text.expose());
    if text.is_empty() { Err(format!("{reference} is empty")) } else { Ok(Secret::registered(text)) }
}

/// A SOPS file, opened with the identities of whoever runs castle.
fn open(file: &Path, doors: &Doors) -> Result<Opened, String> {
    let sealed = Sealed::load(file, doors.disk.as_ref()).map_err(|error| error.to_string())?;
    with_keyring(doors, |keyring| sealed.open(keyring)).map_err(|error| error.to_string())
}

/// These members of a mapping in a SOPS file.
pub(crate) fn members(
    file: &Path,
    mapping: &str,
    names: &[&str],
    doors: &Doors,
) -> Result<BTreeMap<String, Secret>, String> {
    let opened = open(file, doors)?;
    let mut found = BTreeMap::new();
    for name in names {
        let path: KeyPath = format!("{mapping}.{name}").parse().map_err(|error| format!("{mapping}: {error}"))?;
        found.insert((*name).to_owned(), Secret::registered(opened.get(&path).map_err(|error| error.to_string())?));
    }
    Ok(found)
}

/// Those of these members that a mapping in a SOPS file has.
pub(crate) fn members_there(
    file: &Path,
    mapping: &str,
    names: &[&str],
    doors: &Doors,
) -> Result<BTreeMap<String, Secret>, String> {
    let opened = open(file, doors)?;
    let member = |name: &&str| {
        let path: KeyPath = format!("{mapping}.{name}").parse().ok()?;
        Some(((*name).to_owned(), Secret::registered(opened.get(&path).ok()?)))
    };
    Ok(names.iter().filter_map(member).collect())
}

/// Lends the identities of whoever runs castle, from all the places where sops looks for them.
pub(crate) fn with_keyring<T>(doors: &Doors, then: impl FnOnce(&mut Keyring<'_>) -> T) -> T {
    with_surroundings(doors, |around| then(&mut Keyring::gather(around)))
}

/// Goes on with the identities that were found before, if any were; gives them back for the next time.
pub(crate) fn with_found<T>(
    doors: &Doors,
    found: Option<Found>,
    then: impl FnOnce(&mut Keyring<'_>) -> T,
) -> (T, Found) {
    with_surroundings(doors, |around| {
        let mut ring = match found {
            Some(found) => Keyring::resume(around, found),
            None => Keyring::gather(around),
        };
        (then(&mut ring), ring.into_found())
    })
}

fn with_surroundings<T>(doors: &Doors, then: impl FnOnce(&Surroundings<'_>) -> T) -> T {
    let variable = |name: &&str| Some(((*name).to_owned(), Secret::from(doors.variables.text(name)?)));
    let variables: BTreeMap<String, Secret> = VARIABLES.iter().filter_map(variable).collect();
    let around = Surroundings {
        variables,
        more: project::state_folder(&doors.variables)
            .map(|folder| folder.join(EMBEDDED_IDENTITY))
            .into_iter()
            .collect(),
        disk: doors.disk.as_ref(),
        run: &run,
        passphrase: &|what| terminal::ask(&format!("Passphrase of {what}: ")),
    };
    then(&around)
}

/// Runs a program that prints identities. What it says of its own accord goes to the terminal.
fn run(command: &Command) -> Result<Secret, String> {
    let [program, arguments @ ..] = command.words.as_slice() else { return Err("there is no command".to_owned()) };
    let mut child = std::process::Command::new(program);
    child.args(arguments).env("SOPS_AGE_RECIPIENT", &command.recipient).env_remove(IDENTITY_VARIABLE);
    let output = child.stdin(Stdio::inherit()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{program} cannot be run: {error}"))?;
    let printed = Zeroizing::new(output.stdout);
    if !output.status.success() {
        return Err(format!("{program} ended with {}", output.status));
    }
    let text = std::str::from_utf8(&printed).map_err(|_| format!("{program} printed no text"))?;
    Ok(Secret::from(text.to_owned()))
}
