//! The Proxmox personality: from a request to a change of the world and an answer, in the vendor's order.
//!
//! Authenticate, find the operation, see whether a token may, check permissions, forward to the host, verify parameters, run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::access::Identity;
use crate::witness::Reply;
use crate::world::World;
use crate::world::locks::LockName;

mod agent;
pub mod api;
mod auth;
mod clone;
mod cluster;
pub(crate) mod config;
mod create;
mod destroy;
mod disks;
mod download;
pub(crate) mod drive;
mod guests;
mod indices;
mod migrate;
mod nodes;
mod options;
mod pending;
mod permissions;
mod pools;
mod power;
mod rights;
mod storage;
mod tasks;
mod template;

use api::{Call, Operation, Params, Version};
pub use download::checksum;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) method: String,
    /// After `/api2/json`, decoded.
    pub(crate) path: String,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) authorization: Option<String>,
    pub(crate) ticket: Option<String>,
    pub(crate) csrf: Option<String>,
}

/// A request that may run.
pub(crate) struct Request {
    pub(crate) who: Identity,
    pub(crate) params: Params,
    /// The host that it runs on.
    pub(crate) host: String,
}

impl Request {
    pub(crate) fn vmid(&self) -> u32 {
        self.number("vmid")
    }

    /// A number that was verified; zero if it is absent.
    pub(crate) fn number(&self, name: &str) -> u32 {
        self.params.number(name).and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.params.text(name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.params.flag(name).unwrap_or(false)
    }
}

/// A success.
pub(crate) struct Done {
    data: Value,
    total: Option<usize>,
    delay: Duration,
}

impl Done {
    fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

impl<T: Into<Value>> From<T> for Done {
    fn from(data: T) -> Self {
        Self { data: data.into(), total: None, delay: Duration::ZERO }
    }
}

/// A refusal.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: u16,
    message: String,
    errors: BTreeMap<String, String>,
    delay: Duration,
}

impl Refusal {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errors: BTreeMap::new(), delay: Duration::ZERO }
    }

    /// A parameter that is not acceptable.
    fn parameter(name: &str, complaint: impl Into<String>) -> Self {
        Self::parameters(BTreeMap::from([(name.to_owned(), complaint.into())]))
    }

    fn parameters(errors: BTreeMap<String, String>) -> Self {
        Self { errors, ..Self::new(400, "Parameter verification failed.") }
    }

    fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The text that a task ends with where this happens inside of one.
    fn into_text(self) -> String {
        match self.errors.into_iter().next() {
            Some((name, complaint)) => format!("{name}: {complaint}"),
            None => self.message,
        }
    }
}

/// Whatever fails while an operation runs is status 500 with the words of the failure.
impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self::new(500, message)
    }
}

type Outcome = Result<Done, Refusal>;

/// How long an answer to somebody unknown is held back.
const UNKNOWN_DELAY: Duration = Duration::from_secs(3);

/// Handles a request. `has_waited` says that the lock it needs did not become free in time.
pub(crate) fn answer(world: &mut World, entry: &str, raw: &Raw, has_waited: bool) -> Reply {
    let outcome = judged(world, entry, raw).and_then(|(operation, request)| {
        if has_waited && let Some((name, _)) = needed_lock(world, raw) {
            return Err(name.timeout_text().into());
        }
        run(world, operation.call, &request)
    });
    match outcome {
        Ok(done) => {
            let mut reply = Reply { delay: done.delay, ..Reply::data(&done.data) };
            if let (Some(total), Some(Value::Object(body))) = (done.total, &mut reply.body) {
                body.insert("total".to_owned(), json!(total));
            }
            reply
        }
        Err(refusal) if refusal.status == 401 => {
            let reason = Some(refusal.message);
            Reply { status: 401, reason, body: None, delay: UNKNOWN_DELAY }
        }
        Err(refusal) => {
            let mut reply = Reply { delay: refusal.delay, ..Reply::failure(refusal.status, &refusal.message) };
            if let (false, Some(Value::Object(body))) = (refusal.errors.is_empty(), &mut reply.body) {
                body.insert("errors".to_owned(), json!(refusal.errors));
            }
            reply
        }
    }
}

/// Everything that is decided before an operation runs.
fn judged(world: &World, entry: &str, raw: &Raw) -> Result<(&'static Operation, Request), Refusal> {
    let found = api::find(world.version, &raw.method, &raw.path);
    let is_open = found.as_ref().is_some_and(|(operation, _)| operation.permission == api::Permission::World);
    let who = match auth::identify(world, raw) {
        Ok(who) => who,
        Err(_) if is_open => Identity { user: String::new(), token: None },
        Err(refusal) => return Err(refusal),
    };
    let Some((operation, from_path)) = found else {
        return Err(Refusal::new(501, format!("Method '{} {}' not implemented", raw.method, raw.path)));
    };
    if who.token.is_some() && !operation.allow_token {
        return Err(Refusal::new(403, "Permission check failed"));
    }
    operation.conflict(&from_path, &raw.parameters).map_err(Refusal::parameters)?;
    permissions::check(world, &who, operation.permission, &from_path, &raw.parameters)?;
    let host = match from_path.get("node") {
        Some(node) if operation.proxied_to_node => forwarded(world, entry, node)?,
        _ => entry.to_owned(),
    };
    let params = operation.verify(world.version, &from_path, &raw.parameters).map_err(Refusal::parameters)?;
    Ok((operation, Request { who, params, host }))
}

