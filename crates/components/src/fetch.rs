//! Manifests from the web: a bounded number of addresses, each asked once, over TLS alone.

use std::sync::Arc;
use std::time::Duration;

use castle_http::{Ask, Client, Endpoint, Method, Trust, header};
use castle_seams::{Clock, Dial};

use crate::mirror::MAX_MANIFEST_BYTES;

/// How many addresses are asked until one gives the manifest: what is published on a release page lies elsewhere.
const MOST_ADDRESSES: usize = 5;

/// The time allowed for each address.
const DEADLINE: Duration = Duration::from_secs(60);

/// Downloads what is at an address.
pub(crate) async fn fetch(
    dial: &Arc<dyn Dial>,
    clock: &Arc<dyn Clock>,
    trust: &Trust,
    url: &str,
) -> Result<Vec<u8>, String> {
    let mut next = url.to_owned();
    for _ in 0..MOST_ADDRESSES {
        let (origin, path) = split(&next)?;
        let endpoint = Endpoint::parse(origin).map_err(|error| error.to_string())?;
        let client = Client::new(endpoint, trust, dial.clone(), clock.clone()).map_err(|error| error.to_string())?;
        let limit = usize::try_from(MAX_MANIFEST_BYTES).unwrap_or(usize::MAX);
        let client = client.with_deadline(DEADLINE).with_limit(limit).without_reuse();
        let answer = client.ask(&Ask::new(Method::GET, path)).await.map_err(|failure| failure.to_string())?;
        match answer.status.as_u16() {
            200 => return Ok(answer.body.to_vec()),
            301 | 302 | 303 | 307 | 308 => {
                let place = answer.headers.get(header::LOCATION).and_then(|place| place.to_str().ok());
                let place = place.ok_or_else(|| format!("{origin} sends elsewhere without saying where"))?;
                next = if place.starts_with('/') && !place.starts_with("//") {
                    format!("{origin}{place}")
                } else {
                    place.to_owned()
                };
            }
            404 => return Err(format!("{origin} has no such file (404)")),
            status => return Err(format!("{origin} answers {status}")),
        }
    }
    Err(format!("it is sent elsewhere more than {} times", MOST_ADDRESSES - 1))
}

/// The host of an address, and what is asked of it. What it is sent to may hold a signature, so no error repeats it.
fn split(url: &str) -> Result<(&str, &str), String> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Err("it is sent to an address without TLS".to_owned());
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let path = rest.get(end..).unwrap_or_default();
    let path = path.split('#').next().unwrap_or_default();
    Ok((url.get(.."https://".len() + end).unwrap_or(url), if path.is_empty() { "/" } else { path }))
}
