//! What a castle and its nodes know each other by.

use std::time::Duration;

use castle_engine::{Class, Fault};

use crate::client::{Credentials, Identity};
use crate::model::bundle::Bundle;
use crate::model::pki::{self, Credential, Doors};

/// How long the certificate is valid that castle shows its nodes: longer than any run, and not long enough to be worth stealing.
const LIFETIME: Duration = Duration::from_hours(24);

/// The bundle, and who castle is by it.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The secrets of the cluster.
    pub bundle: Bundle,
    /// Who castle is to its nodes: issued for this run.
    pub credentials: Credentials,
    /// Who castle is to Kubernetes: issued for this run.
    pub kubernetes: Credential,
}

impl Keys {
    /// Issues what castle shows its nodes.
    ///
    /// # Errors
    ///
    /// If the bundle's authority cannot be used, or a door fails.
    pub async fn issue(bundle: Bundle, doors: Doors<'_>) -> Result<Self, Fault> {
        let wrong = |error: &dyn std::fmt::Display| Fault::new(Class::Final, "the Talos bundle", error.to_string());
        let admin = pki::new_talos_admin(&bundle.talos, LIFETIME, doors).await.map_err(|error| wrong(&error))?;
        let identity = Identity::from_pem(&admin.certificate, &admin.key).map_err(|error| wrong(&error))?;
        let authority = bundle.talos.certificate.clone();
        let kubernetes = pki::new_kubernetes_admin(&bundle.kubernetes, LIFETIME, doors).await;
        let kubernetes = kubernetes.map_err(|error| wrong(&error))?;
        Ok(Self { bundle, credentials: Credentials { authority, identity }, kubernetes })
    }
}
