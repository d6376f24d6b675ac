//! How large an object may be, and who may write without having looked.

use serde_json::Value;

use crate::kubernetes::kinds::Resource;
use crate::kubernetes::status::Failure;

/// The most bytes of an object that etcd takes: 1.5 MiB with its envelope.
const OBJECT_LIMIT: usize = 1_536 << 10;

/// The most bytes of a message to etcd.
const MESSAGE_LIMIT: usize = 2 << 20;

/// Refuses an object that is too large to be kept.
pub(super) fn check_size(object: &Value) -> Result<(), Failure> {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut count, object);
    if count.0 > MESSAGE_LIMIT {
        let text = format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({} vs. {MESSAGE_LIMIT})",
            count.0
        );
        return Err(Failure::new(500, "", text));
    }
    if count.0 > OBJECT_LIMIT {
        return Err(Failure::new(500, "", "etcdserver: request is too large"));
    }
    Ok(())
}

/// Whether an object may be replaced by somebody who does not say what they saw.
pub(super) fn may_omit_version(resource: &Resource) -> bool {
    resource.custom().is_none()
        && ![
            "runtimeclasses.node.k8s.io",
            "poddisruptionbudgets.policy",
            "csidrivers.storage.k8s.io",
            "csistoragecapacities.storage.k8s.io",
            "volumeattachments.storage.k8s.io",
            "csinodes.storage.k8s.io",
            "leases.coordination.k8s.io",
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "customresourcedefinitions.apiextensions.k8s.io",
            "apiservices.apiregistration.k8s.io",
        ]
        .contains(&resource.qualified().as_str())
}
