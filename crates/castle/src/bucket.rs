//! The bucket that several machines share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::Store;
use castle_s3::{Credentials, S3Config, S3Store};
use castle_seams::{Dial, TcpDial};
use castle_spec::model::S3Bucket;
use castle_spec::values::SecretReference;
use zeroize::Zeroizing;

use crate::keeping::Doors;

/// No key is longer.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// The store in a bucket, and what to call it.
pub(crate) fn open(bucket: &S3Bucket, castle_file: &Path, doors: &Doors) -> Result<(Arc<dyn Store>, String), String> {
    let resolve = |reference: &SecretReference, what: &str| {
        secret(reference, castle_file, doors).map_err(|why| format!("state.store.s3.{what}: {why}"))
    };
    let credentials = Credentials {
        access_key_id: resolve(&bucket.access_key, "accessKey")?.to_string(),
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
    let dial: Arc<dyn Dial> = Arc::new(TcpDial { timeout: Duration::from_secs(10) });
    let store = S3Store::new(&config, credentials, dial, doors.clock.clone()).map_err(|error| error.to_string())?;
    Ok((Arc::new(store), place))
}

/// What a reference refers to, as far as it can be had without the vault.
fn secret(reference: &SecretReference, castle_file: &Path, doors: &Doors) -> Result<Zeroizing<String>, String> {
    let text = match reference {
        SecretReference::Env(name) => {
            std::env::var(name).map(Zeroizing::new).map_err(|_| format!("the environment has no {name}"))?
        }
        SecretReference::File(path) => {
            let file = castle_file.parent().unwrap_or(Path::new("")).join(path);
            let bytes = doors.disk.read(&file, MAX_SECRET_BYTES).map_err(|error| error.to_string())?;
            let bytes = Zeroizing::new(bytes);
            let text = std::str::from_utf8(&bytes).map_err(|_| format!("{} is not text", file.display()))?;
            Zeroizing::new(text.trim_end_matches('\n').to_owned())
        }
        SecretReference::Sops { .. } | SecretReference::Vault(_) => {
            return Err("this castle cannot open SOPS files and vaults yet: use env:NAME or file:PATH".to_owned());
        }
    };
    if text.is_empty() { Err(format!("{reference} is empty")) } else { Ok(text) }
}
