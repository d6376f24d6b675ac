//! What opens the embedded datacenter: drawn when it begins, kept for its owner alone, in files that other programs can use.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use castle_datacenter::{
    EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_PASSWORD, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID,
};
use castle_seams::{Disk, DiskErrorKind, Entropy};
use castle_secrets::Secret;
use serde_json::json;
use zeroize::Zeroizing;

use super::ANEW;

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
        let kept = Kept::in_folder(folder);
        let client = json!({"clientId": EMBEDDED_CLIENT_ID, "clientSecret": self.client_secret.expose()});
        let [password, git_token] =
            [&self.password, &self.git].map(|secret| secret.as_ref().map(Secret::expose).unwrap_or_default());
        for (file, text) in [
            (kept.token, Zeroizing::new(format!("{}\n", *self.token()))),
            (kept.password, Zeroizing::new(format!("{password}\n"))),
            (kept.vault, Zeroizing::new(format!("{client}\n"))),
            // As `git credential-store` reads it.
            (kept.git, Zeroizing::new(format!("https://{GIT_USER}:{git_token}@{git}\n"))),
        ] {
            disk.replace(&file, text.as_bytes(), 0o600).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Reads those of the datacenter that serves. One that keeps none is in the process of whoever began it, and has those that are known.
    pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<Self, String> {
        let kept = Kept::in_folder(folder);
        if [&kept.token, &kept.password, &kept.vault, &kept.git].iter().all(|file| disk.metadata(file).is_err()) {
            return Ok(Self::default());
        }
        let needed = |file: &Path| text(disk, file)?.ok_or_else(|| useless(file, "lost"));
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
            password: text(disk, &kept.password).ok().flatten().map(Secret::registered),
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
            Ok(text) => Ok(Some(Zeroizing::new(text.trim().to_owned()))),
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
        assert_eq!(Keys::read(&disk, folder).unwrap().token.expose(), EMBEDDED_TOKEN, "none are kept");
        let shown = |keys: &Keys| {
            [&keys.token, keys.password.as_ref().unwrap(), &keys.client_secret, keys.git.as_ref().unwrap()]
                .map(|secret| secret.expose().to_owned())
        };
        let (first, second) = (Keys::draw(&Chance::new(1)).unwrap(), Keys::draw(&Chance::new(2)).unwrap());
        assert!(shown(&first).iter().zip(shown(&second)).all(|(one, other)| *one != other));
        castle_proxmox::client::Token::parse(&first.token()).unwrap();
        first.keep(&disk, folder, "127.0.0.1:4000".parse().unwrap()).unwrap();
        assert_eq!(shown(&Keys::read(&disk, folder).unwrap()), shown(&first));
        for name in [TOKEN, PASSWORD, VAULT, GIT] {
            assert_eq!(disk.metadata(&folder.join(name)).unwrap().mode, 0o600, "{name}");
        }
    }

    /// Goal: whatever is damaged of what opens a datacenter is named, with what the way out costs, and castle does without what it has no use for. Method: each
    /// file lost, damaged and supplanted, one at a time.
    #[test]
    fn whatever_does_not_open_is_named() {
        let folder = Path::new("/state/datacenter");
        for name in [TOKEN, PASSWORD, VAULT, GIT] {
            for how in ["lost", "damaged", "not text", "a folder"] {
                let disk = ModelDisk::default();
                let drawn = Keys::draw(&Chance::new(1)).unwrap();
                drawn.keep(&disk, folder, "127.0.0.1:4000".parse().unwrap()).unwrap();
                let file = folder.join(name);
                match how {
                    "lost" => disk.lose(&file),
                    "damaged" => disk.tamper(&file, b"nonsense".to_vec()),
                    "not text" => disk.tamper(&file, vec![0xff; 9]),
                    _ => disk.supplant(&file),
                }
                match Keys::read(&disk, folder) {
                    Ok(keys) => {
                        assert!(name == PASSWORD && keys.token.expose() == drawn.token.expose(), "{name} {how}");
                    }
                    Err(why) => {
                        let is_told = why.contains(&*file.to_string_lossy()) && why.contains("all castles that stand");
                        assert!(name != PASSWORD && is_told && why.contains("\n  next: "), "{name} {how}: {why}");
                    }
                }
            }
        }
    }
}
