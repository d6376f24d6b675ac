//! Lets many write the same record at once: `race ENDPOINT BUCKET KEY TASKS [RECORDS]`, the credentials from
//! `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, the region from `AWS_REGION` or else `us-east-1`, authorities to trust
//! from the file that `AWS_CA_BUNDLE` names.
//!
//! First TASKS writers expect nothing under KEY, then as many expect the version that won; one may win each time. What won
//! must be what is read, listed and removed. With RECORDS, so many are written beside it, listed and removed too. What KEY
//! has before its last slash is the prefix. `cargo xtask peers` runs it against servers nobody here wrote.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example speaks")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Expect, Store, StoreErrorKind, Tag};
use castle_s3::{Credentials, S3Config, S3Store};
use castle_seams::{Disk, SystemClock, SystemDisk, TcpDial};
use castle_secrets::Secret;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some([endpoint, bucket, key, tasks]), rest) = (args.first_chunk(), args.get(4)) else {
        eprintln!("usage: race ENDPOINT BUCKET KEY TASKS [RECORDS]");
        return ExitCode::FAILURE;
    };
    match race(endpoint, bucket, key, tasks, rest.map_or("0", String::as_str)).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn race(endpoint: &str, bucket: &str, key: &str, tasks: &str, records: &str) -> Outcome<bool> {
    let (tasks, records): (usize, usize) = (tasks.parse()?, records.parse()?);
    let (prefix, key) = key.rsplit_once('/').unwrap_or(("", key));
    let store = Arc::new(store(endpoint, bucket, prefix)?);

    store.delete(key).await?;
    let first = round(&store, key, tasks, None).await?;
    let found = store.get(key).await?.ok_or("what was written is not there")?;
    let second = round(&store, key, tasks, Some(found.tag.clone())).await?;
    let is_right = round_trip(&store, key, &first, &second, &found.bytes).await? && many(&store, key, records).await?;

    let told = if is_right { "ok" } else { "WRONG" };
    println!("won {} of {tasks}, then {} of {tasks}; round trip {told}", first.len(), second.len());
    Ok(first.len() == 1 && second.len() == 1 && is_right)
}

fn store(endpoint: &str, bucket: &str, prefix: &str) -> Outcome<S3Store> {
    let ca_pem = match std::env::var("AWS_CA_BUNDLE") {
        Ok(file) => Some(String::from_utf8(SystemDisk.read(Path::new(&file), 1 << 20)?)?),
        Err(_) => None,
    };
    let config = S3Config {
        endpoint: endpoint.to_owned(),
        region: std::env::var("AWS_REGION").unwrap_or_else(|_| "us-east-1".to_owned()),
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        path_style: true,
        ca_pem,
    };
    let credentials = Credentials {
        access_key_id: std::env::var("AWS_ACCESS_KEY_ID").map_err(|_| "AWS_ACCESS_KEY_ID is not set")?,
        secret_access_key: Secret::from(
            std::env::var("AWS_SECRET_ACCESS_KEY").map_err(|_| "AWS_SECRET_ACCESS_KEY is not set")?,
        ),
        session_token: std::env::var("AWS_SESSION_TOKEN").ok().map(Secret::from),
    };
    let dial = Arc::new(TcpDial { timeout: Duration::from_secs(10) });
    Ok(S3Store::new(&config, credentials, dial, Arc::new(SystemClock::new()))?)
}

/// Lets so many write at once; returns what the winners wrote, and their versions.
async fn round(store: &Arc<S3Store>, key: &str, tasks: usize, expected: Option<Tag>) -> Outcome<Vec<(Vec<u8>, Tag)>> {
    let round = if expected.is_some() { "second" } else { "first" };
    let mut writers = Vec::new();
    for number in 0..tasks {
        let (store, key, expected) = (store.clone(), key.to_owned(), expected.clone());
        writers.push(tokio::spawn(async move {
            let bytes = format!("writer {number} of the {round} round").into_bytes();
            let written = store.put(&key, &bytes, expected.as_ref().map_or(Expect::Nothing, Expect::Version)).await;
            written.map(|tag| (bytes, tag))
        }));
    }
    let mut won = Vec::new();
    for writer in writers {
        match writer.await? {
            Ok(winner) => won.push(winner),
            // Two that met and were both told to try again have not won.
            Err(error) if matches!(error.kind, StoreErrorKind::Conflict | StoreErrorKind::Unavailable) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(won)
}

async fn round_trip(
    store: &S3Store,
    key: &str,
    first: &[(Vec<u8>, Tag)],
    second: &[(Vec<u8>, Tag)],
    found_first: &[u8],
) -> Outcome<bool> {
    let found = store.get(key).await?.ok_or("what was written is not there")?;
    let was_read = first.iter().any(|(bytes, _)| bytes == found_first)
        && second.iter().any(|(bytes, tag)| *bytes == found.bytes && *tag == found.tag);
    let was_listed = store.list(key).await? == [key];
    store.delete(key).await?;
    store.delete(key).await?;
    let was_removed = store.get(key).await?.is_none() && store.list(key).await?.is_empty();
    let gone = store.put(key, b"late", Expect::Version(&found.tag)).await;
    let is_fenced = gone.is_err_and(|error| error.kind == StoreErrorKind::Conflict);
    Ok(was_read && was_listed && was_removed && is_fenced)
}

/// Writes so many records beside the key, and expects them all in the list.
async fn many(store: &Arc<S3Store>, key: &str, records: usize) -> Outcome<bool> {
    const AT_ONCE: usize = 16;
    let names: Vec<String> = (0..records).map(|number| format!("{key}-many/{number:06}")).collect();
    for names in names.chunks(AT_ONCE) {
        let writers = names.iter().cloned().map(|name| {
            let store = store.clone();
            tokio::spawn(async move { store.put(&name, name.as_bytes(), Expect::Nothing).await.map(drop) })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await??;
        }
    }
    let prefix = format!("{key}-many/");
    let were_listed = store.list(&prefix).await? == names;
    for names in names.chunks(AT_ONCE) {
        let removers = names.iter().cloned().map(|name| {
            let store = store.clone();
            tokio::spawn(async move { store.delete(&name).await })
        });
        for remover in removers.collect::<Vec<_>>() {
            remover.await??;
        }
    }
    Ok(were_listed && store.list(&prefix).await?.is_empty())
}
