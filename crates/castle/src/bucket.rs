//! The bucket that several machines share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::Store;
use castle_s3::{Credentials, S3Config, S3Store};
use castle_spec::model::S3Bucket;
use castle_spec::values::SecretReference;

use crate::doors::Doors;
use crate::secret::secret;

/// The store in a bucket, and what to call it.
pub(crate) fn open(bucket: &S3Bucket, castle_file: &Path, doors: &Doors) -> Result<(Arc<dyn Store>, String), String> {
    let resolve = |reference: &SecretReference, what: &str| {
        secret(reference, castle_file, doors).map_err(|why| format!("state.store.s3.{what}: {why}"))
    };
    let credentials = Credentials {
        access_key_id: resolve(&bucket.access_key, "accessKey")?.expose().to_owned(),
        secret_access_key: resolve(&bucket.secret_key, "secretKey")?,
        session_token: None,
    };
    let region = bucket.region.to_string();
    let at_aws = || format!("https://s3.{region}.amazonaws.com");
    let endpoint = bucket.endpoint.as_ref().map_or_else(at_aws, |endpoint| endpoint.to_string());
    let prefix = bucket.prefix.as_ref().map_or_else(|| "castle".to_owned(), |prefix| prefix.to_string());
    let place = format!("bucket {} at {endpoint}", bucket.bucket.as_str());
    let config = S3Config {
        // Only AWS itself wants the bucket in the host name; everything else understands it in the path.
        path_style: bucket.endpoint.is_some(),
        endpoint,
        region,
        bucket: bucket.bucket.to_string(),
        prefix,
        ca_pem: None,
    };
    let dial = doors.dial(Duration::from_secs(10));
    let store = S3Store::new(&config, credentials, dial, doors.clock.clone()).map_err(|error| error.to_string())?;
    Ok((Arc::new(store), place))
}
