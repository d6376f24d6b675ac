//! What a source controller makes of the Secret of a repository: by the scheme of its address, and by its provider.

use serde_json::Value;

use crate::kubernetes::components::secret_text;
use crate::kubernetes::value;

/// What is shown to a Git host. It has no `Debug`: it is a secret.
pub(crate) enum Credential {
    None,
    /// A password or a token.
    Token(String),
    /// A key of SSH, and the hosts that are known.
    Key {
        identity: String,
        known_hosts: String,
    },
    /// An app: its number, its key, and where it is installed.
    App {
        id: String,
        key: String,
        installation: Installation,
    },
}

/// Where an app is installed.
pub(crate) enum Installation {
    Id(String),
    Owner(String),
}

/// Why a Secret does not do: a reason and a text.
type Unfit = (&'static str, String);

fn unfit(why: &str) -> Unfit {
    ("AuthenticationFailed", format!("failed to configure authentication options: {why}"))
}

/// What is said of an app that GitHub does not know, or whose key is another.
pub(super) fn not_installed(installation: &Installation) -> String {
    let why = match installation {
        Installation::Id(id) => format!(
            "POST https://api.github.com/app/installations/{id}/access_tokens: 401 A JSON web token could not be decoded []"
        ),
        Installation::Owner(owner) => format!(
            "failed to find organization installation: GET https://api.github.com/orgs/{owner}/installation: 401 A JSON web token \
             could not be decoded []"
        ),
    };
    unfit(&why).1
}

/// The credential for a repository, from its Secret.
pub(super) fn credential(repository: &Value, url: &str, secret: Option<&Value>) -> Result<Credential, Unfit> {
    let part = |key: &str| secret.and_then(|secret| secret_text(secret, key)).unwrap_or_default();
    let name = || format!("{}/{}", value::namespace(repository), value::text(repository, "spec.secretRef.name"));
    let plain = by_scheme(url, &part, &name)?;
    let is_app = !part("githubAppID").is_empty();
    match (value::text(repository, "spec.provider"), is_app) {
        ("github", true) => app(&part, &name()),
        ("github", false) => {
            let why = "secretRef with github app data must be specified when provider is set to github";
            Err(("InvalidProviderConfiguration", why.to_owned()))
        }
        (_, true) => {
            let why = format!("secretRef '{}' has github app data but provider is not set to github", name());
            Err(("InvalidProviderConfiguration", why))
        }
        (_, false) => Ok(plain),
    }
}

fn by_scheme(url: &str, part: &dyn Fn(&str) -> String, name: &dyn Fn() -> String) -> Result<Credential, Unfit> {
    if url.starts_with("ssh://") {
        let (identity, known_hosts) = (part("identity"), part("known_hosts"));
        for (key, value) in [("identity", &identity), ("known_hosts", &known_hosts)] {
            if value.is_empty() {
                return Err(unfit(&format!("invalid 'ssh' auth option: '{key}' is required")));
            }
        }
        if identity.contains("ENCRYPTED") && part("password").is_empty() {
            let why = format!(
                "SSH identity key is encrypted but no 'password' field was provided in the secret '{}'",
                name()
            );
            return Err(("AuthenticationFailed", why));
        }
        return Ok(Credential::Key { identity, known_hosts });
    }
    let bearer = part("bearerToken");
    if !bearer.is_empty() {
        return Ok(Credential::Token(bearer));
    }
    match (part("username").as_str(), part("password")) {
        (_, password) if password.is_empty() => Ok(Credential::None),
        ("", _) => {
            let scheme = url.split("://").next().unwrap_or_default();
            Err(unfit(&format!("invalid '{scheme}' auth option: 'password' requires 'username' to be set")))
        }
        (_, password) => Ok(Credential::Token(password)),
    }
}

fn app(part: &dyn Fn(&str) -> String, name: &str) -> Result<Credential, Unfit> {
    let (id, key) = (part("githubAppID"), part("githubAppPrivateKey"));
    if key.is_empty() {
        let why = format!("secret '{name}': key 'githubAppPrivateKey' not found");
        return Err(("AuthenticationFailed", why));
    }
    let installation = match (part("githubAppInstallationOwner"), part("githubAppInstallationID")) {
        (owner, id) if owner.is_empty() != id.is_empty() => {
            if id.is_empty() {
                Installation::Owner(owner)
            } else {
                Installation::Id(id)
            }
        }
        _ => {
            let why = format!(
                "secret '{name}' must contain exactly one of 'githubAppInstallationOwner' or 'githubAppInstallationID'"
            );
            return Err(("AuthenticationFailed", why));
        }
    };
    if id.parse::<i64>().is_err() {
        return Err(unfit("app ID must be provided to use github app authentication"));
    }
    if !key.contains("-----BEGIN") {
        return Err(unfit("could not parse private key: invalid key: Key must be a PEM encoded PKCS1 or PKCS8 key"));
    }
    Ok(Credential::App { id, key, installation })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;

    /// What the controller makes of these parts: who is shown, or the reason and the text.
    fn told(url: &str, provider: &str, parts: &[(&str, &str)]) -> Result<&'static str, Unfit> {
        let repository = json!({
            "metadata": {"namespace": "flux-system"}, "spec": {"provider": provider, "secretRef": {"name": "auth"}},
        });
        let data: serde_json::Map<String, Value> =
            parts.iter().map(|(name, part)| ((*name).to_owned(), STANDARD.encode(part).into())).collect();
        let secret = json!({ "data": data });
        credential(&repository, url, Some(&secret)).map(|credential| match credential {
            Credential::None => "nobody",
            Credential::Token(_) => "token",
            Credential::Key { .. } => "key",
            Credential::App { .. } => "app",
        })
    }

    const HTTPS: &str = "https://git.example/r.git";
    const SSH: &str = "ssh://git@git.example/r.git";
    const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----";

    #[test]
    fn the_scheme_says_which_parts_count() {
        assert_eq!(told(HTTPS, "", &[("username", "u"), ("password", "p")]), Ok("token"));
        assert_eq!(told(HTTPS, "generic", &[("bearerToken", "t"), ("password", "p")]), Ok("token"));
        assert_eq!(
            told(HTTPS, "", &[("identity", "k"), ("ca.crt", "c")]),
            Ok("nobody"),
            "what it does not know it leaves"
        );
        assert_eq!(told(SSH, "", &[("identity", "k"), ("known_hosts", "h")]), Ok("key"));
        let app = [("githubAppID", "1"), ("githubAppPrivateKey", KEY), ("githubAppInstallationID", "2")];
        assert_eq!(told(HTTPS, "github", &app), Ok("app"));
    }

    #[test]
    fn what_is_missing_is_told_as_flux_tells_it() {
        let auth = |why: &str| Err(("AuthenticationFailed", why.to_owned()));
        let options = |why: &str| auth(&format!("failed to configure authentication options: {why}"));
        assert_eq!(
            told(HTTPS, "", &[("password", "p")]),
            options("invalid 'https' auth option: 'password' requires 'username' to be set")
        );
        assert_eq!(told(SSH, "", &[]), options("invalid 'ssh' auth option: 'identity' is required"));
        assert_eq!(
            told(SSH, "", &[("identity", "k")]),
            options("invalid 'ssh' auth option: 'known_hosts' is required")
        );
        let locked = [("identity", "-----BEGIN ENCRYPTED PRIVATE KEY-----"), ("known_hosts", "h")];
        assert_eq!(
            told(SSH, "", &locked),
            auth("SSH identity key is encrypted but no 'password' field was provided in the secret 'flux-system/auth'")
        );
    }

    #[test]
    fn an_app_has_a_provider_and_a_provider_an_app() {
        let unfit = |why: &str| Err(("InvalidProviderConfiguration", why.to_owned()));
        let missing = "secretRef with github app data must be specified when provider is set to github";
        assert_eq!(told(HTTPS, "github", &[("username", "u"), ("password", "p")]), unfit(missing));
        let other = "secretRef 'flux-system/auth' has github app data but provider is not set to github";
        assert_eq!(told(HTTPS, "", &[("githubAppID", "1")]), unfit(other));
        let app = |id: &str, key: &str, more: &[(&str, &str)]| {
            let parts = [&[("githubAppID", id), ("githubAppPrivateKey", key)], more].concat();
            told(HTTPS, "github", &parts).unwrap_err().1
        };
        let one = [("githubAppInstallationID", "2")];
        let both = [("githubAppInstallationID", "2"), ("githubAppInstallationOwner", "o")];
        assert!(app("1", KEY, &[]).contains("must contain exactly one of"));
        assert!(app("1", KEY, &both).contains("must contain exactly one of"));
        assert!(app("x", KEY, &one).contains("app ID must be provided"));
        assert!(app("1", "x", &one).contains("could not parse private key"));
        assert!(app("1", "", &one).contains("key 'githubAppPrivateKey' not found"));
    }
}
