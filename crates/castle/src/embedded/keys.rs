//! What opens the embedded datacenter: drawn when it begins, kept for its owner alone, in files that other programs can use.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use castle_components::digest;
use castle_datacenter::{
    EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_PASSWORD, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID,
};
use castle_seams::{Disk, DiskErrorKind, Entropy};
use castle_secrets::Secret;
use serde_json::json;
use zeroize::Zeroizing;

use super::ANEW;
use crate::keeping::with_way_out;

const MAX_BYTES: u64 = 64 << 10;
const TOKEN: &str = "token";
const PASSWORD: &str = "password";
const VAULT: &str = "vault.json";
const GIT: &str = "git-credentials";
/// Whoever shows the token to Git: it takes any name.
pub(crate) const GIT_USER: &str = "castle";

/// What opens a datacenter.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The secret of the token.
    pub(crate) token: Secret,
    /// The password of `root@pam`, for others: castle itself has no use for it.
    pub(crate) password: Option<Secret>,
    /// What logs in at the vault.
    pub(crate) client_secret: Secret,
    /// What its Git host asks for, if it does.
    pub(crate) git: Option<Secret>,
}

impl Default for Keys {
    /// Those of a datacenter in this process, which nobody else can reach.
    fn default() -> Self {
        let known = |text: &str| Secret::from(text.to_owned());
        Self {
            token: known(EMBEDDED_TOKEN),
            password: Some(known(EMBEDDED_PASSWORD)),
            client_secret: known(EMBEDDED_CLIENT_SECRET),
            git: None,
        }
    }
}

/// Where they are kept.
pub(crate) struct Kept {
    pub(crate) token: PathBuf,
    pub(crate) password: PathBuf,
    pub(crate) vault: PathBuf,
    pub(crate) git: PathBuf,
}

impl Kept {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let [token, password, vault, git] = [TOKEN, PASSWORD, VAULT, GIT].map(|name| folder.join(name));
        Self { token, password, vault, git }
    }
}

impl Keys {
    /// Draws new ones.
    pub(crate) fn draw(entropy: &dyn Entropy) -> Result<Self, String> {
        let drawn = |bytes: usize| {
            let mut drawn = Zeroizing::new(vec![0; bytes]);
            entropy.fill(&mut drawn).map_err(|error| error.to_string())?;
            let text: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok::<_, String>(Zeroizing::new(text))
        };
        let hex = drawn(16)?;
        // A token's secret is a UUID of chance, which says so of itself.
        let token = format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
        Ok(Self {
            token: Secret::registered(token),
            password: Some(Secret::registered(drawn(16)?)),
            client_secret: Secret::registered(drawn(32)?),
            git: Some(Secret::registered(drawn(16)?)),
        })
    }

    /// Draws what else is secret in a datacenter comes from: what signs its tickets, the tokens of its vault and of its clusters. Its process alone
    /// knows it, and keeps it nowhere.
    pub(crate) fn draw_seed(entropy: &dyn Entropy) -> Result<Zeroizing<[u8; 32]>, String> {
        let mut seed = Zeroizing::new([0; 32]);
        entropy.fill(seed.as_mut_slice()).map_err(|error| error.to_string())?;
        Ok(seed)
    }

    /// The token as clients show it.
    pub(crate) fn token(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{EMBEDDED_TOKEN_ID}={}", self.token.expose()))
    }

    /// Keeps them for their owner alone; the Git host is at this address.
    pub(super) fn keep(&self, disk: &dyn Disk, folder: &Path, git: SocketAddr) -> Result<(), String> {
        for (name, text) in self.texts(git) {
            disk.replace(&folder.join(name), text.as_bytes(), 0o600).map_err(|error| with_way_out(&error))?;
        }
        Ok(())
    }

    /// What the files are by which castle is let in: one that is another opens nothing.
    pub(crate) fn digests(&self, git: SocketAddr) -> BTreeMap<String, String> {
        let needed = self.texts(git).into_iter().filter(|(name, _)| *name != PASSWORD);
        needed.map(|(name, text)| (name.to_owned(), digest(text.as_bytes()))).collect()
    }

