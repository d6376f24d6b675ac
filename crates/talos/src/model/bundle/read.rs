//! From fields to a bundle, or to all that is wrong with them.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_secrets::Secret;
use serde_json::Value;
use zeroize::Zeroizing;

use super::problem::{BundleError, Note, NoteKind, Problem, ProblemKind};
use super::source::{Field, Source};
use super::{Bundle, EncryptionSecret, Loaded};
use crate::model::pki::{self, Credential, Moment};

/// What Talos shows in place of a secret.
const REDACTED: &str = "******";
/// How a value begins that SOPS has sealed.
const SEALED: &str = "ENC[";
/// How the base64 of PEM begins.
const ENCODED_PEM: &str = "LS0tLS1CRUdJTi";

impl Source<'_> {
    pub(super) fn read(&self, now: SystemTime) -> Result<Loaded, BundleError> {
        let mut reader = Reader { now: Moment::of(now), problems: Vec::new(), notes: Vec::new() };
        // One statement a field: all are read, whatever is wrong with one.
        let cluster_id = reader.text(self.cluster_id).map(|text| reader.compact(self.cluster_id, &text));
        let cluster_secret = reader.secret(self.cluster_secret);
        let bootstrap_token = reader.token(self.bootstrap_token);
        let encryption = reader.encryption(self.secretbox, self.aescbc);
        let trustd_token = reader.token(self.trustd_token);
        let etcd = reader.authority(self.etcd);
        let kubernetes = reader.authority(self.kubernetes);
        let aggregator = reader.authority(self.aggregator);
        let service_account = reader.key(self.service_account);
        let talos = reader.authority(self.talos);
        let bundle = || {
            Some(Bundle {
                cluster_id: cluster_id?.expose().to_owned(),
                cluster_secret: cluster_secret?,
                bootstrap_token: bootstrap_token?,
                encryption: encryption?,
                trustd_token: trustd_token?,
                etcd: etcd?,
                kubernetes: kubernetes?,
                aggregator: aggregator?,
                service_account: service_account?,
                talos: talos?,
            })
        };
        match bundle() {
            Some(bundle) if reader.problems.is_empty() => Ok(Loaded { bundle, notes: reader.notes }),
            _ => Err(BundleError::Problems(reader.problems)),
        }
    }
}

struct Reader {
    now: Moment,
    problems: Vec<Problem>,
    notes: Vec<Note>,
}

impl Reader {
    fn wrong<T>(&mut self, field: Field<'_>, kind: ProblemKind) -> Option<T> {
        self.problems.push(Problem { field: field.name, kind });
        None
    }

    fn note(&mut self, field: Field<'_>, kind: NoteKind) {
        self.notes.push(Note { field: field.name, kind });
    }

    /// A text that is there, and is itself.
    fn text(&mut self, field: Field<'_>) -> Option<Secret> {
        let text = match field.value {
            None | Some(Value::Null) => return self.wrong(field, ProblemKind::Missing),
            Some(Value::String(text)) => text,
            Some(_) => return self.wrong(field, ProblemKind::NotText),
        };
        match text.trim() {
            "" => self.wrong(field, ProblemKind::Missing),
            REDACTED => self.wrong(field, ProblemKind::Redacted),
            sealed if sealed.starts_with(SEALED) => self.wrong(field, ProblemKind::Sealed),
            _ => Some(Secret::from(text.clone())),
        }
    }

    /// What is known to be base64, without what editors and folding put into it.
    fn compact(&mut self, field: Field<'_>, text: &Secret) -> Secret {
        const WHITESPACE: [char; 4] = [' ', '\t', '\r', '\n'];
        if !text.expose().contains(WHITESPACE) {
            return text.clone();
        }
        self.note(field, NoteKind::Whitespace);
        let mut compact = Zeroizing::new(String::with_capacity(text.expose().len()));
        compact.extend(text.expose().chars().filter(|c| !WHITESPACE.contains(c)));
        compact.into()
    }

    fn base64(&mut self, field: Field<'_>) -> Option<(Secret, Zeroizing<Vec<u8>>)> {
        let text = self.text(field)?;
        let text = self.compact(field, &text);
        match STANDARD.decode(text.expose()) {
            Ok(content) => Some((text, Zeroizing::new(content))),
            Err(_) => self.wrong(field, ProblemKind::Base64),
        }
    }

    /// 32 bytes.
    fn secret(&mut self, field: Field<'_>) -> Option<Secret> {
        match self.base64(field)? {
            (text, content) if content.len() == 32 => Some(text),
            _ => self.wrong(field, ProblemKind::Length),
        }
    }

    fn token(&mut self, field: Field<'_>) -> Option<Secret> {
        let mut token = self.text(field)?;
        if token.expose().ends_with('\n') {
            self.note(field, NoteKind::FinalNewline);
            token = token.map(|text| text.strip_suffix("\r\n").or(text.strip_suffix('\n')).unwrap_or(text));
        }
        let is_part = |part: &str, length| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        };
        match token.expose().split_once('.') {
            Some((name, secret)) if is_part(name, 6) && is_part(secret, 16) => Some(token),
            _ => self.wrong(field, ProblemKind::Token),
        }
    }

    fn encryption(&mut self, secretbox: Field<'_>, aescbc: Field<'_>) -> Option<EncryptionSecret> {
        let is_there = |field: Field<'_>| field.value.is_some_and(|value| !value.is_null() && value != "");
        match (is_there(secretbox), is_there(aescbc)) {
            (true, true) => self.wrong(aescbc, ProblemKind::Exclusive),
            (false, true) => self.secret(aescbc).map(EncryptionSecret::AesCbc),
            (_, false) => self.secret(secretbox).map(EncryptionSecret::Secretbox),
        }
    }

    /// PEM: as it is, or wrapped in base64.
    fn pem(&mut self, field: Field<'_>) -> Option<Secret> {
        if field.plain {
            return self.text(field);
        }
        let (_, content) = self.base64(field)?;
        match str::from_utf8(&content) {
            Ok(text) if text.trim() == REDACTED => self.wrong(field, ProblemKind::Redacted),
            Ok(text) if text.starts_with(ENCODED_PEM) => self.wrong(field, ProblemKind::EncodedTwice),
            Ok(text) => Some(Secret::from(text.to_owned())),
            Err(_) => self.wrong(field, ProblemKind::Base64),
        }
    }

    fn key(&mut self, field: Field<'_>) -> Option<Secret> {
        let key = self.pem(field)?;
        match pki::check_key(&key) {
            Ok(()) => Some(key),
            Err(error) => self.wrong(field, ProblemKind::Key(error)),
        }
    }

    fn authority(&mut self, [certificate_field, key_field]: [Field<'_>; 2]) -> Option<Credential> {
        let certificate = self.pem(certificate_field);
        let key = self.pem(key_field);
        let flaws = pki::flaws(certificate.as_ref().map(Secret::expose), key.as_ref(), self.now);
        for flaw in &flaws {
            let field = if flaw.is_of_key() { key_field } else { certificate_field };
            self.problems.push(Problem { field: field.name, kind: ProblemKind::Flaw(*flaw) });
        }
        // A problem is a problem of the whole: `read` gives no bundle.
        Some(Credential { certificate: certificate?.expose().to_owned(), key: key? })
    }
}
