//! X.509 certificates: what castle reads in one, and writing one field by field in the order in which Go writes them.

use aws_lc_rs::error::Unspecified;
use thiserror::Error;

use super::calendar::Moment;
use super::der::{Reader, bits, element, integer, tag};
use super::key::SigningKey;
use super::pem::{self, PemError};

const LABEL: &str = "CERTIFICATE";

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 14];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 35];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

const TRUE: &[u8] = &[tag::BOOLEAN, 1, 0xff];

/// Why a text is not a certificate.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CertificateError {
    /// It is not one PEM block.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The PEM block is something else.
    #[error("is not a certificate")]
    Label,
    /// The certificate is damaged.
    #[error("is a damaged certificate")]
    Content,
}

/// What is read in a certificate.
#[derive(Debug)]
pub(super) struct Certificate {
    /// The name, as it is encoded: whoever is issued to repeats it byte for byte.
    pub(super) subject: Vec<u8>,
    pub(super) public: Vec<u8>,
    pub(super) not_before: Moment,
    pub(super) not_after: Moment,
    pub(super) is_authority: bool,
    pub(super) subject_key_id: Option<Vec<u8>>,
}

impl Certificate {
    pub(super) fn from_pem(text: &str) -> Result<Self, CertificateError> {
        let (label, content) = pem::decode(text)?;
        if label != LABEL {
            return Err(CertificateError::Label);
        }
        Self::from_der(&content).ok_or(CertificateError::Content)
    }

    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        let mut outside = Reader::new(der);
        let mut certificate = Reader::new(outside.expect(tag::SEQUENCE)?.content);
        let mut fields = Reader::new(certificate.expect(tag::SEQUENCE)?.content);
        certificate.expect(tag::SEQUENCE)?;
        certificate.expect(tag::BITS)?;
        if !outside.is_empty() || !certificate.is_empty() {
            return None;
        }
        fields.optional(tag::EXPLICIT_0);
        fields.expect(tag::INTEGER)?;
        fields.expect(tag::SEQUENCE)?;
        fields.expect(tag::SEQUENCE)?;
        let mut validity = Reader::new(fields.expect(tag::SEQUENCE)?.content);
        let mut read = Self {
            not_before: Moment::from_der(&validity.next()?)?,
            not_after: Moment::from_der(&validity.next()?)?,
            subject: fields.expect(tag::SEQUENCE)?.whole.to_vec(),
            public: fields.expect(tag::SEQUENCE)?.whole.to_vec(),
            is_authority: false,
            subject_key_id: None,
        };
        while let Some(field) = fields.next() {
            if field.tag == tag::EXPLICIT_3 {
                let mut extensions = Reader::new(Reader::new(field.content).expect(tag::SEQUENCE)?.content);
                while !extensions.is_empty() {
                    read.extension(extensions.expect(tag::SEQUENCE)?.content)?;
                }
            }
        }
        fields.is_empty().then_some(read)
    }

    fn extension(&mut self, extension: &[u8]) -> Option<()> {
        let mut fields = Reader::new(extension);
        let name = fields.expect(tag::OBJECT)?.content;
        fields.optional(tag::BOOLEAN);
        let mut value = Reader::new(fields.expect(tag::OCTETS)?.content);
        match name {
            BASIC_CONSTRAINTS => {
                let mut constraints = Reader::new(value.expect(tag::SEQUENCE)?.content);
                self.is_authority = constraints.optional(tag::BOOLEAN).is_some_and(|flag| flag.whole == TRUE);
            }
            SUBJECT_KEY_ID => self.subject_key_id = Some(value.expect(tag::OCTETS)?.content.to_vec()),
            _ => {}
        }
        Some(())
    }
}

/// A certificate to be signed.
pub(super) struct Draft<'d> {
    pub(super) serial: [u8; 16],
    /// The encoded name of who signs.
    pub(super) issuer: &'d [u8],
    /// The encoded name of whom it is for.
    pub(super) subject: &'d [u8],
    pub(super) not_before: Moment,
    pub(super) not_after: Moment,
    /// The public key of whom it is for.
    pub(super) public: &'d [u8],
    pub(super) extensions: Vec<Vec<u8>>,
}