/// The host that runs a request for `node`.
fn forwarded(world: &World, entry: &str, node: &str) -> Result<String, Refusal> {
    if node == entry || node == "localhost" {
        return Ok(entry.to_owned());
    }
    if !world.hosts.contains_key(node) {
        let why = "failed to get address info for";
        let message = format!("hostname lookup '{node}' failed - {why}: {node}: Name or service not known");
        return Err(Refusal::new(500, message));
    }
    if !world.is_up(node) {
        return Err(Refusal::new(595, "No route to host"));
    }
    Ok(node.to_owned())
}

/// The lock that a request needs while it is answered, and how long it waits for it.
pub(crate) fn needed_lock(world: &World, raw: &Raw) -> Option<(LockName, Duration)> {
    let (operation, from_path) = api::find(world.version, &raw.method, &raw.path)?;
    let vmid = match operation.call {
        Call::Create => raw.parameters.iter().find(|(name, _)| name == "vmid").map(|(_, value)| value)?,
        Call::SetConfig | Call::CloudInit => from_path.get("vmid")?,
        // Since 9.1.19 the task takes it.
        Call::SetConfigAsTask if world.version == Version::Eight => from_path.get("vmid")?,
        _ => return None,
    };
    let name = LockName::Guest(vmid.parse().ok()?);
    let patience = if operation.call == Call::Create { Duration::from_secs(5) } else { name.patience() };
    Some((name, patience))
}

/// The task that a client would rather see finished than be told of, and how long it waits.
pub(crate) fn awaited(world: &World, raw: &Raw, reply: &Reply) -> Option<(String, Duration)> {
    let (operation, _) = api::find(world.version, &raw.method, &raw.path)?;
    let name = match operation.call {
        Call::SetConfigAsTask => "background_delay",
        Call::DeleteVolume => "delay",
        _ => return None,
    };
    let (_, delay) = raw.parameters.iter().find(|(given, _)| given == name)?;
    let upid = reply.as_data()?.as_str()?;
    Some((upid.to_owned(), Duration::from_secs(delay.parse().ok()?)))
}

/// The answer once the awaited task has ended.
pub(crate) fn finished(exit: &str, upid: &str) -> Reply {
    if exit == "OK" || exit.starts_with("WARNINGS") {
        return Reply::data(&Value::Null);
    }
    let mut parts = upid.split(':').skip(5);
    match (parts.next(), parts.next()) {
        (Some("qmconfig"), Some(vmid)) => Reply::failure(500, &format!("failed to update VM {vmid}: {exit}")),
        _ => Reply::failure(500, exit),
    }
}

/// What the time of a request is drawn for.
pub(crate) fn purpose(world: &World, raw: &Raw) -> String {
    match api::find(world.version, &raw.method, &raw.path) {
        Some((operation, from_path)) => {
            let vmid = from_path.get("vmid").map_or("", String::as_str);
            format!("rest {} {} {vmid}", operation.method, operation.path)
        }
        None => "rest".to_owned(),
    }
}

fn run(world: &mut World, call: Call, request: &Request) -> Outcome {
    match call {
        Call::Version | Call::NodeVersion => Ok(nodes::version(world.version)),
        Call::Ticket => auth::ticket(world, request),
        Call::Permissions => permissions::list(world, request),
        Call::Nodes => nodes::list(world, request),
        Call::NodeStatus => nodes::status(world, request),
        Call::NodeIndex => Ok(indices::node(world.version)),
        Call::NodeNetwork => nodes::network(world, request),
        Call::ClusterStatus => cluster::status(world, request),
        Call::Resources => cluster::resources(world, request),
        Call::ClusterTasks => tasks::of_cluster(world, request),
        Call::NextId => cluster::next_id(world, request),
        Call::HaResources | Call::Containers => Ok(json!([]).into()),
        Call::Storages => storage::list(world, request),
        Call::Storage => storage::read(world, request),
        Call::NodeStorages => storage::of_node(world, request),
        Call::StorageStatus => storage::status(world, request),
        Call::Volumes => storage::volumes(world, request),
        Call::Volume => storage::volume(world, request),
        Call::DeleteVolume => storage::delete(world, request),
        Call::DownloadUrl => download::download(world, request),
        Call::Guests => guests::list(world, request),
        Call::GuestIndex => Ok(indices::guest()),
        Call::Snapshots => guests::snapshots(world, request),
        Call::Feature => guests::feature(world, request),
        Call::Create => create::create(world, request),
        Call::Destroy => destroy::destroy(world, request),
        Call::Config => config::get(world, request),
        Call::SetConfig => config::set(world, request),
        Call::SetConfigAsTask => config::set_as_task(world, request),
        Call::Pending => pending::list(world, request),
        Call::Status => guests::status(world, request),
        Call::Start => power::start(world, request),
        Call::Stop => power::stop(world, request),
        Call::Shutdown => power::shutdown(world, request),
        Call::Reboot => power::reboot(world, request),
        Call::Clone => clone::clone(world, request),
        Call::Template => template::template(world, request),
        Call::Resize => disks::resize(world, request),
        Call::MoveDisk => disks::move_disk(world, request),
        Call::Migrate => migrate::migrate(world, request),
        Call::CloudInit => config::regenerate_cloud_init(world, request),
        Call::AgentPing => agent::ping(world, request),
        Call::AgentInterfaces => agent::interfaces(world, request),
        Call::Tasks => tasks::list(world, request),
        Call::Task => tasks::index(world, request),
        Call::StopTask => tasks::stop(world, request),
        Call::TaskStatus => tasks::status(world, request),
        Call::TaskLog => tasks::log(world, request),
        Call::Pools => pools::list(world, request),
        Call::Pool => pools::get(world, request),
        Call::CreatePool => pools::create(world, request),
        Call::DeletePool => pools::delete(world, request),
        Call::SetPool => pools::set(world, request),
    }
}
