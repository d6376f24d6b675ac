//! Tasks, as clients watch them.

use serde_json::{Map, Value, json};

use super::api::Version;
use super::{Done, Outcome, Refusal, Request};
use crate::world::World;
use crate::world::tasks::{TaskId, TaskRecord};

/// The task that is asked for, if whoever asks may see it.
fn find<'a>(world: &'a World, request: &Request, needs_modify: bool) -> Result<(TaskId, &'a TaskRecord), Refusal> {
    let upid = request.text("upid").unwrap_or_default();
    let well_formed = upid.starts_with("UPID:") && upid.split(':').count() == 9;
    if !well_formed {
        return Err(Refusal::parameter("upid", "unable to parse worker upid"));
    }
    let found = world.tasks.find(upid).filter(|(_, record)| record.host == request.host);
    if let Some((_, record)) = found
        && !is_own(request, record)
    {
        let privilege = if needs_modify { "Sys.Modify" } else { "Sys.Audit" };
        world.require(&request.who, &format!("/nodes/{}", request.host), &[privilege])?;
    }
    found.ok_or_else(|| Refusal::parameter("upid", "no such task"))
}

/// Whether it was begun by whoever asks. A token sees only its own tasks, a user also those of his tokens.
fn is_own(request: &Request, record: &TaskRecord) -> bool {
    let user = record.user.split('!').next().unwrap_or_default();
    record.user == request.who.name() || (request.who.token.is_none() && user == request.who.user)
}

/// User and token of a task, apart.
fn split_user(record: &TaskRecord) -> (&str, Option<&str>) {
    record.user.split_once('!').map_or((record.user.as_str(), None), |(user, token)| (user, Some(token)))
}

fn row(record: &TaskRecord) -> Map<String, Value> {
    let (user, token) = split_user(record);
    let mut row = Map::new();
    for (key, value) in [("upid", &record.upid), ("node", &record.host), ("type", &record.kind), ("id", &record.id)] {
        row.insert(key.into(), json!(value));
    }
    row.insert("user".into(), json!(user));
    if let Some(token) = token {
        row.insert("tokenid".into(), json!(token));
    }
    row.insert("pid".into(), json!(record.pid));
    row.insert("pstart".into(), json!(record.pstart));
    row.insert("starttime".into(), json!(record.started));
    row
}

pub(super) fn status(world: &World, request: &Request) -> Outcome {
    let (_, record) = find(world, request, false)?;
    let mut row = row(record);
    row.insert("status".into(), json!(if record.exit.is_some() { "stopped" } else { "running" }));
    if let Some(exit) = &record.exit {
        row.insert("exitstatus".into(), json!(exit));
    }
    Ok(Value::from(row).into())
}

pub(super) fn log(world: &World, request: &Request) -> Outcome {
    let record = match find(world, request, false) {
        Ok((_, record)) => record,
        Err(refusal) if refusal.errors.get("upid").is_some_and(|complaint| complaint == "no such task") => {
            return Ok(no_log(world.version));
        }
        Err(refusal) => return Err(refusal),
    };
    let start = request.params.number("start").and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
    let limit = request.params.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(50);
    let limit = if limit == 0 { usize::MAX } else { limit };
    let lines = record.log.iter().enumerate().skip(start).take(limit);
    let mut lines: Vec<Value> = lines.map(|(at, line)| json!({ "n": at + 1, "t": line })).collect();
    if record.log.is_empty() {
        lines.push(json!({ "n": 1, "t": "no content" }));
    }
    let total = Some(record.log.len().max(1));
    Ok(Done { total, ..Value::from(lines).into() })
}

/// The log of a task that there never was: a line about its file, which 8.4 does not put into a list.
fn no_log(version: Version) -> Done {
    let line = json!({ "n": 1, "t": "unable to open file - No such file or directory" });
    let data = if version == Version::Eight { line } else { json!([line]) };
    Done { total: Some(1), ..data.into() }
}

pub(super) fn index(world: &World, request: &Request) -> Outcome {
    find(world, request, false)?;
    Ok(json!([{ "name": "log" }, { "name": "status" }]).into())
}