impl Draft<'_> {
    /// Signs it and writes it as PEM.
    pub(super) fn sign(&self, key: &SigningKey) -> Result<String, Unspecified> {
        let version = element(tag::EXPLICIT_0, &[&integer(&[2])]);
        let validity = element(tag::SEQUENCE, &[&self.not_before.to_der(), &self.not_after.to_der()]);
        let extensions: Vec<&[u8]> = self.extensions.iter().map(Vec::as_slice).collect();
        let extensions = element(tag::EXPLICIT_3, &[&element(tag::SEQUENCE, &extensions)]);
        let signed = element(
            tag::SEQUENCE,
            &[
                &version,
                &integer(&self.serial),
                key.algorithm(),
                self.issuer,
                &validity,
                self.subject,
                self.public,
                &extensions,
            ],
        );
        let signature = key.sign(&signed)?;
        let whole = element(tag::SEQUENCE, &[&signed, key.algorithm(), &bits(&signature)]);
        Ok(pem::encode(LABEL, &whole).as_str().to_owned())
    }
}

/// A name of an organisation and a person, of either, or of neither.
pub(super) fn name(organization: Option<&str>, common_name: Option<&str>) -> Vec<u8> {
    let part = |kind: &[u8], text: Option<&str>| {
        text.map_or_else(Vec::new, |text| {
            let text = element(tag::PRINTABLE, &[text.as_bytes()]);
            element(tag::SET, &[&element(tag::SEQUENCE, &[&element(tag::OBJECT, &[kind]), &text])])
        })
    };
    element(tag::SEQUENCE, &[&part(ORGANIZATION, organization), &part(COMMON_NAME, common_name)])
}

/// What a key may be used for, as bits of the first byte.
#[derive(Clone, Copy)]
pub(super) enum KeyUsage {
    /// digitalSignature.
    Signature,
    /// digitalSignature and keyEncipherment.
    SignatureAndEncipherment,
    /// digitalSignature and keyCertSign.
    SignatureAndCertificates,
}

pub(super) fn key_usage(usage: KeyUsage) -> Vec<u8> {
    let bits: &[u8] = match usage {
        KeyUsage::Signature => &[7, 0x80],
        KeyUsage::SignatureAndEncipherment => &[5, 0xa0],
        KeyUsage::SignatureAndCertificates => &[2, 0x84],
    };
    extension(KEY_USAGE, true, &element(tag::BITS, &[bits]))
}

/// Clients alone.
pub(super) fn for_clients() -> Vec<u8> {
    let clients = element(tag::OBJECT, &[CLIENT_AUTH]);
    extension(EXTENDED_KEY_USAGE, false, &element(tag::SEQUENCE, &[&clients]))
}

/// Servers and clients.
pub(super) fn for_servers_and_clients() -> Vec<u8> {
    let purposes = [element(tag::OBJECT, &[SERVER_AUTH]), element(tag::OBJECT, &[CLIENT_AUTH])];
    extension(EXTENDED_KEY_USAGE, false, &element(tag::SEQUENCE, &[&purposes[0], &purposes[1]]))
}

/// An authority, over any number of others.
pub(super) fn is_authority() -> Vec<u8> {
    extension(BASIC_CONSTRAINTS, true, &element(tag::SEQUENCE, &[TRUE]))
}

pub(super) fn subject_key_id(id: &[u8]) -> Vec<u8> {
    extension(SUBJECT_KEY_ID, false, &element(tag::OCTETS, &[id]))
}

pub(super) fn authority_key_id(id: &[u8]) -> Vec<u8> {
    extension(AUTHORITY_KEY_ID, false, &element(tag::SEQUENCE, &[&element(tag::IMPLICIT_0, &[id])]))
}

fn extension(name: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { TRUE } else { &[] };
    element(tag::SEQUENCE, &[&element(tag::OBJECT, &[name]), critical, &element(tag::OCTETS, &[value])])
}
