//! Secrets: values that are never shown.
//!
//! [`Secret`] holds one. It is wiped when dropped, and there is one way to its value, which is easy to search for.
//! [`redact()`] takes registered ones out of any text. [`sops`] has them in files; [`vault`] is where they are kept, [`infisical`] the first kind of it.
//! [`validate`] tells whether they are what they should be.
//!
//! **Architecture invariant:** no type here shows, prints or serialises what it holds.

use std::fmt;

use zeroize::Zeroizing;

pub mod infisical;
pub mod redact;
pub mod sops;
pub mod validate;
pub mod vault;

pub use redact::redact;

/// A secret text. Its `Debug` tells nothing, not even its length; it has no `Display`, no comparison and no serialised form.
///
/// ```compile_fail
/// println!("{}", castle_secrets::Secret::from("x".to_owned()));
/// ```
///
/// ```compile_fail
/// fn serialised<T: serde::Serialize>(_: T) {}
/// serialised(castle_secrets::Secret::from("x".to_owned()));
/// ```
///
/// ```compile_fail
/// let _ = castle_secrets::Secret::from("x".to_owned()) == castle_secrets::Secret::from("x".to_owned());
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A secret that came from outside: masked in everything that castle shows from now on, see [`mod@redact`].
    #[must_use]
    pub fn registered(text: impl Into<Self>) -> Self {
        let secret = text.into();
        redact::register(secret.expose());
        secret
    }

    /// The value. Copies of it are the caller's to wipe.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Another secret made of this one: cut to size, for instance.
    #[must_use]
    pub fn map(&self, change: impl FnOnce(&str) -> &str) -> Self {
        Self(Zeroizing::new(change(&self.0).to_owned()))
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl From<Zeroizing<String>> for Secret {
    fn from(text: Zeroizing<String>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_shown() {
        let secret = Secret::from("planted".to_owned());
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret Some(Secret)");
        assert_eq!(secret.expose(), "planted");
        assert_eq!(secret.map(|text| &text[..5]).expose(), "plant");
    }
}