pub(super) fn stop(world: &mut World, request: &Request) -> Outcome {
    let (task, record) = find(world, request, true)?;
    if record.exit.is_none() {
        let signal = if record.kind == "qmclone" { "interrupted by signal" } else { "received interrupt" };
        world.fail(task, signal);
    }
    Ok(Value::Null.into())
}

/// How many tasks a host tells the others of; those that run, all.
const TOLD: usize = 25;

/// The latest tasks of all hosts. A token is nobody's user, so it sees none without the right to see all.
pub(super) fn of_cluster(world: &World, request: &Request) -> Outcome {
    let sees_all = world.may(&request.who, "/", &["Sys.Audit"]);
    let mut rows = Vec::new();
    for host in world.hosts.keys().filter(|host| world.is_up(host)) {
        let of_host = || world.tasks.records().filter(|record| record.host == *host);
        let running: Vec<&TaskRecord> = of_host().filter(|record| record.exit.is_none()).collect();
        let room = TOLD.saturating_sub(running.len());
        let ended = of_host().rev().filter(|record| record.exit.is_some()).take(room);
        let told = running.into_iter().chain(ended);
        rows.extend(told.filter(|record| sees_all || split_user(record).0 == request.who.name()).map(told_row));
    }
    Ok(rows.into())
}

fn told_row(record: &TaskRecord) -> Value {
    let mut row = row(record);
    row.remove("pstart");
    row.insert("saved".into(), json!(if record.exit.is_some() { "1" } else { "0" }));
    if let (Some(exit), Some(ended)) = (&record.exit, record.ended) {
        row.remove("pid");
        row.insert("status".into(), json!(exit));
        row.insert("endtime".into(), json!(ended));
    }
    row.into()
}

/// How a task has ended, in one word.
fn end(record: &TaskRecord) -> &'static str {
    match record.exit.as_deref() {
        None | Some("unexpected status") => "unknown",
        Some("OK") => "ok",
        Some(exit) if exit.starts_with("WARNINGS: ") => "warning",
        Some(_) => "error",
    }
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let sees_all = world.may(&request.who, &format!("/nodes/{}", request.host), &["Sys.Audit"]);
    let source = request.text("source").unwrap_or("archive");
    let since = request.params.number("since").and_then(|since| u64::try_from(since).ok());
    let until = request.params.number("until").and_then(|until| u64::try_from(until).ok());
    let kind = request.text("typefilter");
    let ends: Option<Vec<&str>> = request
        .text("statusfilter")
        .map(|list| list.split([',', ';', ' ', '\0']).filter(|it| !it.is_empty()).collect());
    let user = request.text("userfilter");
    let wanted = world.tasks.records().rev().filter(|record| {
        record.host == request.host
            && (sees_all || is_own(request, record))
            && match source {
                "active" => record.exit.is_none(),
                "archive" => record.exit.is_some(),
                _ => true,
            }
            && request.text("vmid").is_none_or(|vmid| record.id == vmid)
            && kind.is_none_or(|kind| kind == record.kind)
            && ends.as_ref().is_none_or(|ends| ends.contains(&end(record)))
            && user.is_none_or(|user| record.user.to_lowercase().contains(&user.to_lowercase()))
            && since.is_none_or(|since| record.started >= since)
            && until.is_none_or(|until| record.started <= until)
            && (!request.flag("errors") || record.exit.as_deref().is_some_and(|exit| exit != "OK"))
    });
    let start = request.params.number("start").and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
    let limit = request.params.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(50);
    let all: Vec<Value> = wanted
        .map(|record| {
            let mut row = row(record);
            if let (Some(exit), Some(ended)) = (&record.exit, record.ended) {
                row.insert("status".into(), json!(exit));
                row.insert("endtime".into(), json!(ended));
            }
            row.into()
        })
        .collect();
    let total = Some(all.len());
    let page: Vec<Value> = all.into_iter().skip(start).take(limit).collect();
    Ok(Done { total, ..Value::from(page).into() })
}
