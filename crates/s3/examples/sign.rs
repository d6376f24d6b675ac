//! Prints the header `Authorization` for a request described by one JSON object on standard input:
//!
//! `{"method", "host", "key", "query": [[name, value]...], "headers": {name: value}, "body_sha256", "region",
//! "access_key_id", "secret_access_key", "session_token"?, "time": "20260102T030405Z"}`
//!
//! The path is `/` and the key, encoded. `cargo xtask peers` compares it with signers nobody here wrote.
#![allow(clippy::print_stdout, reason = "an example speaks")]

use std::error::Error;

use castle_s3::Credentials;
use castle_s3::sign::{Parts, Stamp, encode_path, encode_query, sign};
use castle_secrets::Secret;
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let input: Value = serde_json::from_reader(std::io::stdin())?;
    let text = |name: &str| input[name].as_str().ok_or_else(|| format!("`{name}` is no string"));
    let pair = |pair: &'_ Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));

    let query: Option<Vec<_>> = input["query"].as_array().into_iter().flatten().map(pair).collect();
    let query = query.ok_or("`query` holds something that is no pair of strings")?;
    let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let headers = input["headers"].as_object();
    let headers = headers.into_iter().flatten().map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let headers: Vec<_> = headers.collect::<Option<_>>().ok_or("`headers` holds something that is no string")?;
    let credentials = Credentials {
        access_key_id: text("access_key_id")?.to_owned(),
        secret_access_key: Secret::from(text("secret_access_key")?.to_owned()),
        session_token: input["session_token"].as_str().map(|token| Secret::from(token.to_owned())),
    };
    let parts = Parts {
        method: text("method")?,
        host: text("host")?,
        path: &encode_path(&format!("/{}", text("key")?)),
        query: &encode_query(&query),
        headers: &headers,
        body_sha256: text("body_sha256")?,
    };
    let stamp = Stamp::parse(text("time")?).ok_or("`time` is not like 20260102T030405Z")?;
    println!("{}", sign(&parts, &credentials, text("region")?, &stamp).authorization());
    Ok(())
}