    /// What is in each file.
    fn texts(&self, git: SocketAddr) -> [(&'static str, Zeroizing<String>); 4] {
        let client = json!({"clientId": EMBEDDED_CLIENT_ID, "clientSecret": self.client_secret.expose()});
        let [password, git_token] =
            [&self.password, &self.git].map(|secret| secret.as_ref().map(Secret::expose).unwrap_or_default());
        [
            (TOKEN, Zeroizing::new(format!("{}\n", *self.token()))),
            (PASSWORD, Zeroizing::new(format!("{password}\n"))),
            (VAULT, Zeroizing::new(format!("{client}\n"))),
            // As `git credential-store` reads it.
            (GIT, Zeroizing::new(format!("https://{GIT_USER}:{git_token}@{git}\n"))),
        ]
    }

    /// Reads those of the datacenter that serves, and has told what they are.
    pub(super) fn read(disk: &dyn Disk, folder: &Path, told: &BTreeMap<String, String>) -> Result<Self, String> {
        let kept = Kept::in_folder(folder);
        let needed = |file: &Path| {
            let text = text(disk, file)?.ok_or_else(|| useless(file, "lost"))?;
            let expected = file.file_name().and_then(|name| told.get(name.to_str()?));
            if expected.is_some_and(|expected| *expected != digest(text.as_bytes())) {
                return Err(useless(file, "damaged"));
            }
            Ok(Zeroizing::new(text.trim().to_owned()))
        };
        let damaged = |file: &Path| useless(file, "damaged");
        let token = needed(&kept.token)?;
        let secret = token.split_once('=').map(|(_, secret)| secret).ok_or_else(|| damaged(&kept.token))?;
        let client: serde_json::Value =
            serde_json::from_str(&needed(&kept.vault)?).map_err(|_| damaged(&kept.vault))?;
        let client_secret = client["clientSecret"].as_str().ok_or_else(|| damaged(&kept.vault))?;
        let git = needed(&kept.git)?;
        let login = git.strip_prefix("https://").and_then(|rest| rest.split_once('@')).map(|(login, _)| login);
        let git_token = login.and_then(|login| login.split_once(':')).ok_or_else(|| damaged(&kept.git))?.1;
        Ok(Self {
            token: Secret::registered(secret.to_owned()),
            password: text(disk, &kept.password).ok().flatten().map(|text| Secret::registered(text.trim().to_owned())),
            client_secret: Secret::registered(client_secret.to_owned()),
            git: Some(Secret::registered(git_token.to_owned())),
        })
    }
}

/// That a file which opens the datacenter does not, and what to do: only whoever begins draws another.
fn useless(file: &Path, how: &str) -> String {
    format!("{} is {how}\n  next: {ANEW}", file.display())
}

/// What is in a small file, if it is there.
fn text(disk: &dyn Disk, file: &Path) -> Result<Option<Zeroizing<String>>, String> {
    match disk.read(file, MAX_BYTES).map(Zeroizing::new) {
        Ok(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Some(Zeroizing::new(text.to_owned()))),
            Err(_) => Err(useless(file, "damaged")),
        },
        Err(error) if error.kind == DiskErrorKind::NotFound => Ok(None),
        Err(error) if error.kind == DiskErrorKind::IsDirectory => {
            Err(format!("{error}\n  next: move it away, and {ANEW}"))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use castle_rehearsal::{Chance, ModelDisk};

    use super::*;

    #[test]
    fn keys_are_drawn_kept_and_read_again() {
        let (disk, folder) = (ModelDisk::default(), Path::new("/state/datacenter"));
        let shown = |keys: &Keys| {
            [&keys.token, keys.password.as_ref().unwrap(), &keys.client_secret, keys.git.as_ref().unwrap()]
                .map(|secret| secret.expose().to_owned())
        };
        let (first, second) = (Keys::draw(&Chance::new(1)).unwrap(), Keys::draw(&Chance::new(2)).unwrap());
        assert!(shown(&first).iter().zip(shown(&second)).all(|(one, other)| *one != other));
        castle_proxmox::client::Token::parse(&first.token()).unwrap();
        let git = "127.0.0.1:4000".parse().unwrap();
        first.keep(&disk, folder, git).unwrap();
        for told in [first.digests(git), BTreeMap::new()] {
            assert_eq!(shown(&Keys::read(&disk, folder, &told).unwrap()), shown(&first));
        }
        for name in [TOKEN, PASSWORD, VAULT, GIT] {
            assert_eq!(disk.metadata(&folder.join(name)).unwrap().mode, 0o600, "{name}");
        }
    }

    /// Goal: whatever is damaged of what opens a datacenter is named, with what the way out costs, and castle does without what it has no use for. Method: each
    /// file lost, damaged in every way, each bit of it flipped, and supplanted, one at a time; and all of them lost.
    #[test]
    fn whatever_does_not_open_is_named() {
        let (folder, git) = (Path::new("/state/datacenter"), "127.0.0.1:4000".parse().unwrap());
        let drawn = Keys::draw(&Chance::new(1)).unwrap();
        let kept = || {
            let disk = ModelDisk::default();
            drawn.keep(&disk, folder, git).unwrap();
            disk
        };
        let is_told = |file: &Path, why: &str| {
            let words = [&*file.to_string_lossy(), "all castles that stand", "\n  next: "];
            words.iter().all(|word| why.contains(word))
        };
        for name in [TOKEN, PASSWORD, VAULT, GIT] {
            let file = folder.join(name);
            let whole = kept().contents()[&file].clone();
            let flipped = (0..whole.len() * 8).map(|bit| {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            });
            let damaged = [Vec::new(), whole[..whole.len() / 2].to_vec(), b"nonsense".to_vec(), vec![0xff; 9]];
            let tampered = damaged.into_iter().chain(flipped).map(Some).chain([None]);
            let mut disks: Vec<ModelDisk> = tampered
                .map(|bytes| {
                    let disk = kept();
                    match bytes {
                        Some(bytes) => disk.tamper(&file, bytes),
                        None => disk.lose(&file),
                    }
                    disk
                })
                .collect();
            disks.push(kept());
            disks.last().unwrap().supplant(&file);
            for disk in disks {
                let found = disk.contents().remove(&file);
                match Keys::read(&disk, folder, &drawn.digests(git)) {
                    Ok(keys) => {
                        assert!(name == PASSWORD && keys.token.expose() == drawn.token.expose(), "{name} {found:?}");
                    }
                    Err(why) => assert!(name != PASSWORD && is_told(&file, &why), "{name} {found:?}: {why}"),
                }
            }
        }
        let disk = kept();
        disk.lose(folder);
        let why = Keys::read(&disk, folder, &drawn.digests(git)).unwrap_err();
        assert!(is_told(&folder.join(TOKEN), &why) && why.contains("is lost"), "{why}");
    }
}
