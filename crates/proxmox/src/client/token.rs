//! The API token.

use castle_http::header::HeaderValue;
use castle_secrets::Secret;
use thiserror::Error;
use zeroize::Zeroizing;

/// An API token, as `USER@REALM!NAME=SECRET`.
pub struct Token(Secret);

/// What is wrong with a token. Does not repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the Proxmox token {0}: it is written USER@REALM!NAME=SECRET, as Proxmox shows it when a token is made")]
pub struct TokenError(&'static str);

impl Token {
    /// Reads a token.
    ///
    /// # Errors
    ///
    /// [`TokenError`] if it is none.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let text = text.strip_prefix("PVEAPIToken=").unwrap_or(text);
        let (name, secret) = text.split_once('=').ok_or(TokenError("has no `=` before its secret"))?;
        let (user, token) = name.split_once('!').ok_or(TokenError("has no `!` before its name"))?;
        if !user.contains('@') {
            return Err(TokenError("has no realm (`@pve`, `@pam`) after its user"));
        }
        if user.starts_with('@') || user.ends_with('@') || token.is_empty() {
            return Err(TokenError("has no user or no name"));
        }
        if secret.is_empty() {
            return Err(TokenError("has no secret after its `=`"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError("has blanks or letters that no token has"));
        }
        Ok(Self(Secret::from(text.to_owned())))
    }

    /// Whose token it is: `USER@REALM!NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.expose().split_once('=').map_or("", |(name, _)| name)
    }

    /// The header that shows it. Proxmox decodes what stands there, so what is special is encoded.
    pub(super) fn header(&self) -> HeaderValue {
        let encoded = Zeroizing::new(self.0.expose().replace('%', "%25").replace('+', "%2B"));
        let mut value = HeaderValue::from_str(&Zeroizing::new(format!("PVEAPIToken={}", *encoded)))
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_and_never_shown() {
        let token = Token::parse("castle@pve!up=aaaa-planted\n").unwrap();
        assert_eq!(token.name(), "castle@pve!up");
        assert!(!format!("{token:?} {:?}", token.header()).contains("planted"));
        assert_eq!(token.header().to_str().unwrap(), "PVEAPIToken=castle@pve!up=aaaa-planted");
        assert!(Token::parse("PVEAPIToken=castle@pve!up=x").is_ok(), "as some people keep it");
    }

    #[test]
    fn what_is_no_token_is_told_and_not_repeated() {
        for text in [
            "",
            "planted",
            "castle@pve!up",
            "castle!up=planted",
            "castle@pve=planted",
            "castle@pve!up=",
            "c@pve!up=pla nted",
            "@pve!up=x",
            "c@!up=x",
            "c@pve!=x",
        ] {
            let told = Token::parse(text).unwrap_err().to_string();
            assert!(!told.contains("planted"), "{told}");
        }
    }
}
