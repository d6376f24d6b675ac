//! Being logged in.

use std::time::Duration;

use castle_http::Method;
use castle_http::header::HeaderValue;
use serde_json::json;

use super::{Client, Heard, Request};
use crate::Secret;
use crate::redact::redact;
use crate::vault::{VaultError, VaultErrorKind};

/// A token is replaced this long before it ends, or at half its time if it is that short.
const MARGIN: Duration = Duration::from_secs(30);

/// Whether castle is logged in.
#[derive(Default)]
pub(super) enum Session {
    #[default]
    Closed,
    Open(Token),
    /// The identity was not believed. Three times lock it, so it is never shown again.
    Refused(VaultError),
}

/// What is shown with each request.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) header: HeaderValue,
    /// Tells it from those before.
    pub(super) number: u64,
    until: Duration,
}

impl Client {
    /// A token other than number `stale`. However many need one, they log in once.
    pub(super) async fn token(&self, stale: Option<u64>) -> Result<Token, VaultError> {
        let mut session = self.session.lock().await;
        let number = match &*session {
            Session::Refused(error) => return Err(error.clone()),
            Session::Open(token) if stale != Some(token.number) && self.clock.monotonic() < token.until => {
                return Ok(token.clone());
            }
            Session::Open(token) => token.number + 1,
            Session::Closed => 0,
        };
        // Nothing of a castle changes by a login, so it may be tried again where it was not refused.
        match self.login(number).await.map_err(|error| VaultError { changes: false, ..error }) {
            Ok(token) => {
                *session = Session::Open(token.clone());
                Ok(token)
            }
            Err(error) => {
                if error.kind == VaultErrorKind::Unauthenticated {
                    *session = Session::Refused(error.clone());
                }
                Err(error)
            }
        }
    }

    async fn login(&self, number: u64) -> Result<Token, VaultError> {
        let body = json!({"clientId": self.identity.client_id.expose(),
            "clientSecret": self.identity.client_secret.expose()});
        let target = "/v1/auth/universal-auth/login".to_owned();
        let request = Request { subject: "", method: Method::POST, target, body: Some(body.to_string()) };
        let begun = self.clock.monotonic();
        let answer = match self.patiently(&request, None).await? {
            Heard::Told(answer) => answer,
            Heard::Refused(refusal) => {
                let (kind, message) = (refusal.kind(), redact(&refusal.message).into_owned());
                let evidence = format!("the login of the identity was refused: {message}");
                let doubt = self.region.doubt();
                let next = match kind {
                    VaultErrorKind::Unauthenticated if refusal.message.contains("temporarily locked") => {
                        format!("wait five minutes, then check clientId and clientSecret; {doubt}")
                    }
                    VaultErrorKind::Unauthenticated => {
                        format!("check clientId and clientSecret before the next try, the third locks it; {doubt}")
                    }
                    _ => self.advice(kind),
                };
                return Err(self.failed(&request, kind, evidence).next(next));
            }
        };
        let told = answer["accessToken"].as_str().zip(answer["expiresIn"].as_u64());
        let (token, seconds) = told.ok_or_else(|| self.unreadable(&request))?;
        let token = Secret::registered(token.to_owned());
        let mut header =
            HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| self.unreadable(&request))?;
        header.set_sensitive(true);
        let life = Duration::from_secs(seconds);
        Ok(Token { header, number, until: begun + life.saturating_sub(MARGIN).max(life / 2) })
    }
}
