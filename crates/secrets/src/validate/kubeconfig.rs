//! Kubeconfigs: whether the current context leads to a cluster and to somebody who may enter.

use std::collections::BTreeMap;
use std::time::SystemTime;

use granit_parser::{Event, Parser};
use zeroize::Zeroizing;

use super::{Why, x509};

/// How deep a kubeconfig nests, generously.
const DEPTH: usize = 32;

/// Every scalar by its path: `clusters.0.cluster.server`.
type Scalars = BTreeMap<String, Zeroizing<String>>;

pub(super) fn check(text: &str, now: SystemTime) -> Result<(), Why> {
    let scalars = read(text)?;
    let get = |path: &str| scalars.get(path).map(|value| value.as_str());
    if (get("apiVersion"), get("kind")) != (Some("v1"), Some("Config")) {
        return Err("it is no kubeconfig: apiVersion v1, kind Config".to_owned());
    }
    let named = |list: &str, name: &str| {
        (0..scalars.len()).map(|at| format!("{list}.{at}")).find(|at| get(&format!("{at}.name")) == Some(name))
    };
    let current = get("current-context").filter(|name| !name.is_empty()).ok_or("it has no current-context")?;
    let context = named("contexts", current).ok_or("its current-context is not among its contexts")?;
    let member = |kind: &str| get(&format!("{context}.context.{kind}")).unwrap_or_default();
    let cluster = named("clusters", member("cluster")).ok_or("the cluster of its current context is not there")?;
    let user = named("users", member("user")).ok_or("the user of its current context is not there")?;
    if !get(&format!("{cluster}.cluster.server")).is_some_and(|server| server.starts_with("https://")) {
        return Err("the server of its cluster is no https address".to_owned());
    }
    if let Some(authority) = get(&format!("{cluster}.cluster.certificate-authority-data")) {
        let checked = x509::Certificate::read(authority).and_then(|read| read.check_authority(now));
        checked.map_err(|why| format!("its certificate-authority-data: {why}"))?;
    }
    let of_user = |field: &str| get(&format!("{user}.user.{field}"));
    match (of_user("client-certificate-data"), of_user("client-key-data")) {
        (Some(certificate), Some(key)) => {
            let checked = x509::Certificate::read(certificate).and_then(|read| read.check_dates(now));
            checked.map_err(|why| format!("its client-certificate-data: {why}"))?;
            x509::public_half(key).map_err(|why| format!("its client-key-data: {why}"))?;
            let is_pair = x509::is_pair(certificate, key);
            if is_pair {
                Ok(())
            } else {
                Err("its client-key-data is not the key of its client-certificate-data".to_owned())
            }
        }
        (None, None) if of_user("token").is_some_and(|token| !token.is_empty()) => Ok(()),
        _ => Err("its user has neither certificate and key nor a token in it".to_owned()),
    }
}

enum Open {
    List(usize),
    /// The key that waits for its value.
    Map(Option<String>),
}

fn read(text: &str) -> Result<Scalars, Why> {
    let options = granit_parser::options! {
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
        disallow_directives: true,
    };
    let (mut scalars, mut open) = (Scalars::new(), Vec::<Open>::new());
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        // What the parser says may quote the text.
        let (event, span) = event.map_err(|error| format!("it is no YAML (line {})", error.marker().line()))?;
        match event {
            Event::DocumentStart(..) => documents += 1,
            Event::Scalar(value, ..) => match open.last_mut() {
                Some(Open::Map(key @ None)) => *key = Some(value.into_owned()),
                _ => {
                    scalars.insert(path(&open), Zeroizing::new(value.into_owned()));
                    finish(&mut open);
                }
            },
            Event::SequenceStart(..) => open.push(Open::List(0)),
            Event::MappingStart(..) => open.push(Open::Map(None)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                finish(&mut open);
            }
            Event::Alias(_) => {
                return Err(format!("it has an alias (line {}), as no kubeconfig has", span.start.line()));
            }
            _ => {}
        }
    }
    if documents > 1 { Err("it has several documents".to_owned()) } else { Ok(scalars) }
}

/// Where the next value belongs.
fn path(open: &[Open]) -> String {
    let parts = open.iter().map(|open| match open {
        Open::List(index) => index.to_string(),
        Open::Map(key) => key.clone().unwrap_or_default(),
    });
    parts.collect::<Vec<_>>().join(".")
}

/// A value ended: the next one is another's.
fn finish(open: &mut [Open]) {
    match open.last_mut() {
        Some(Open::List(index)) => *index += 1,
        Some(Open::Map(key)) => *key = None,
        None => {}
    }
}
