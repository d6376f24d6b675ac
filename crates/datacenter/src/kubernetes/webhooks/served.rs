//! Webhooks that are served inside of this process: what a component of a cluster is made to serve.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use crate::kubernetes::kube::Kube;

/// What a webhook says to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Verdict {
    /// It may be.
    #[default]
    Allow,
    /// It may be, with a word to whoever asks.
    Warn(String),
    /// It may be, changed by this JSON patch.
    Patch(Value),
    /// It may not be.
    Deny {
        /// The HTTP status: 403.
        code: u16,
        /// Why.
        message: String,
    },
    /// The server fails with this HTTP status.
    Fail(u16),
    /// No answer comes.
    Silence,
}

/// A request that a webhook is to judge, and the cluster that it is made in.
pub struct Asked<'a> {
    /// The path that was asked: `/validate-metallb-io-v1beta1-ipaddresspool`.
    pub path: &'a str,
    /// The `request` of the `AdmissionReview`.
    pub request: &'a Value,
    pub(crate) kube: &'a Kube,
}

impl Asked<'_> {
    /// The objects of a collection (`secrets`, `ipaddresspools.metallb.io`), in one namespace or (if it is empty) in all.
    pub fn objects<'a>(&'a self, collection: &str, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        self.kube.store.all(collection, namespace).map(|object| &**object)
    }
}

type Handler = dyn Fn(&Asked<'_>) -> Verdict + Send + Sync;

/// A server of admission webhooks inside of this process. Clones are the same one.
///
/// It refuses connections until [`Webhook::listen`] gives it a certificate; the API server holds that against the
/// `caBundle` of the configuration, as it does with one that it reaches over TLS. The handler is called while the world stands
/// still: it may look at the cluster's objects ([`Asked::objects`]), but must not ask the datacenter.
#[derive(Clone)]
pub struct Webhook {
    handler: Arc<Handler>,
    chain: Arc<Mutex<Option<Vec<CertificateDer<'static>>>>>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("listens", &self.chain().is_some()).finish_non_exhaustive()
    }
}

impl Webhook {
    /// One that judges so, and does not listen yet.
    pub fn new(handler: impl Fn(&Asked<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        Self { handler: Arc::new(handler), chain: Arc::default() }
    }

    /// Listens from now on, and shows this certificate (PEM, with those between it and its authority). One that cannot be read
    /// convinces nobody.
    pub fn listen(&self, certificate: &str) {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).filter_map(Result::ok).collect();
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = Some(chain);
    }

    /// Refuses connections from now on.
    pub fn close(&self) {
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What it shows; nothing if it does not listen.
    pub(crate) fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn judge(&self, asked: &Asked<'_>) -> Verdict {
        (self.handler)(asked)
    }
}
