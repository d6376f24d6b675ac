//! What is shown of the messages that may hold secrets.

use std::fmt;

use crate::common::Data;
use crate::cosi::resource::Spec;
use crate::machine::{ApplyConfigurationRequest, GenerateClientConfiguration, MetaWriteRequest};

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data")
            .field("metadata", &self.metadata)
            .field("length", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec").field("yaml_length", &self.yaml_spec.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ApplyConfigurationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyConfigurationRequest")
            .field("mode", &self.mode)
            .field("dry_run", &self.dry_run)
            .field("try_mode_timeout", &self.try_mode_timeout)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GenerateClientConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateClientConfiguration").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

impl fmt::Debug for MetaWriteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaWriteRequest").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::GenerateClientConfigurationResponse;

    #[test]
    fn what_is_carried_is_never_shown() {
        let planted = "planted";
        let answer = GenerateClientConfigurationResponse {
            messages: vec![GenerateClientConfiguration {
                key: planted.into(),
                ..GenerateClientConfiguration::default()
            }],
        };
        let shown = [
            format!("{:?}", Data { bytes: planted.into(), ..Data::default() }),
            format!("{:?}", Spec { yaml_spec: planted.into(), proto_spec: planted.into() }),
            format!("{:?}", ApplyConfigurationRequest { data: planted.into(), ..ApplyConfigurationRequest::default() }),
            format!("{answer:?}"),
            format!("{:?}", MetaWriteRequest { key: 7, value: planted.into() }),
        ]
        .join(" ");
        // Bytes would be shown as numbers.
        assert!(!shown.contains(planted) && !shown.contains("112, 108"), "{shown}");
        assert!(shown.contains("length: 7") && shown.contains("key: 7"), "{shown}");
    }
}
